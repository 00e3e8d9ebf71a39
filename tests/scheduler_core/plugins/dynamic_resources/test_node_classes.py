"""Equivalence classes of nodes: classes refreshed by row equal those of a full computation."""

from __future__ import annotations

from collections import defaultdict

import pytest

from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.search import SearchLimits
from scheduler_core.plugins.dynamic_resources.node_allocation import NO_NODE, NodeClasses
from tests.support.device_world import DeviceWorld, device_claim

STEPS = 120


@pytest.mark.parametrize("skips_operations", [pytest.param(False, id="plain"), pytest.param(True, id="skipping")])
@pytest.mark.parametrize("seed", range(20))
def test_refreshed_classes_equal_new_ones(seed: int, skips_operations: bool) -> None:
    """Rows of one class have equal devices, and rows with equal devices are in one class."""
    world = DeviceWorld(seed, skips_operations=skips_operations)
    classes = NodeClasses(world.nodes)
    hardware = world.devices.hardware
    for step in range(STEPS):
        for _ in range(world.random.choice([1, 1, 1, 2, 5])):
            world.step()
        allocator = Allocator([device_claim(99)], world.devices.classes, hardware, SearchLimits(lambda: 0.0))
        found = classes.refresh(allocator).tolist()
        keys: dict[int, set[object]] = defaultdict(set)
        for row, number in enumerate(found):
            node = world.nodes.nodes[row]
            assert (number == NO_NODE) == (node is None), f"step {step}"
            if node is not None:
                features = node.status.declared_features
                keys[number].add(allocator.key(node.metadata.name, node.metadata.labels, features))
        assert all(len(each) == 1 for each in keys.values()), f"step {step}"
        assert len({key for each in keys.values() for key in each}) == len(keys), f"step {step}"
