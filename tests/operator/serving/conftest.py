"""The readiness of a process that schedules."""

from __future__ import annotations

import pytest
from bayplan.kube.readiness import Readiness


@pytest.fixture
def readiness() -> Readiness:
    ready = Readiness(("pods are being listed",))
    ready.fulfil("pods are being listed")
    return ready
