"""Allocation for nodes.

Devices with skipped node operations require nodes that declare the feature (gate DRAOptionalNodeOperations). Equal
nodes share a search, and nodes are scored by best fit.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.devices.search import SearchLimits
from scheduler_core.errors import ConfigError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.devices import OPTIONAL_NODE_OPERATIONS, ResourceClaim, ResourceSlice
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.plugins.dynamic_resources.node_allocation import NO_NODE, NodeClasses
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.device_world import DeviceWorld, device_claim
from tests.support.devices import (
    alternative,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    slice_of,
    using,
    with_reserved,
)
from tests.support.gang_devices import report, settled
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import Rig, configured, default_rig, rig
from tests.support.tables import table

ALL = ["*"]
SKIPS: dict[str, Any] = {"skipNodeOperations": ALL}


def world(*, is_on: bool = True, **declared: bool) -> tuple[Rig, RecordingClaimWriter]:
    """Return a scheduler with nodes; ``declared`` states which of them declare the feature."""
    writer = RecordingClaimWriter()
    options = SchedulerOptions(device_features=DeviceFeatures(optional_node_operations=is_on), group_claims=True)
    made = default_rig(options=options, ports=SchedulerPorts(claims=writer))
    made.columns.devices.assign(device_class())
    for name, declares in declared.items():
        report(made, writer, node(name, features=(OPTIONAL_NODE_OPERATIONS,) if declares else ()))
    return made, writer


def local(name: str, **spec: Any) -> ResourceSlice:
    """Return a slice with one device of a node."""
    return slice_of([device("d")], node=name, **spec)


@table(
    "declared, expected",
    ("one node declares it", {"a": False, "b": True}, "b"),
    ("no node declares it", {"a": False, "b": False}, None),
)
async def test_new_allocation(declared: dict[str, bool], expected: str | None) -> None:
    """Devices are allocated on nodes that declare the feature, and the result has skipNodeOperations."""
    made, writer = world(**declared)
    report(made, writer, *(local(name, **SKIPS) for name in declared), claim(exactly("r"), name="c"))
    report(made, writer, using(pod("p", namespace="ns"), "c"))
    await settled(made)
    assert made.bound.get("p") == expected
    if expected is not None:
        allocation = present(writer.claims["ns/c"].status.allocation)
        assert [each.skip_node_operations for each in allocation.devices.results] == [("*",)]


async def test_gate_off() -> None:
    """If the gate is off, a slice that skips operations counts as missing on every node."""
    made, writer = world(is_on=False, a=True)
    report(made, writer, local("a", **SKIPS), claim(exactly("r"), name="c"), using(pod("p", namespace="ns"), "c"))
    await settled(made)
    assert made.bound == {}


async def test_other_slices_of_the_pool_are_used() -> None:
    """On a node without the feature, devices of slices without skipped operations are allocated."""
    made, writer = world(a=False)
    skipped = slice_of([device("d0")], name="s0", node="a", count=2, **SKIPS)
    report(made, writer, skipped, slice_of([device("d1")], name="s1", node="a", count=2), claim(exactly("r"), name="c"))
    report(made, writer, using(pod("p", namespace="ns"), "c"))
    await settled(made)
    allocation = present(writer.claims["ns/c"].status.allocation)
    assert [(each.device, each.skip_node_operations) for each in allocation.devices.results] == [("d1", ())]


async def test_node_that_declares_the_feature_later() -> None:
    """A newly declared feature invalidates the cached pools and classes of the node."""
    made, writer = world(a=False)
    report(made, writer, local("a", **SKIPS), claim(exactly("r"), name="c"), using(pod("p", namespace="ns"), "c"))
    await settled(made)
    assert made.bound == {}
    made.scheduler.feed.node_updated(node("a"), node("a", features=(OPTIONAL_NODE_OPERATIONS,)))
    report(made, writer, using(pod("q", namespace="ns"), "c"))
    await settled(made)
    assert made.bound == {"q": "a"}


def allocated(*, on: str = "", skips: bool = True) -> ResourceClaim:
    """Return a claim that is allocated, on one node or on all."""
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x", **(SKIPS if skips else {})}
    body: dict[str, Any] = {"devices": {"results": [result]}}
    if on:
        fields = [{"key": "metadata.name", "operator": "In", "values": [on]}]
        body["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return claim(exactly("r"), name="c", allocation=body)


@table("is_on", ("on", True), ("off", False))
async def test_allocated_claim(is_on: bool) -> None:
    """An allocation that skips operations requires the feature with any value of the gate, as in kube-scheduler."""
    made, writer = world(is_on=is_on, a=False, b=True)
    report(made, writer, with_reserved(allocated(), "other"), using(pod("p", namespace="ns"), "c"))
    await settled(made)
    assert made.bound == {"p": "b"}


@table(
    "claims, reason",
    ("allocated", [allocated()], "resourceclaim not available on the node"),
    ("allocated on another node", [allocated(on="b")], "resourceclaim not available on the node"),
    ("not allocated", [claim(exactly("r"), name="c")], "cannot allocate all claims"),
)
def test_reason(claims: list[ResourceClaim], reason: str) -> None:
    """The reasons equal kube-scheduler's."""
    made, writer = world(a=False)
    report(made, writer, local("a", **SKIPS), *claims)
    user = using(pod("p", namespace="ns"), "c")
    assert reasons(made, user) == {"a": (reason,)}


def reasons(made: Rig, user: Pod) -> dict[str, tuple[str, ...]]:
    """Return the reasons of the nodes that reject the pod."""
    (instance,) = made.context.profiles
    info = made.columns.compile_pod(user)
    found = made.scheduler.cycles.examiner.examine(instance, info)
    return {name: status.reasons for name, status in found.rejected.items()}


async def test_unused_allocation_is_removed() -> None:
    """An allocation that no node can use is removed if no other pod uses it, so that others can be tried."""
    made, writer = world(a=False)
    user = using(pod("p", namespace="ns"), "c")
    report(made, writer, local("a"), with_reserved(allocated(), user.metadata.uid), user)
    await settled(made)
    assert writer.claims["ns/c"].status.allocation is None


def test_members_share_an_allocation_that_is_not_written() -> None:
    """A member is rejected by nodes without the feature, with a reason that names the claim."""
    made, writer = world(a=True, b=False)
    key = GroupKey(GroupSource.NATIVE, "ns", "train")
    made.scheduler.group_feed.serve(GroupSource.NATIVE)
    made.scheduler.group_feed.group_changed(PodGroup(key, "uid-of-train", 2))
    unwritten, skipping = claim(exactly("r"), name="c"), allocated().status.allocation
    assert skipping is not None
    report(made, writer, unwritten)
    made.columns.devices.begin_allocation(unwritten, skipping, "uid-of-m0", key)
    member = using(pod("m1", namespace="ns", group="train"), "c")
    reason = f"resource claim ns/c allocation requires {OPTIONAL_NODE_OPERATIONS} feature on the node"
    assert reasons(made, member) == {"b": (reason,)}


# -- equal nodes share a search, and nodes are scored by best fit ------------------------------------------------------


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
