"""Tests of devices that become free when an allocation in flight ends: pods that wait for them are tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.device_claims import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.devices import allocated_claim, claim, device, device_class, exactly, slice_of, using
from tests.support.handles import FakeHandle
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.virtual_clock import AutoAdvanceClock

ALLOCATION = allocated_claim({"device": "d"}).status.allocation
WITH_CLAIM = using(pod("p", namespace="ns", uid="uid-of-p"), "c0")
WITH_RESOURCE = pod("p", namespace="ns", uid="uid-of-p", requests={"deviceclass.resource.kubernetes.io/gpu": "1"})

Watch = Callable[[DeviceIndex, ResourceClaim], None]


@dataclass
class OvertakenWriter(RecordingClaimWriter):
    """A writer whose responses to allocations come after events of a watch."""

    watch: Callable[[ResourceClaim], None] = lambda _: None

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        written = await super().write_allocation(claim)
        self.watch(written)
        return written


def show_deallocated(devices: DeviceIndex, written: ResourceClaim) -> None:
    """Show a claim as it is after its allocation was removed."""
    version = str(int(written.metadata.resource_version) + 1)
    meta = replace(written.metadata, resource_version=version)
    devices.assign(replace(written, metadata=meta, status=ResourceClaimStatus()))


@pytest.mark.parametrize(
    ("ended", "written", "reported"),
    [
        pytest.param(("a", "b"), False, True, id="given up"),
        pytest.param(("a",), False, False, id="another pod still has it"),
        pytest.param(("a", "b"), True, False, id="written"),
    ],
)
def test_an_allocation_that_is_given_up(ended: tuple[str, ...], written: bool, reported: bool) -> None:
    """It is reported as a claim that lost its allocation, unless the devices are still in use."""
    devices = DeviceIndex()
    seen: list[tuple[ResourceClaim, ResourceClaim]] = []
    devices.on_freed.append(lambda allocated, now: seen.append((allocated, now)))
    assert ALLOCATION is not None
    stored = claim()
    devices.assign(stored)
    for user in ("a", "b"):
        devices.begin_allocation(stored, ALLOCATION, user)
    in_flight = devices.in_flight_of("a")
    if written:
        devices.assign(allocated_claim({"device": "d"}, name="c0"))
    for user in ended:
        devices.end_allocation(stored.metadata.uid, user)
    devices.report_freed(in_flight)
    assert [(before.status.allocation, now) for before, now in seen] == ([(ALLOCATION, stored)] if reported else [])


@pytest.mark.parametrize("user", [pytest.param(WITH_CLAIM, id="claim"), pytest.param(WITH_RESOURCE, id="resource")])
@pytest.mark.parametrize(
    ("watch", "reported"),
    [
        pytest.param(DeviceIndex.assign, False, id="shows it written"),
        pytest.param(show_deallocated, True, id="shows it deallocated"),
        pytest.param(DeviceIndex.remove, True, id="shows it deleted"),
    ],
)
async def test_a_watch_that_is_ahead_of_the_response(user: Pod, watch: Watch, *, reported: bool) -> None:
    """Devices that the claim has no longer are in use until PreBind ends, and are reported then."""
    nodes, writer = columns([node("n0")]), OvertakenWriter()
    devices = nodes.devices
    writer.watch = lambda written: watch(devices, written)
    for each in (device_class(), slice_of([device("d")]), writer.store(claim(exactly("r")))):
        devices.assign(each)
    seen: list[tuple[ResourceClaim, ResourceClaim]] = []
    devices.on_freed.append(lambda allocated, now: seen.append((allocated, now)))
    plugin = DynamicResources(None, FakeHandle(nodes=nodes, claim_writer=writer, clock=AutoAdvanceClock()))
    info, state = nodes.compile_pod(user), CycleState()
    assert plugin.pre_filter(state, info, nodes).status.is_success
    plugin.filter(state, info, nodes, ALL_ROWS)
    assert plugin.reserve(state, info, "n0").is_success
    assert (await plugin.pre_bind(state, info, "n0")).is_success
    assert not devices.in_flight_of(info.uid)
    assert [before.status.allocation is not None for before, _ in seen] == [True] * reported
    assert all(now.status.allocation is None for _, now in seen)
