"""An attempt while the reservation of the failed previous attempt is still being removed in the background."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    ForbiddenError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import Status
from scheduler_core.model.devices import ClaimConsumer, ResourceClaim, ResourceClaimStatus
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.background import until
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.devices import DRIVER, allocated_claim, using
from tests.support.handles import FakeHandle
from tests.support.injected_errors import raising
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.tables import table
from tests.support.virtual_clock import AutoAdvanceClock

USER = using(pod("p", namespace="ns", uid="uid-of-p"), "held")
THIS = ClaimConsumer("pods", "p", "uid-of-p")


@dataclass
class SlowWriter(RecordingClaimWriter):
    """Writer that waits with the end of reservations until a test sets the event ``gate``."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def end_reservation(self, claim: ResourceClaim, consumer_uid: str) -> ResourceClaim:
        """Wait for the gate, then remove the consumer or raise the next failure."""
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await super().end_reservation(claim, consumer_uid)


class World:
    """A pod that is scheduled to node ``n0``, with a claim that is allocated and reserved for it."""

    def __init__(self) -> None:
        self.writer = SlowWriter()
        nodes = columns([node("n0")])
        reserved = allocated_claim({"device": "d"})
        reserved = replace(reserved, status=replace(reserved.status, reserved_for=(THIS,)))
        nodes.devices.assign(self.writer.store(reserved))
        self.nodes = nodes
        self.info = nodes.compile_pod(USER)
        self.plugin = DynamicResources(
            None, FakeHandle(nodes=nodes, claim_writer=self.writer, clock=AutoAdvanceClock())
        )

    def attempt(self) -> CycleState:
        """Run the extension points up to Reserve."""
        state = CycleState()
        assert self.plugin.pre_filter(state, self.info, self.nodes).status.is_success
        self.plugin.filter(state, self.info, self.nodes, ALL_ROWS)
        assert self.plugin.reserve(state, self.info, "n0").is_success
        return state

    def change(self, status: ResourceClaimStatus) -> None:
        """Change the status of the claim in the API server and in the index."""
        self.nodes.devices.assign(self.writer.store(replace(self.writer.claims["ns/held"], status=status)))

    async def pre_bind(self, state: CycleState) -> Status:
        """Run PreBind."""
        return await self.plugin.pre_bind(state, self.info, "n0")


@table(
    "failures, removed",
    ("removed", [], True),
    ("removed later", [ServerUnavailableError("away"), ServerUnavailableError("away")], True),
    ("not removed", [ForbiddenError("no")], False),
)
async def test_the_next_attempt_reserves_the_claim(failures: list[ClusterWriteError], removed: bool) -> None:
    """PreBind waits for the removal and then reserves the claim, even if the removal failed."""
    world = World()
    world.plugin.unreserve(world.attempt(), world.info, "n0")
    world.writer.failures += failures
    binding = asyncio.ensure_future(world.pre_bind(world.attempt()))
    await asyncio.sleep(0)
    assert world.writer.calls == []
    world.writer.gate.set()
    await until(binding.done)
    assert binding.result().is_success
    assert world.writer.claims["ns/held"].status.reserved_for == (THIS,)
    assert ("write_reservation" in world.writer.calls) is removed


@table(
    "failures, left",
    ("a conflict", [ConflictError("changed")], ()),
    ("a conflict after a lost response", [WriteTimeoutError("slow"), ConflictError("changed")], ()),
    ("repeated conflicts", [ConflictError("changed")] * 5, (THIS,)),
    ("rejected", [ForbiddenError("no")], (THIS,)),
)
async def test_the_index_equals_the_server(failures: list[ClusterWriteError], left: tuple[ClaimConsumer, ...]) -> None:
    """A removal is repeated after conflicts; if it is rejected, the index has the reservation again."""
    world = World()
    world.writer.failures += failures
    world.plugin.unreserve(world.attempt(), world.info, "n0")
    claims = world.nodes.devices.claims
    dropped = present(claims.get("ns/held"))
    assert dropped.status.reserved_for == ()
    world.writer.gate.set()
    await world.nodes.devices.turns.finished([dropped])
    stored = present(claims.get("ns/held"))
    assert stored.status.reserved_for == world.writer.claims["ns/held"].status.reserved_for == left


