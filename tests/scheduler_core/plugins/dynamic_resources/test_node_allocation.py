"""Allocation for nodes: equal nodes share a search, and nodes are scored by best fit."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.search import SearchLimits
from scheduler_core.errors import ConfigError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.plugins.dynamic_resources.node_allocation import NO_NODE, NodeClasses
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.device_world import DeviceWorld, device_claim
from tests.support.devices import alternative, claim, device, device_class, exactly, first_available, slice_of, using
from tests.support.handles import FakeHandle
from tests.support.scheduling import configured, rig
from tests.support.tables import table

SIZES = {"n0": "80Gi", "n1": "4Gi", "n2": "40Gi", "n3": "4Gi"}
ANY, LISTED = exactly("r"), first_available("r", alternative("large", device_class_name="large"), alternative("any"))
LARGE = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'


def scores(selection: str, request: dict[str, Any]) -> list[int]:
    """Return the raw scores of four nodes with a device each."""
    nodes = columns([node(name) for name in SIZES])
    for name, memory in SIZES.items():
        nodes.devices.assign(slice_of([device("d", capacity={"memory": {"value": memory}})], node=name))
    for each in (device_class(), device_class("large", LARGE), claim(request)):
        nodes.devices.assign(each)
    args = DynamicResources.args_model.model_validate({"deviceSelection": selection})
    plugin, state = DynamicResources(args, FakeHandle(nodes=nodes)), CycleState()
    info = nodes.compile_pod(using(pod("p", namespace="ns"), "c0"))
    assert plugin.pre_filter(state, info, nodes).status.is_success
    plugin.filter(state, info, nodes, ALL_ROWS)
    return [int(each) for each in plugin.score(state, info, nodes, ALL_ROWS)[: len(SIZES)]]


@table(
    "selection, request_, expected",
    ("the smallest", "BestFit", ANY, [0, 99, 49, 99]),
    ("first fit", "FirstFit", ANY, [0, 0, 0, 0]),
    ("a better alternative counts more", "BestFit", LISTED, [800, 799, 749, 799]),
    ("alternatives alone", "FirstFit", LISTED, [8, 7, 7, 7]),
)
def test_scores(selection: str, request_: dict[str, Any], expected: list[int]) -> None:
    assert scores(selection, request_) == expected


def test_unknown_selection() -> None:
    """The error names the field."""
    with pytest.raises(ConfigError, match="deviceSelection"):
        rig().scheduler.build(configured("p", "DynamicResources", {"deviceSelection": "Random"}))


STEPS = 120


@table("skips_operations", ("plain", False), ("skipping", True))
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
