"""Writes of DynamicResources: conflicts, claims that other writers changed, deallocation and deletion."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    DeviceError,
    ForbiddenError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.model.devices import DELETE_PROTECTION, AllocationResult, ClaimConsumer, ResourceClaim
from scheduler_core.model.pod import ExtendedResourceRequest
from scheduler_core.plugins.dynamic_resources.claim_binding import ClaimBinder
from scheduler_core.plugins.dynamic_resources.pod_claims import consumer_of
from tests.support.builders import pod
from tests.support.devices import DRIVER, allocated_claim, claim, with_meta
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.tables import table
from tests.support.virtual_clock import AutoAdvanceClock

USER = pod("p", namespace="ns", uid="uid-of-p")
THIS, OTHER = ClaimConsumer("pods", "p", "uid-of-p"), ClaimConsumer("pods", "other", "uid-of-other")
CONFLICT = ConflictError("the object has been modified")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A writer with one claim, and the binder that writes to it."""

    def __init__(self, stored: ResourceClaim) -> None:
        self.writer = RecordingClaimWriter()
        self.binder = ClaimBinder(FakeHandle(clock=AutoAdvanceClock()), self.writer)
        self.seen = self.writer.store(stored)

    @property
    def stored(self) -> ResourceClaim | None:
        """Return the claim as the API server stores it."""
        return self.writer.claims.get(self.seen.key)

    async def bind(self, allocation: AllocationResult | None) -> ResourceClaim:
        """Bind the claim as the scheduler read it."""
        return await self.binder.bind(consumer_of(USER), self.seen, allocation)


def allocation(device: str = "d") -> AllocationResult:
    return present(allocated_claim({"device": device}).status.allocation)


def reserved(of: ResourceClaim, *consumers: ClaimConsumer) -> ResourceClaim:
    """Return the claim with consumers in reservedFor."""
    return replace(of, status=replace(of.status, reserved_for=consumers))


async def test_a_new_allocation() -> None:
    """The finalizer is written first, then allocation, reservation and timestamp in one write."""
    world = World(claim())
    written = await world.bind(allocation())
    assert world.writer.calls == ["write_finalizers", "write_allocation"]
    assert world.stored == written
    assert written.metadata.finalizers == (DELETE_PROTECTION,)
    assert written.status.reserved_for == (THIS,)
    assert written.status.allocation == replace(allocation(), allocation_timestamp=NOW)


async def test_an_existing_allocation() -> None:
    """For an allocated claim, only the reservation is written."""
    world = World(reserved(allocated_claim({"device": "d"}), OTHER))
    written = await world.bind(None)
    assert world.writer.calls == ["write_reservation"]
    assert written.status.reserved_for == (OTHER, THIS)


async def test_a_member_of_the_gang_wrote_the_allocation() -> None:
    """An equal allocation is not written again."""
    world = World(reserved(allocated_claim({"device": "d"}), OTHER))
    await world.bind(allocation())
    assert world.writer.calls == ["write_reservation"]


async def test_a_conflict() -> None:
    """After a conflict the claim is read again, and the changes of other writers are preserved."""
    world = World(claim())
    world.writer.store(with_meta(claim(), annotations={"a": "b"}))
    written = await world.bind(allocation())
    assert world.writer.calls == ["write_finalizers", "read", "write_finalizers", "write_allocation"]
    assert written.metadata.annotations == {"a": "b"}


@table(
    "known, newer, chosen, message",
    (
        "allocated",
        claim(),
        allocated_claim({"device": "x"}, name="c0"),
        allocation(),
        "claim ns/c0 got allocated elsewhere in the meantime",
    ),
    (
        "deallocated",
        allocated_claim({"device": "d"}, name="c0"),
        claim(),
        None,
        "claim ns/c0 got deallocated elsewhere in the meantime",
    ),
    (
        "created again",
        claim(),
        with_meta(claim(), uid="uid-of-another"),
        allocation(),
        "claim ns/c0 got deleted in the meantime",
    ),
    (
        "being deleted",
        claim(),
        with_meta(claim(), deletion_timestamp=NOW),
        allocation(),
        "claim ns/c0 got deleted in the meantime",
    ),
)
async def test_a_claim_that_changed(
    known: ResourceClaim, newer: ResourceClaim, chosen: AllocationResult | None, message: str
) -> None:
    """The pod is not bound, and the claim of the other writer is unchanged."""
    world = World(known)
    changed = world.writer.store(newer)
    with pytest.raises(DeviceError) as caught:
        await world.bind(chosen)
    assert str(caught.value) == message
    assert world.stored == changed


async def test_a_deleted_claim() -> None:
    """If the claim is deleted before the retry, the error names the claim."""
    world = World(claim())
    world.writer.failures.append(CONFLICT)
    del world.writer.claims[world.seen.key]
    with pytest.raises(DeviceError, match="get updated claim ns/c0 after conflict"):
        await world.bind(allocation())


async def test_repeated_conflicts() -> None:
    """After five conflicts, the last one is raised."""
    world = World(claim())
    world.writer.failures += [CONFLICT] * 5
    with pytest.raises(ConflictError):
        await world.bind(allocation())
    assert world.writer.calls.count("write_finalizers") == 5