LOST_ALLOCATIONS = table(
    "status, verb",
    ("deallocated", ResourceClaimStatus(), "deallocated"),
    ("allocated again by another pod", allocated_claim({"device": "other"}).status, "allocated"),
)
"""Status of a claim that another writer changed, and the verb in the error message."""


@LOST_ALLOCATIONS
async def test_a_claim_that_lost_its_allocation_during_pre_bind_is_not_bound(
    status: ResourceClaimStatus, verb: str
) -> None:
    """PreBind fails if the deallocation of an earlier attempt ends while it waits."""
    world = World()
    world.plugin.unreserve(world.attempt(), world.info, "n0")
    state = world.attempt()
    stored = world.writer.claims["ns/held"]
    world.writer.store(replace(stored, status=status))
    world.writer.gate.set()
    result = await world.pre_bind(state)
    assert result.message == f"claim ns/held got {verb} elsewhere in the meantime"
    assert world.writer.claims["ns/held"].status.reserved_for == ()


@LOST_ALLOCATIONS
async def test_a_claim_that_lost_its_allocation_before_pre_bind_is_not_bound(
    status: ResourceClaimStatus, verb: str
) -> None:
    """PreBind fails if the deallocation of an earlier attempt ends between PreFilter and PreBind."""
    world = World()
    state = world.attempt()
    world.change(status)
    result = await world.pre_bind(state)
    assert result.message == f"claim ns/held got {verb} elsewhere in the meantime"
    assert world.writer.calls == []


async def test_a_reservation_that_ended_before_pre_bind_is_written_again() -> None:
    """The claim is reserved again if the newest version, unlike that of PreFilter, is not reserved for the pod."""
    world = World()
    state = world.attempt()
    world.change(allocated_claim({"device": "d"}).status)
    assert (await world.pre_bind(state)).is_success
    assert world.writer.claims["ns/held"].status.reserved_for == (THIS,)


@table("method, is_written", ("before the write", "write_reservation", False), ("after it", "claim_written", True))
async def test_an_exception_beside_the_write_of_a_reservation(
    method: str, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unreserve ends a reservation that is written although PreBind fails with an exception."""
    world = World()
    world.writer.gate.set()
    world.change(allocated_claim({"device": "d"}).status)
    state, devices = world.attempt(), world.nodes.devices
    owner: object = devices if is_written else world.writer
    errors: list[BaseException] = [KeyError("once")]
    monkeypatch.setattr(owner, method, raising(errors, getattr(owner, method)))
    with pytest.raises(KeyError):
        await world.pre_bind(state)
    assert world.writer.claims["ns/held"].status.reserved_for == ((THIS,) if is_written else ())
    world.plugin.unreserve(state, world.info, "n0")
    await devices.turns.finished([present(devices.claims.get("ns/held"))])
    stored = present(devices.claims.get("ns/held"))
    assert stored.status.reserved_for == world.writer.claims["ns/held"].status.reserved_for == ()
    assert stored.status.allocation is not None


async def test_a_claim_that_was_deleted_before_pre_bind_is_not_bound() -> None:
    """PreBind fails if the claim is deleted after PreFilter."""
    world = World()
    state = world.attempt()
    world.nodes.devices.remove(world.writer.claims["ns/held"])
    assert (await world.pre_bind(state)).message == "claim ns/held got deleted in the meantime"


async def test_a_cancelled_attempt_does_not_remove_its_reservation() -> None:
    """The reservation remains when the process stops, because the bind may be in progress."""
    world = World()
    world.writer.gate.set()
    state = world.attempt()

    async def bind() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            world.plugin.unreserve(state, world.info, "n0")
            raise

    binding = asyncio.ensure_future(bind())
    await asyncio.sleep(0)
    binding.cancel()
    await until(binding.done)
    await asyncio.sleep(0)
    assert world.writer.calls == []
    assert world.writer.claims["ns/held"].status.reserved_for == (THIS,)


def test_a_write_response_after_the_deletion() -> None:
    """After the watch has reported its deletion, a claim is not stored again and uses no devices."""
    devices = DeviceIndex()
    deleted = allocated_claim({"device": "d"})
    devices.assign(deleted)
    devices.remove(deleted)
    devices.claim_written(deleted)
    assert devices.claims.get("ns/held") is None
    assert devices.hardware.allocated.usage((DRIVER, "n0")) is None
