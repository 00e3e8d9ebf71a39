"""Node scores with best fit: the node with the smallest suitable devices has the highest score."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.errors import ConfigError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.devices import alternative, claim, device, device_class, exactly, first_available, slice_of, using
from tests.support.handles import FakeHandle
from tests.support.scheduling import configured, rig

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


@pytest.mark.parametrize(
    ("selection", "request_", "expected"),
    [
        pytest.param("BestFit", ANY, [0, 99, 49, 99], id="the smallest"),
        pytest.param("FirstFit", ANY, [0, 0, 0, 0], id="first fit"),
        pytest.param("BestFit", LISTED, [800, 799, 749, 799], id="a better alternative counts more"),
        pytest.param("FirstFit", LISTED, [8, 7, 7, 7], id="alternatives alone"),
    ],
)
def test_scores(selection: str, request_: dict[str, Any], expected: list[int]) -> None:
    assert scores(selection, request_) == expected


def test_unknown_selection() -> None:
    """The error names the field."""
    with pytest.raises(ConfigError, match="deviceSelection"):
        rig().scheduler.build(configured("p", "DynamicResources", {"deviceSelection": "Random"}))
