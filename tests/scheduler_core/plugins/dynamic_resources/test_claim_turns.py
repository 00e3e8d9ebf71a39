"""Several pods with one claim: their writes wait for each other, and one write reserves the claim for all of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from scheduler_core.errors import DeviceError, ForbiddenError, ServerUnavailableError
from scheduler_core.model.devices import MAX_CONSUMERS, ClaimConsumer, ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.dynamic_resources.claim_binding import ClaimBinder
from scheduler_core.plugins.dynamic_resources.pod_claims import consumer_of
from tests.support.background import until
from tests.support.builders import pod
from tests.support.columns import columns
from tests.support.devices import allocated_claim
from tests.support.handles import FakeHandle
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.tables import table
from tests.support.virtual_clock import AutoAdvanceClock

USERS = [pod(f"p{number}", namespace="ns", uid=f"uid-of-p{number}") for number in range(8)]
CONSUMERS = tuple(ClaimConsumer("pods", user.metadata.name, user.metadata.uid) for user in USERS)


@dataclass
class SlowWriter(RecordingClaimWriter):
    """Writer that waits with reservations until a test sets the event ``gate``."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def write_reservation(self, claim: ResourceClaim) -> ResourceClaim:
        await self.gate.wait()
        return await super().write_reservation(claim)


class World:
    """An allocated claim, and a binder for each of two profiles."""

    def __init__(self, *reserved: ClaimConsumer) -> None:
        self.writer = SlowWriter()
        self.nodes = columns([])
        stored = allocated_claim({"device": "d"})
        self.claim = self.writer.store(replace(stored, status=replace(stored.status, reserved_for=reserved)))
        self.nodes.devices.assign(self.claim)
        self.binders = [
            ClaimBinder(FakeHandle(nodes=self.nodes, clock=AutoAdvanceClock()), self.writer) for _ in range(2)
        ]

    def bind(self, user: Pod, claim: ResourceClaim | None = None) -> asyncio.Task[ResourceClaim]:
        """Start to reserve the claim for a pod, with the binder of its profile."""
        binder = self.binders[int(user.metadata.name[1:]) % 2]
        return asyncio.ensure_future(binder.bind(consumer_of(user), claim or self.claim, None))

    @property
    def indexed(self) -> ResourceClaim | None:
        """Return the claim in the index."""
        return self.nodes.devices.claims.get(self.claim.key)

    @property
    def stored(self) -> ResourceClaim:
        """Return the claim on the API server."""
        return self.writer.claims[self.claim.key]


async def test_many_pods_need_two_writes() -> None:
    """While the first write is in progress, the other pods wait; the second write reserves the claim for all."""
    world = World()
    first = world.bind(USERS[0])
    await asyncio.sleep(0)
    others = [world.bind(user) for user in USERS[1:]]
    await asyncio.sleep(0)
    world.writer.gate.set()
    written = await asyncio.gather(first, *others)
    assert world.writer.calls == ["write_reservation", "write_reservation"]
    assert world.stored.status.reserved_for == CONSUMERS
    assert all(each == world.stored for each in written[1:])
    assert world.indexed == world.stored


async def test_a_pod_that_no_longer_waits() -> None:
    """A claim is not reserved for a pod if its binding was cancelled."""
    world = World()
    first = world.bind(USERS[0])
    await asyncio.sleep(0)
    cancelled, other = world.bind(USERS[1]), world.bind(USERS[2])
    await asyncio.sleep(0)
    cancelled.cancel()
    await until(cancelled.done)
    world.writer.gate.set()
    await asyncio.gather(first, other)
    assert world.stored.status.reserved_for == (CONSUMERS[0], CONSUMERS[2])


async def test_a_failed_write_fails_one_pod() -> None:
    """The next pod writes for all pods that still wait."""
    world = World()
    world.writer.failures.append(ForbiddenError("no"))
    world.writer.gate.set()
    outcomes = await asyncio.gather(*(world.bind(user) for user in USERS[:3]), return_exceptions=True)
    assert isinstance(outcomes[0], ForbiddenError)
    assert {each.uid for each in world.stored.status.reserved_for} == {"uid-of-p1", "uid-of-p2"}


async def test_a_pod_that_relies_on_another_allocation() -> None:
    """The claim is not reserved for the pod, because its node may not reach the claim's current devices."""
    world = World()
    other = replace(allocated_claim({"device": "another"}), metadata=world.claim.metadata)
    first = world.bind(USERS[0])
    await asyncio.sleep(0)
    late = world.bind(USERS[1], other)
    await asyncio.sleep(0)
    world.writer.gate.set()
    await first
    with pytest.raises(DeviceError, match="claim ns/held got allocated elsewhere in the meantime"):
        await late
    assert world.stored.status.reserved_for == CONSUMERS[:1]


async def test_the_limit_of_reservations() -> None:
    """A write adds only as many consumers as the API server accepts."""
    others = tuple(ClaimConsumer("pods", f"o{number}", f"o{number}") for number in range(MAX_CONSUMERS - 2))
    world = World(*others)
    binding = [world.bind(user) for user in USERS[:3]]
    await asyncio.sleep(0)
    assert world.writer.calls == []
    world.writer.gate.set()
    counts = [len(each.status.reserved_for) for each in await asyncio.gather(*binding)]
    assert counts == [MAX_CONSUMERS - 1, MAX_CONSUMERS, MAX_CONSUMERS + 1]


async def test_a_deallocation_waits_for_its_turn() -> None:
    """A claim that is being reserved is not deallocated, because the reservation is a newer version."""
    world = World()
    reserving = world.bind(USERS[0])
    await asyncio.sleep(0)
    deallocating = asyncio.ensure_future(world.binders[1].deallocate(world.claim, USERS[1]))
    await asyncio.sleep(0)
    assert world.writer.calls == []
    world.writer.gate.set()
    await asyncio.gather(reserving, deallocating)
    assert world.stored.status.reserved_for == CONSUMERS[:1]


@table("failures", ("no failure", []), ("after an outage", [ServerUnavailableError("away")] * 7))
async def test_the_index_has_a_deallocation_immediately(failures: list[ServerUnavailableError]) -> None:
    """The index has the deallocated claim before the watch reports it, so that the next attempt does not use it."""
    world = World(CONSUMERS[0])
    world.writer.failures += failures
    await world.binders[0].deallocate(world.claim, USERS[0])
    assert world.indexed == world.stored
    assert world.stored.status == ResourceClaimStatus()


async def test_the_index_has_the_end_of_a_reservation_immediately() -> None:
    """A watch event of the previous version does not restore the reservation."""
    world = World(CONSUMERS[0])
    ending = asyncio.ensure_future(world.binders[0].end_reservation(world.claim, USERS[0]))
    world.nodes.devices.assign(world.claim)
    await ending
    assert world.indexed == world.stored
    assert world.stored.status.reserved_for == ()
