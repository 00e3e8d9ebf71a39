"""Number of devices of a class on all rows: counts refreshed by row equal a full count."""

from __future__ import annotations

import pytest

from scheduler_core.plugins.resource_scoring import Demand, DeviceUses, scored_resource
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.device_world import DeviceWorld

STEPS = 60


@pytest.mark.parametrize("seed", range(10))
def test_refreshed_counts_equal_new_ones(seed: int) -> None:
    """After each random change of claims, slices and nodes, the refreshed counts equal those of a new object."""
    world = DeviceWorld(seed)
    demand = Demand((scored_resource("deviceclass.resource.kubernetes.io/gpu"),), (1,), nonzero=False)
    refreshed = DeviceUses(max_classes=1)
    seen = set()
    for step in range(STEPS):
        for _ in range(world.random.choice([1, 1, 2, 5])):
            world.step()
        (found,) = refreshed.uses(demand, world.nodes, ALL_ROWS)
        (expected,) = DeviceUses().uses(demand, world.nodes, ALL_ROWS)
        assert found.capacity.tolist() == expected.capacity.tolist(), f"step {step}"
        assert found.used.tolist() == expected.used.tolist(), f"step {step}"
        seen.add((sum(found.capacity.tolist()), sum(found.used.tolist())))
    assert len(seen) > STEPS // 4, "the counts change"
