"""Queueing hints of DynamicResources: claims and pods change, and allocations in flight end and free devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.devices import allocated_claim, claim, device, device_class, exactly, slice_of, using, with_meta
from tests.support.handles import FakeHandle
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.tables import table
from tests.support.virtual_clock import AutoAdvanceClock

USER = using(pod("p", namespace="ns", uid="uid-of-p"), "c0")
OWNED = with_meta(claim(name="made"), owner_references=(OwnerReference("Pod", "p", "uid-of-p", "v1", controller=True),))


def share(amount: str) -> ResourceClaim:
    """Return the claim of the pod with a share of a device."""
    return allocated_claim({"device": "d", "shareID": "s", "consumedCapacity": {"memory": amount}}, name="c0")


def reported(**state: Any) -> ResourceClaim:
    """Return the claim of the pod with a device status that its driver reports."""
    allocated = allocated_claim({"device": "d"}, name="c0")
    device = {"driver": "gpu.example.com", "pool": "n0", "device": "d", **state}
    decoded = msgspec.json.decode(msgspec.json.encode({"devices": [device]}), type=ResourceClaimStatus)
    return replace(allocated, status=replace(allocated.status, devices=decoded.devices))


def hints(*claims: ResourceClaim) -> DynamicResources:
    """Return the hints of a scheduler with these claims."""
    handle = FakeHandle()
    for each in claims:
        handle.nodes.devices.assign(each)
    return DynamicResources(None, handle)


@table(
    "stored, old, new, hint",
    ("a claim of the pod is created", [claim()], None, claim(), Hint.QUEUE),
    ("another claim is created", [claim()], None, claim(name="x"), Hint.SKIP),
    ("a claim of the pod is still missing", [], None, claim(name="x"), Hint.SKIP),
    ("another claim is deallocated", [claim()], allocated_claim({"device": "d"}), claim(name="held"), Hint.QUEUE),
    ("its claim is deallocated", [claim()], allocated_claim({"device": "d"}, name="c0"), claim(), Hint.QUEUE),
    ("its claim is allocated", [claim()], claim(), allocated_claim({"device": "d"}, name="c0"), Hint.QUEUE),
    ("same status", [claim()], claim(), with_meta(claim(), annotations={"a": "b"}), Hint.SKIP),
    ("the same amount in another notation", [claim()], share("1Gi"), share("1024Mi"), Hint.SKIP),
    ("another amount", [claim()], share("1Gi"), share("2Gi"), Hint.QUEUE),
    ("a driver reports data", [claim()], reported(), reported(data={"a": 1}), Hint.QUEUE),
    ("the same data", [claim()], reported(data={"a": 1}), reported(data={"a": 1}), Hint.SKIP),
    ("a driver reports a network", [claim()], reported(), reported(networkData={"interfaceName": "e"}), Hint.QUEUE),
    (
        "only the time of a condition differs",
        [claim()],
        reported(conditions=[{"type": "R", "status": "True", "lastTransitionTime": "2026-03-21T00:00:00Z"}]),
        reported(conditions=[{"type": "R", "status": "True", "lastTransitionTime": "2026-03-22T00:00:00Z"}]),
        Hint.QUEUE,
    ),
    ("an allocated claim is deleted", [claim()], allocated_claim({"device": "d"}), None, Hint.QUEUE),
    ("an unallocated claim is deleted", [claim()], claim(name="x"), None, Hint.SKIP),
    ("unknown object", [claim()], None, USER, Hint.QUEUE),
)
def test_change_of_a_claim(
    stored: list[ResourceClaim], old: ResourceClaim | None, new: object | None, hint: Hint
) -> None:
    """A change of a claim requeues the pod if it may satisfy the pod's claims; ``stored`` are the claims after it."""
    assert hints(*stored).after_claim_change(USER, old, new) is hint


@table(
    "stored, new, hint",
    ("all claims exist", [OWNED], using(USER, templates={"t": "made"}), Hint.QUEUE),
    ("the claim is not stored yet", [], using(USER, templates={"t": "made"}), Hint.SKIP),
    ("no claim is needed", [], using(USER, templates={"t": None}), Hint.QUEUE),
)
def test_change_of_the_pod(stored: list[ResourceClaim], new: Pod, hint: Hint) -> None:
    """The pod is requeued once all claims of its status exist."""
    assert hints(*stored).after_pod_update(USER, USER, new) is hint


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
