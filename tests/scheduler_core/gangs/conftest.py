"""Scheduler fixture for the tests of gangs."""

from __future__ import annotations

import pytest

from tests.support.scheduling import Rig, gang_rig


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler with the PodGroups of Bayplan's own API, without nodes."""
    return gang_rig()
