"""Tests of the queue of ApiDispatcher: order, merging, retries, bounds, and yielding to binds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from bayplan.kube.writes.api_dispatcher import (
    ApiDispatcher,
    DispatcherOptions,
    ObjectKey,
    Rank,
    Write,
    WriteDroppedError,
)

from scheduler_core.errors import ForbiddenError, ServerUnavailableError
from tests.support.virtual_clock import VirtualClock


class Log:
    """Executed writes in order, and the outcome of each write."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.ended: dict[str, Exception | None] = {}
        self.in_flight: set[str] = set()
        self.failures: dict[str, list[Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}


class RecordedWrite(Write):
    """Write that records its text when it is executed; merging joins the texts."""

    def __init__(self, log: Log, text: str, name: str = "", rank: Rank = Rank.PATCH, tries: int | None = None) -> None:
        super().__init__(key(name or text), rank, tries)
        self.log = log
        self.text = text
        self.merges = rank is Rank.PATCH

    def absorb(self, later: Write) -> bool:
        if not isinstance(later, RecordedWrite) or not self.merges or not later.merges:
            return False
        self.text = f"{self.text}+{later.text}"
        return True

    async def carry_out(self) -> None:
        log = self.log
        log.in_flight.add(self.text)
        try:
            if (gate := log.gates.get(self.text)) is not None:
                await gate.wait()
            if failures := log.failures.get(self.text):
                raise failures.pop(0)
            log.done.append(self.text)
        finally:
            log.in_flight.discard(self.text)

    def ended(self, error: Exception | None) -> None:
        self.log.ended[self.text] = error


def key(name: str) -> ObjectKey:
    return ("Pod", "n", name, "uid")


class Pressure:
    """Whether many binds are pending."""

    def __init__(self) -> None:
        self.on = False

    def __call__(self) -> bool:
        return self.on


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def time() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def pressure() -> Pressure:
    return Pressure()


@pytest.fixture
async def make(time: VirtualClock, pressure: Pressure) -> AsyncIterator[Callable[..., ApiDispatcher]]:
    """Return a factory of dispatchers that are closed after the test."""
    made: list[ApiDispatcher] = []

    def make(**options: float) -> ApiDispatcher:
        made.append(ApiDispatcher(DispatcherOptions(**options), time, pressure))  # type: ignore[arg-type]  # names checked at run time
        return made[-1]

    yield make
    for dispatcher in made:
        await dispatcher.close()


async def settle() -> None:
    """Run every task that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


Make = Callable[..., ApiDispatcher]


async def test_writes_of_one_object_keep_their_order(make: Make, log: Log) -> None:
    """Writes of one object keep their order; writes queued behind one in flight are merged into one."""
    dispatcher = make()
    log.gates["1"] = asyncio.Event()
    for text in "123":
        dispatcher.submit(RecordedWrite(log, text, "pod"))
    dispatcher.submit(RecordedWrite(log, "other"))
    await settle()
    assert log.done == ["other"]
    log.gates["1"].set()
    await settle()
    assert log.done == ["other", "1", "2+3"]
    assert (dispatcher.written, dispatcher.merged, dispatcher.queued) == (3, 1, 0)


async def test_deletions_before_patches_before_events(make: Make, log: Log) -> None:
    """When workers are scarce, deletions are sent first and events last."""
    dispatcher = make(workers=1)
    log.gates["first"] = asyncio.Event()
    dispatcher.submit(RecordedWrite(log, "first"))
    dispatcher.submit(RecordedWrite(log, "event", rank=Rank.EVENT))
    dispatcher.submit(RecordedWrite(log, "patch"))
    dispatcher.submit(RecordedWrite(log, "deletion", rank=Rank.DELETION))
    log.gates["first"].set()
    await settle()
    assert log.done == ["first", "deletion", "patch", "event"]


async def test_retry_merges_later_writes(make: Make, log: Log, time: VirtualClock) -> None:
    """A write that failed on the server waits, merges later writes, and is sent again as one write."""
    dispatcher = make(retry_initial_seconds=1.0)
    log.failures["1"] = [ServerUnavailableError("away")]
    dispatcher.submit(RecordedWrite(log, "1", "pod"))
    await settle()
    dispatcher.submit(RecordedWrite(log, "2", "pod"))
    await settle()
    assert log.done == []
    time.advance(1.0)
    await settle()
    assert log.done == ["1+2"]
    assert (dispatcher.retried, dispatcher.given_up) == (1, 0)


async def test_attempts_are_limited(make: Make, log: Log, time: VirtualClock) -> None:
    """A write with limited attempts is given up after its last attempt and gets the error."""
    dispatcher = make()
    log.failures["e"] = [ServerUnavailableError("away") for _ in range(5)]
    dispatcher.submit(RecordedWrite(log, "e", rank=Rank.EVENT, tries=3))
    for _ in range(5):
        await settle()
        time.advance(60.0)
    assert isinstance(log.ended["e"], ServerUnavailableError)
    assert (len(log.failures["e"]), dispatcher.given_up, dispatcher.retried) == (2, 1, 2)


async def test_forbidden_writes_are_not_retried(make: Make, log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """A forbidden write is logged and given up at once, and the next write of the object is sent."""
    dispatcher = make()
    log.failures["1"] = [ForbiddenError("RBAC says no")]
    log.gates["1"] = asyncio.Event()
    dispatcher.submit(RecordedWrite(log, "1", "pod"))
    await settle()
    dispatcher.submit(RecordedWrite(log, "2", "pod"))
    log.gates["1"].set()
    await settle()
    assert log.done == ["2"]
    assert dispatcher.given_up == 1
    assert "RBAC says no" in caplog.text


async def test_oldest_events_are_dropped(make: Make, log: Log, pressure: Pressure) -> None:
    """Beyond the bound the oldest events are dropped; patches are never dropped for space."""
    dispatcher = make(max_events=3)
    pressure.on = True
    dispatcher.submit(RecordedWrite(log, "patch"))
    for n in range(5):
        dispatcher.submit(RecordedWrite(log, f"e{n}", rank=Rank.EVENT))
    assert dispatcher.dropped_events == 2
    assert isinstance(log.ended["e0"], WriteDroppedError)
    pressure.on = False
    dispatcher.pump()
    await settle()
    assert log.done == ["patch", "e2", "e3", "e4"]


async def test_events_are_rate_limited(make: Make, log: Log, time: VirtualClock) -> None:
    """Events beyond the burst are sent at the configured rate."""
    dispatcher = make(events_per_second=2.0, event_burst=1)
    for n in range(3):
        dispatcher.submit(RecordedWrite(log, f"e{n}", rank=Rank.EVENT))
    await settle()
    assert log.done == ["e0"]
    time.advance(0.5)
    await settle()
    assert log.done == ["e0", "e1"]
    time.advance(0.5)
    await settle()
    assert log.done == ["e0", "e1", "e2"]


async def test_writes_yield_to_binds_for_a_while(make: Make, log: Log, time: VirtualClock, pressure: Pressure) -> None:
    """While many binds are pending, patches and events wait up to the longest delay; deletions do not wait."""
    dispatcher = make(defer_seconds=2.0, overdue_event_workers=1)
    pressure.on = True
    for n in range(3):
        dispatcher.submit(RecordedWrite(log, f"e{n}", rank=Rank.EVENT))
    dispatcher.submit(RecordedWrite(log, "patch"))
    dispatcher.submit(RecordedWrite(log, "deletion", rank=Rank.DELETION))
    await settle()
    assert log.done == ["deletion"]
    time.advance(1.9)
    await settle()
    assert log.done == ["deletion"]
    log.gates["e0"] = asyncio.Event()
    time.advance(0.2)
    await settle()
    assert log.done == ["deletion", "patch"]
    assert log.in_flight == {"e0"}  # overdue events share one worker
    log.gates["e0"].set()
    await settle()
    assert log.done == ["deletion", "patch", "e0", "e1", "e2"]


@pytest.mark.parametrize("tenths", range(1, 20))
async def test_a_rounded_wait_ends(make: Make, log: Log, time: VirtualClock, pressure: Pressure, tenths: int) -> None:
    """A wait that rounds to just before its due time ends without a busy loop."""
    dispatcher = make(defer_seconds=0.3)
    pressure.on = True
    time.advance(tenths / 10)
    dispatcher.submit(RecordedWrite(log, "patch"))
    await settle()
    time.advance(0.302)
    await settle()
    assert log.done == ["patch"]


async def test_late_events_take_any_worker(make: Make, log: Log, time: VirtualClock, pressure: Pressure) -> None:
    """Late events use all workers, so a permanent backlog of binds does not delay them without limit."""
    dispatcher = make(defer_seconds=2.0, late_seconds=10.0, overdue_event_workers=1, workers=8)
    pressure.on = True
    for n in range(5):
        log.gates[f"e{n}"] = asyncio.Event()
        dispatcher.submit(RecordedWrite(log, f"e{n}", rank=Rank.EVENT))
    time.advance(2.1)
    await settle()
    assert log.in_flight == {"e0"}
    time.advance(8.0)
    await settle()
    assert log.in_flight == {"e0", "e1", "e2", "e3", "e4"}


async def test_the_end_of_the_last_bind_releases_writes(make: Make, log: Log, pressure: Pressure) -> None:
    """When the last pending bind ends, the writes that waited for it are sent."""
    dispatcher = make()
    pressure.on = True
    await dispatcher.hold(key("bound"))
    dispatcher.submit(RecordedWrite(log, "e", rank=Rank.EVENT))
    await settle()
    assert log.done == []
    pressure.on = False
    dispatcher.release(key("bound"), bound=True)
    await settle()
    assert log.done == ["e"]


async def test_a_patch_that_outlives_the_bind(make: Make, log: Log, pressure: Pressure) -> None:
    """A condition that a bind does not make obsolete is sent after it, but not after a deletion."""
    dispatcher = make()
    pressure.on = True
    for name in ("bound", "deleted"):
        write = RecordedWrite(log, f"patch of {name}", name)
        write.outlives_bind = True
        dispatcher.submit(write)
    await dispatcher.hold(key("bound"))
    dispatcher.submit(RecordedWrite(log, "deletion", "deleted", Rank.DELETION))
    pressure.on = False
    await settle()
    assert "patch of bound" not in log.done
    dispatcher.release(key("bound"), bound=True)
    await settle()
    assert sorted(log.done) == ["deletion", "patch of bound"]


async def test_bind_waits_for_a_patch_in_flight(make: Make, log: Log) -> None:
    """A bind waits for the pod's patch in flight, and the patch is not sent again if it fails."""
    dispatcher = make()
    log.gates["patch"] = asyncio.Event()
    log.failures["patch"] = [ServerUnavailableError("away")]
    dispatcher.submit(RecordedWrite(log, "patch", "pod"))
    await settle()
    hold = asyncio.create_task(dispatcher.hold(key("pod")))
    await settle()
    assert not hold.done()
    log.gates["patch"].set()
    await settle()
    assert hold.done()
    assert dispatcher.queued == 0
    dispatcher.release(key("pod"), bound=True)


async def test_deletion_does_not_wait_for_a_bind(make: Make, log: Log) -> None:
    """A deletion replaces the pod's queued patches and is sent although its bind is in flight."""
    dispatcher = make()
    await dispatcher.hold(key("pod"))
    dispatcher.submit(RecordedWrite(log, "patch", "pod"))
    dispatcher.submit(RecordedWrite(log, "deletion", "pod", Rank.DELETION))
    await settle()
    assert log.done == ["deletion"]
    dispatcher.release(key("pod"), bound=False)


async def test_drain_sends_everything(make: Make, log: Log, pressure: Pressure) -> None:
    """Draining stops yielding to binds and returns when all writes are sent."""
    dispatcher = make()
    pressure.on = True
    for text in "abc":
        dispatcher.submit(RecordedWrite(log, text, rank=Rank.EVENT))
    await dispatcher.drain(5.0)
    assert log.done == ["a", "b", "c"]


async def test_close_reports_unwritten_writes(make: Make, log: Log) -> None:
    """On close, writes in flight, just started or queued end with WriteDroppedError."""
    dispatcher = make(workers=2)
    log.gates["wire"] = asyncio.Event()
    dispatcher.submit(RecordedWrite(log, "wire", rank=Rank.DELETION))
    await settle()
    dispatcher.submit(RecordedWrite(log, "started", rank=Rank.DELETION))
    dispatcher.submit(RecordedWrite(log, "queued", rank=Rank.DELETION))
    await dispatcher.close()
    dispatcher.submit(RecordedWrite(log, "late", rank=Rank.DELETION))
    assert log.done == []
    assert {text: type(error) for text, error in log.ended.items()} == dict.fromkeys(
        ("wire", "started", "queued", "late"), WriteDroppedError
    )


async def test_cancelled_hold_can_be_released(make: Make, log: Log) -> None:
    """A bind that is cancelled while it waits leaves no hold behind."""
    dispatcher = make()
    log.gates["patch"] = asyncio.Event()
    dispatcher.submit(RecordedWrite(log, "patch", "pod"))
    await settle()
    hold = asyncio.create_task(dispatcher.hold(key("pod")))
    await settle()
    hold.cancel()
    with suppress(asyncio.CancelledError):
        await hold
    dispatcher.release(key("pod"), bound=False)
    dispatcher.submit(RecordedWrite(log, "next", "pod"))
    log.gates["patch"].set()
    await settle()
    assert log.done == ["patch", "next"]
