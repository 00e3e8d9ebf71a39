"""Devices that become free when an allocation in flight ends, which requeues pods that wait for devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.devices import allocated_claim, claim, device, device_class, exactly, slice_of, using
from tests.support.handles import FakeHandle
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.tables import table
from tests.support.virtual_clock import AutoAdvanceClock

ALLOCATION = allocated_claim({"device": "d"}).status.allocation
WITH_CLAIM = using(pod("p", namespace="ns", uid="uid-of-p"), "c0")
WITH_RESOURCE = pod("p", namespace="ns", uid="uid-of-p", requests={"deviceclass.resource.kubernetes.io/gpu": "1"})
Watch = Callable[[DeviceIndex, ResourceClaim], None]


@dataclass
class LateResponseWriter(RecordingClaimWriter):
    """Writer that returns responses to allocations after the watch events."""

    watch: Callable[[ResourceClaim], None] = lambda _: None

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        written = await super().write_allocation(claim)
        self.watch(written)
        return written


def report_deallocated(devices: DeviceIndex, written: ResourceClaim) -> None:
    """Report the claim without its allocation, as the watch does."""
    version = str(int(written.metadata.resource_version) + 1)
    meta = replace(written.metadata, resource_version=version)
    devices.assign(replace(written, metadata=meta, status=ResourceClaimStatus()))


@table(
    "ended, written, reported",
    ("abandoned", ("a", "b"), "", True),
    ("another pod still has it", ("a",), "", False),
    ("written", ("a", "b"), "d", False),
    ("other devices written by another scheduler", ("a", "b"), "other", True),
)
def test_an_abandoned_allocation(ended: tuple[str, ...], written: str, reported: bool) -> None:
    """An abandoned allocation is reported as a deallocated claim, unless the devices are still in use."""
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
        devices.assign(allocated_claim({"device": written}, name="c0"))
    for user in ended:
        devices.end_allocation(stored.metadata.uid, user)
    devices.report_freed(in_flight)
    reports = [(before.status.allocation, now.status.allocation) for before, now in seen]
    assert reports == ([(ALLOCATION, None)] if reported else [])


@table("user", ("claim", WITH_CLAIM), ("resource", WITH_RESOURCE))
@table(
    "watch, reported",
    ("reports it written", DeviceIndex.assign, False),
    ("reports it deallocated", report_deallocated, True),
    ("reports it deleted", DeviceIndex.remove, True),
)
async def test_a_watch_that_is_ahead_of_the_response(user: Pod, watch: Watch, *, reported: bool) -> None:
    """Devices that the claim lost before the response are in use until PreBind ends, and are then reported as freed."""
    nodes, writer = columns([node("n0")]), LateResponseWriter()
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


def test_an_abandoned_allocation_without_devices() -> None:
    """An abandoned allocation without devices is reported as well, because it blocked other pods with the claim."""
    devices = DeviceIndex()
    seen: list[ResourceClaim] = []
    devices.on_freed.append(lambda _, now: seen.append(now))
    assert ALLOCATION is not None
    stored = claim()
    devices.assign(stored)
    devices.begin_allocation(stored, replace(ALLOCATION, devices=replace(ALLOCATION.devices, results=())), "a")
    in_flight = devices.in_flight_of("a")
    devices.end_allocation(stored.metadata.uid, "a")
    devices.report_freed(in_flight)
    assert seen == [stored]
