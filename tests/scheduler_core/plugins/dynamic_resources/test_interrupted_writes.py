"""Allocations whose write outlasts PreBind: the devices stay in use until the outcome of the write is known."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from scheduler_core.errors import ClusterWriteError, ForbiddenError, ServerUnavailableError, WriteTimeoutError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.background import until
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.devices import claim, device, device_class, exactly, slice_of, using
from tests.support.handles import FakeHandle
from tests.support.injected_errors import raising
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.tables import table
from tests.support.virtual_clock import AutoAdvanceClock

_UNUSED_COROUTINES = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
"""An exception at the call that receives a coroutine leaves the coroutine unused."""

USER = using(pod("p", namespace="ns", uid="uid-of-p"), "c0")


@dataclass
class SlowWriter(RecordingClaimWriter):
    """Writer that waits with allocations, and fails reads, until a test sets the events."""

    writes: asyncio.Event = field(default_factory=asyncio.Event)
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        await self.writes.wait()
        return await super().write_allocation(claim)

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        if not self.reads.is_set():
            raise ServerUnavailableError("away")
        return await super().read(claim)


class World:
    """A pod in PreBind with the only device of node ``n0``; its claim is not written yet."""

    def __init__(self) -> None:
        self.writer = SlowWriter()
        nodes = columns([node("n0")])
        for each in (device_class(), slice_of([device("d")]), self.writer.store(claim(exactly("r")))):
            nodes.devices.assign(each)
        self.devices = nodes.devices
        self.info = nodes.compile_pod(USER)
        self.handle = FakeHandle(nodes=nodes, claim_writer=self.writer, clock=AutoAdvanceClock())
        self.plugin = DynamicResources(None, self.handle)
        self.state = CycleState()
        assert self.plugin.pre_filter(self.state, self.info, nodes).status.is_success
        self.plugin.filter(self.state, self.info, nodes, ALL_ROWS)
        assert self.plugin.reserve(self.state, self.info, "n0").is_success

    def other_pod_gets_the_device(self) -> bool:
        """Return whether the device can be allocated to another pod's claim."""
        nodes = self.handle.nodes
        nodes.devices.assign(claim(exactly("r"), name="c1"))
        info = nodes.compile_pod(using(pod("other", namespace="ns"), "c1"))
        state = CycleState()
        assert self.plugin.pre_filter(state, info, nodes).status.is_success
        codes = self.plugin.filter(state, info, nodes, ALL_ROWS)
        return codes is None or not codes.any()

    async def interrupted(self) -> None:
        """Cancel PreBind while the allocation is written, and undo the reservation."""
        binding = asyncio.ensure_future(self.plugin.pre_bind(self.state, self.info, "n0"))
        await until(lambda: "write_finalizers" in self.writer.calls)
        await asyncio.sleep(0)
        binding.cancel()
        await until(binding.done)
        self.plugin.unreserve(self.state, self.info, "n0")


def assert_written_without_reservation(world: World) -> None:
    stored = world.writer.claims["ns/c0"]
    assert stored.status.allocation is not None
    assert stored.status.reserved_for == ()
    assert not world.other_pod_gets_the_device()
    assert world.devices.in_flight("c0") is None


async def test_a_write_that_takes_effect_after_the_end_of_its_attempt() -> None:
    """The device stays in use by the written allocation, and the reservation is removed for the next attempt."""
    world = World()
    await world.interrupted()
    assert not world.other_pod_gets_the_device()
    world.writer.writes.set()
    await until(lambda: world.handle.activated == [world.info])
    assert_written_without_reservation(world)


async def test_a_write_that_fails_after_the_end_of_its_attempt() -> None:
    """The device is free when the write has failed."""
    world = World()
    await world.interrupted()
    world.writer.failures.append(ForbiddenError("no"))
    assert not world.other_pod_gets_the_device()
    world.writer.writes.set()
    await until(lambda: world.handle.activated == [world.info])
    assert world.other_pod_gets_the_device()


@pytest.mark.parametrize("problem", [WriteTimeoutError("late"), ServerUnavailableError("away")])
@table("is_written", ("written", True), ("not written", False))
async def test_a_write_with_an_unknown_outcome(problem: ClusterWriteError, is_written: bool) -> None:
    """PreBind fails, and the device stays in use until the claim can be read."""
    world = World()
    world.writer.writes.set()
    world.writer.failures += [problem]
    status = await world.plugin.pre_bind(world.state, world.info, "n0")
    assert not status.is_success
    world.plugin.unreserve(world.state, world.info, "n0")
    assert not world.other_pod_gets_the_device()
    if is_written:
        in_flight = present(world.devices.in_flight("c0"))
        stored = world.writer.claims["ns/c0"]
        world.writer.store(replace(stored, status=replace(stored.status, allocation=in_flight.allocation)))
    world.writer.reads.set()
    await until(lambda: world.handle.activated == [world.info])
    assert world.other_pod_gets_the_device() is not is_written


async def _one_error(world: World, owner: object, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run PreBind and Unreserve of an allocation that is written, with an exception at a call of PreBind."""
    world.writer.writes.set()
    world.writer.reads.set()
    errors: list[BaseException] = [KeyError("once")]
    monkeypatch.setattr(owner, method, raising(errors, getattr(owner, method)))
    with suppress(KeyError):
        assert not (await world.plugin.pre_bind(world.state, world.info, "n0")).is_success
    assert not errors
    world.plugin.unreserve(world.state, world.info, "n0")


@pytest.mark.parametrize("method", ["claim_written", "end_allocation"])
async def test_an_exception_after_the_write(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device stays in use, the allocation is no longer in flight, and the pod's written reservation is removed."""
    world = World()
    await _one_error(world, world.devices, method, monkeypatch)
    assert not world.other_pod_gets_the_device()
    await until(lambda: world.handle.activated == [world.info])
    assert_written_without_reservation(world)


@_UNUSED_COROUTINES
@pytest.mark.parametrize("method", ["spawn", "begin_allocation"])
async def test_an_exception_before_the_write(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and the device is free."""
    world = World()
    owner = world.handle if method == "spawn" else world.devices
    await _one_error(world, owner, method, monkeypatch)
    assert "write_allocation" not in world.writer.calls
    assert world.devices.in_flight("c0") is None
    assert world.other_pod_gets_the_device()


@_UNUSED_COROUTINES
async def test_an_exception_when_the_outcome_is_to_be_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreserve is called once more and settles the outcome; meanwhile no other pod gets the device."""
    world = World()
    start = raising([KeyError("once")], world.devices.turns.start)
    monkeypatch.setattr(world.devices.turns, "start", start)
    with pytest.raises(KeyError):
        await world.interrupted()
    assert not world.other_pod_gets_the_device()
    world.plugin.unreserve(world.state, world.info, "n0")
    world.writer.writes.set()
    await until(lambda: world.handle.activated == [world.info])
    assert world.devices.in_flight("c0") is None


def test_an_exception_when_consumers_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreserve is called once more and drops them; a full claim would reject other pods permanently."""
    world = World()
    monkeypatch.setattr(world.devices, "drop_consumer", raising([KeyError("once")], world.devices.drop_consumer))
    with pytest.raises(KeyError):
        world.plugin.unreserve(world.state, world.info, "n0")
    world.plugin.unreserve(world.state, world.info, "n0")
    assert not world.devices._assumed_consumers
