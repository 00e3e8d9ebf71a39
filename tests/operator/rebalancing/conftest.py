"""The cluster in which plans are made."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.gang_preemption import running_pod, small_node
from tests.support.planned_cluster import PlannedCluster
from tests.support.rebalancing import movable
from tests.support.scheduling import gang_rig


@pytest.fixture
async def cluster() -> AsyncIterator[PlannedCluster]:
    """Return three nodes with pods: p may move from a to b, and c is empty."""
    made = gang_rig(
        *(small_node(name, 4, pool=name) for name in "abc"), movable("p", "a"), running_pod("q", "b", cpus=2)
    )
    async with PlannedCluster(made).running() as cluster:
        yield cluster
