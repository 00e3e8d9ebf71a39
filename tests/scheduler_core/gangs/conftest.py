"""Scheduler fixture for the tests of gangs."""

from __future__ import annotations

import pytest

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import GroupSource
from tests.support.scheduling import Rig, rig


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler with the PodGroups of Bayplan's own API, without nodes."""
    return rig(defaults=default_plugins(), groups=[GroupSource.BAYPLAN])