async def test_a_failed_write() -> None:
    """An error that proves that the write had no effect is not retried."""
    world = World(claim())
    world.writer.failures.append(ForbiddenError("no"))
    with pytest.raises(ForbiddenError):
        await world.bind(allocation())
    assert world.writer.calls == ["write_finalizers"]


@dataclass
class LostResponseWriter(RecordingClaimWriter):
    """Writer that stores allocations, and loses the responses to the first ones."""

    lost: list[ClusterWriteError] = field(default_factory=list)

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        """Write the allocation, and raise the next error of ``lost``, if any."""
        written = await super().write_allocation(claim)
        if self.lost:
            raise self.lost.pop(0)
        return written


@pytest.mark.parametrize("error", [WriteTimeoutError("no answer"), ServerUnavailableError("leader changed")])
async def test_a_write_with_a_lost_response(error: ClusterWriteError) -> None:
    """The claim is read again; an allocation that was written is used and not written twice."""
    world = World(claim())
    world.writer = LostResponseWriter(world.writer.claims, lost=[error])
    world.binder = ClaimBinder(FakeHandle(clock=AutoAdvanceClock()), world.writer)
    written = await world.bind(allocation())
    assert world.writer.calls == ["write_finalizers", "write_allocation", "read"]
    assert world.stored == written
    assert written.status.reserved_for == (THIS,)


@dataclass
class DeletedOnceWritten(LostResponseWriter):
    """Writer that sets the deletion timestamp of a claim after its allocation."""

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        """Write the allocation and set the deletion timestamp."""
        try:
            return await super().write_allocation(claim)
        finally:
            self.store(with_meta(self.claims[claim.key], deletion_timestamp=NOW))


async def test_a_claim_that_is_being_deleted_uses_its_devices() -> None:
    """After a lost response, the devices of the claim that is read are in use before the watch reports it."""
    world = World(claim())
    handle = FakeHandle(clock=AutoAdvanceClock())
    world.writer = DeletedOnceWritten(world.writer.claims, lost=[WriteTimeoutError("no answer")])
    world.binder = ClaimBinder(handle, world.writer)
    handle.nodes.devices.assign(world.seen)
    with pytest.raises(DeviceError, match="got deleted in the meantime"):
        await world.bind(allocation())
    assert handle.nodes.devices.claims.get("ns/c0") == world.stored
    assert handle.nodes.devices.hardware.allocated.usage((DRIVER, "n0")) is not None


async def test_deallocation() -> None:
    """After a conflict, the deallocation is retried if no other pod uses the claim."""
    world = World(reserved(allocated_claim({"device": "d"}), THIS))
    world.writer.store(with_meta(world.seen, annotations={"a": "b"}))
    await world.binder.deallocate(world.seen, USER)
    assert world.writer.calls == ["deallocate", "read", "deallocate"]
    assert world.stored is not None
    assert world.stored.status.allocation is None


@table(
    "newer",
    ("used by another pod", reserved(allocated_claim({"device": "d"}), OTHER)),
    ("deallocated", claim(name="held")),
    ("created again", with_meta(allocated_claim({"device": "d"}), uid="uid-of-another")),
)
async def test_deallocation_is_no_longer_needed(newer: ResourceClaim) -> None:
    """The newer claim is not changed."""
    world = World(allocated_claim({"device": "d"}))
    changed = world.writer.store(newer)
    await world.binder.deallocate(world.seen, USER)
    assert world.stored == changed


@table("failures", ("no conflict", []), ("after a conflict", [CONFLICT]))
async def test_deletion(failures: list[ClusterWriteError]) -> None:
    """The scheduler's finalizer is removed before the deletion; a conflict is retried."""
    world = World(with_meta(claim(), finalizers=(DELETE_PROTECTION, "other")))
    world.writer.failures += failures
    await world.binder.delete(world.seen)
    assert world.stored is None
    assert world.writer.calls[-2:] == ["write_finalizers", "delete"]


async def test_deletion_of_a_deleted_claim() -> None:
    """Deleting a missing claim is not an error, before or after a conflict."""
    world = World(with_meta(claim(), finalizers=(DELETE_PROTECTION,)))
    del world.writer.claims[world.seen.key]
    await world.binder.delete(world.seen)
    world.writer.failures.append(CONFLICT)
    await world.binder.delete(world.seen)
    assert world.writer.calls == ["write_finalizers", "write_finalizers", "read"]


async def test_a_claim_cannot_be_created() -> None:
    """The error states that the claim is for extended resources."""
    world = World(claim())
    world.writer.failures.append(ServerUnavailableError("away"))
    with pytest.raises(DeviceError, match="create claim for extended resources ns/c0: away"):
        await world.binder.create(world.seen)


async def test_mappings() -> None:
    """Mappings are written with the name of the claim; empty mappings are an error, as in kube-scheduler."""
    world = World(claim())
    mappings = (ExtendedResourceRequest("main", "example.com/gpu", "container-0-request-0"),)
    await world.binder.write_mappings(USER, mappings, world.seen)
    assert world.writer.extended["ns/p"].resource_claim_name == "c0"
    assert world.writer.extended["ns/p"].request_mappings == mappings
    with pytest.raises(DeviceError, match="nil or empty request mappings, no update of pod ns/p"):
        await world.binder.write_mappings(USER, (), world.seen)
