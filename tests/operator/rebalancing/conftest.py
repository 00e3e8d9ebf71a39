"""The cluster in which plans are made."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from scheduler_core.in_tree import default_plugins
from tests.support.gang_preemption import running_pod, small_node, with_pod_groups
from tests.support.planned_cluster import PlannedCluster
from tests.support.rebalancing import movable
from tests.support.scheduling import rig


@pytest.fixture
async def cluster() -> AsyncIterator[PlannedCluster]:
    """Return three nodes with pods: p may move from a to b, and c is empty."""
    made = with_pod_groups(rig(defaults=default_plugins()))
    made.add(*(small_node(name, 4, pool=name) for name in "abc"), movable("p", "a"), running_pod("q", "b", cpus=2))
    cluster = PlannedCluster(made)
    async with cluster.running():
        yield cluster
