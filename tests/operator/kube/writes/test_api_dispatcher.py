"""Tests of the dispatcher's queue: order, merging, retries, bounds, and yielding to binds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, DispatcherOptions
from bayplan.kube.writes.queued_write import ObjectKey, Rank, Write, WriteDroppedError

from scheduler_core.errors import ForbiddenError, ServerUnavailableError
from tests.support.virtual_clock import VirtualClock


class Log:
    """The executed writes in order, and how each write ended."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.ended: dict[str, Exception | None] = {}
        self.on_wire: set[str] = set()
        self.failures: dict[str, list[Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}


class Noted(Write):
    """A write whose effect is a text; merging joins the texts."""

    def __init__(self, log: Log, text: str, name: str = "", rank: Rank = Rank.PATCH, tries: int | None = None) -> None:
        super().__init__(key(name or text), rank, tries)
        self.log = log
        self.text = text
        self.merges = rank is Rank.PATCH

    def absorb(self, later: Write) -> bool:
        if not isinstance(later, Noted) or not self.merges or not later.merges:
            return False
        self.text = f"{self.text}+{later.text}"
        return True

    async def carry_out(self) -> None:
        log = self.log
        log.on_wire.add(self.text)
        try:
            if (gate := log.gates.get(self.text)) is not None:
                await gate.wait()
            if failures := log.failures.get(self.text):
                raise failures.pop(0)
            log.done.append(self.text)
        finally:
            log.on_wire.discard(self.text)

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
    """Makes dispatchers and closes them."""
    made: list[ApiDispatcher] = []

    def make(**options: float) -> ApiDispatcher:
        made.append(ApiDispatcher(DispatcherOptions(**options), time, pressure))  # type: ignore[arg-type]  # names checked at run time
        return made[-1]

    yield make
    for dispatcher in made:
        await dispatcher.close()


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


Make = Callable[..., ApiDispatcher]


async def test_one_write_of_an_object_at_a_time(make: Make, log: Log) -> None:
    """Writes of one object keep their order; those queued behind one in flight are merged into one."""
    dispatcher = make()
    log.gates["1"] = asyncio.Event()
    for text in "123":
        dispatcher.submit(Noted(log, text, "pod"))
    dispatcher.submit(Noted(log, "other"))
    await settle()
    assert log.done == ["other"]
    log.gates["1"].set()
    await settle()
    assert log.done == ["other", "1", "2+3"]
    assert (dispatcher.written, dispatcher.merged, dispatcher.queued) == (3, 1, 0)


async def test_workers_are_bounded(make: Make, log: Log) -> None:
    """No more writes than workers are in flight."""
    dispatcher = make(workers=2)
    for text in "abcd":
        log.gates[text] = asyncio.Event()
        dispatcher.submit(Noted(log, text))
    await settle()
    assert log.on_wire == {"a", "b"}
    for gate in log.gates.values():
        gate.set()
    await settle()
    assert sorted(log.done) == ["a", "b", "c", "d"]


async def test_deletions_before_patches_before_events(make: Make, log: Log) -> None:
    """When workers are scarce, deletions go first and events last."""
    dispatcher = make(workers=1)
    log.gates["first"] = asyncio.Event()
    dispatcher.submit(Noted(log, "first"))
    dispatcher.submit(Noted(log, "event", rank=Rank.EVENT))
    dispatcher.submit(Noted(log, "patch"))
    dispatcher.submit(Noted(log, "deletion", rank=Rank.DELETION))
    log.gates["first"].set()
    await settle()
    assert log.done == ["first", "deletion", "patch", "event"]


async def test_retry_merges_later_writes(make: Make, log: Log, time: VirtualClock) -> None:
    """A write that failed on the server waits, merges later ones, and is sent again as one."""
    dispatcher = make(retry_initial_seconds=1.0)
    log.failures["1"] = [ServerUnavailableError("away")]
    dispatcher.submit(Noted(log, "1", "pod"))
    await settle()
    dispatcher.submit(Noted(log, "2", "pod"))
    await settle()
    assert log.done == []
    time.advance(1.0)
    await settle()
    assert log.done == ["1+2"]
    assert (dispatcher.retried, dispatcher.given_up) == (1, 0)


async def test_attempts_are_limited(make: Make, log: Log, time: VirtualClock) -> None:
    """A write with limited attempts is given up after them, and gets the error."""
    dispatcher = make()
    log.failures["e"] = [ServerUnavailableError("away") for _ in range(5)]
    dispatcher.submit(Noted(log, "e", rank=Rank.EVENT, tries=3))
    for _ in range(5):
        await settle()
        time.advance(60.0)
    assert isinstance(log.ended["e"], ServerUnavailableError)
    assert (len(log.failures["e"]), dispatcher.given_up, dispatcher.retried) == (2, 1, 2)


async def test_refusals_are_not_retried(make: Make, log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """A forbidden write is given up at once, with a line in the log; the next write of the object is sent."""
    dispatcher = make()
    log.failures["1"] = [ForbiddenError("RBAC says no")]
    log.gates["1"] = asyncio.Event()
    dispatcher.submit(Noted(log, "1", "pod"))
    await settle()
    dispatcher.submit(Noted(log, "2", "pod"))
    log.gates["1"].set()
    await settle()
    assert log.done == ["2"]
    assert dispatcher.given_up == 1
    assert "RBAC says no" in caplog.text


async def test_oldest_events_are_dropped(make: Make, log: Log, pressure: Pressure) -> None:
    """Beyond the bound the oldest events are dropped; patches are never dropped for space."""
    dispatcher = make(max_events=3)
    pressure.on = True
    dispatcher.submit(Noted(log, "patch"))
    for n in range(5):
        dispatcher.submit(Noted(log, f"e{n}", rank=Rank.EVENT))
    assert dispatcher.dropped_events == 2
    assert isinstance(log.ended["e0"], WriteDroppedError)
    pressure.on = False
    dispatcher.pump()
    await settle()
    assert log.done == ["patch", "e2", "e3", "e4"]


async def test_events_are_rate_limited(make: Make, log: Log, time: VirtualClock) -> None:
    """Events beyond the burst follow at the rate."""
    dispatcher = make(events_per_second=2.0, event_burst=1)
    for n in range(3):
        dispatcher.submit(Noted(log, f"e{n}", rank=Rank.EVENT))
    await settle()
    assert log.done == ["e0"]
    time.advance(0.5)
    await settle()
    assert log.done == ["e0", "e1"]
    time.advance(0.5)
    await settle()
    assert log.done == ["e0", "e1", "e2"]


async def test_writes_yield_to_binds_for_a_while(make: Make, log: Log, time: VirtualClock, pressure: Pressure) -> None:
    """While many binds are pending, patches and events wait, deletions do not; after the longest delay they go."""
    dispatcher = make(defer_seconds=2.0, overdue_event_workers=1)
    pressure.on = True
    for n in range(3):
        dispatcher.submit(Noted(log, f"e{n}", rank=Rank.EVENT))
    dispatcher.submit(Noted(log, "patch"))
    dispatcher.submit(Noted(log, "deletion", rank=Rank.DELETION))
    await settle()
    assert log.done == ["deletion"]
    time.advance(1.9)
    await settle()
    assert log.done == ["deletion"]
    log.gates["e0"] = asyncio.Event()
    time.advance(0.2)
    await settle()
    assert log.done == ["deletion", "patch"]
    assert log.on_wire == {"e0"}  # overdue events share one worker
    log.gates["e0"].set()
    await settle()
    assert log.done == ["deletion", "patch", "e0", "e1", "e2"]


@pytest.mark.parametrize("tenths", range(1, 20))
async def test_times_that_do_not_add_up(
    make: Make, log: Log, time: VirtualClock, pressure: Pressure, tenths: int
) -> None:
    """A wait that rounds to just before its due time ends all the same, without a busy loop."""
    dispatcher = make(defer_seconds=0.3)
    pressure.on = True
    time.advance(tenths / 10)
    dispatcher.submit(Noted(log, "patch"))
    await settle()
    time.advance(0.302)
    await settle()
    assert log.done == ["patch"]


async def test_late_events_take_any_worker(make: Make, log: Log, time: VirtualClock, pressure: Pressure) -> None:
    """A permanent backlog of binds must not let the events of a slow server pile up."""
    dispatcher = make(defer_seconds=2.0, late_seconds=10.0, overdue_event_workers=1, workers=8)
    pressure.on = True
    for n in range(5):
        log.gates[f"e{n}"] = asyncio.Event()
        dispatcher.submit(Noted(log, f"e{n}", rank=Rank.EVENT))
    time.advance(2.1)
    await settle()
    assert log.on_wire == {"e0"}
    time.advance(8.0)
    await settle()
    assert log.on_wire == {"e0", "e1", "e2", "e3", "e4"}


async def test_binds_over_releases_the_rest(make: Make, log: Log, pressure: Pressure) -> None:
    """The end of the last pending bind sends what waited for it."""
    dispatcher = make()
    pressure.on = True
    await dispatcher.hold(key("bound"))
    dispatcher.submit(Noted(log, "e", rank=Rank.EVENT))
    await settle()
    assert log.done == []
    pressure.on = False
    dispatcher.release(key("bound"), bound=True)
    await settle()
    assert log.done == ["e"]


@pytest.mark.parametrize(
    ("bound", "done"),
    [pytest.param(True, [], id="bound-drops-them"), pytest.param(False, ["during"], id="not-bound-sends-them")],
)
async def test_patches_around_a_bind(make: Make, log: Log, pressure: Pressure, bound: bool, done: list[str]) -> None:
    """A bind drops the pod's queued patch and holds later ones until its outcome."""
    dispatcher = make()
    pressure.on = True
    dispatcher.submit(Noted(log, "before", "pod"))
    await dispatcher.hold(key("pod"))
    pressure.on = False
    dispatcher.submit(Noted(log, "during", "pod"))
    await settle()
    assert log.done == []
    dispatcher.release(key("pod"), bound=bound)
    await settle()
    assert log.done == done
    assert isinstance(log.ended["before"], WriteDroppedError)
    assert dispatcher.queued == 0


async def test_bind_waits_for_a_patch_on_the_wire(make: Make, log: Log) -> None:
    """A bind waits for the pod's patch in flight; one that then fails is not sent again."""
    dispatcher = make()
    log.gates["patch"] = asyncio.Event()
    log.failures["patch"] = [ServerUnavailableError("away")]
    dispatcher.submit(Noted(log, "patch", "pod"))
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
    dispatcher.submit(Noted(log, "patch", "pod"))
    dispatcher.submit(Noted(log, "deletion", "pod", Rank.DELETION))
    await settle()
    assert log.done == ["deletion"]
    dispatcher.release(key("pod"), bound=False)


async def test_drain_sends_everything(make: Make, log: Log, pressure: Pressure) -> None:
    """Draining no longer yields to binds and returns when all is written."""
    dispatcher = make()
    pressure.on = True
    for text in "abc":
        dispatcher.submit(Noted(log, text, rank=Rank.EVENT))
    await dispatcher.drain(5.0)
    assert log.done == ["a", "b", "c"]


async def test_close_reports_unwritten_writes(make: Make, log: Log) -> None:
    """Writes in flight, just started or queued at the end get the error that they were not written."""
    dispatcher = make(workers=2)
    log.gates["wire"] = asyncio.Event()
    dispatcher.submit(Noted(log, "wire", rank=Rank.DELETION))
    await settle()
    dispatcher.submit(Noted(log, "started", rank=Rank.DELETION))
    dispatcher.submit(Noted(log, "queued", rank=Rank.DELETION))
    await dispatcher.close()
    dispatcher.submit(Noted(log, "late", rank=Rank.DELETION))
    assert log.done == []
    assert {text: type(error) for text, error in log.ended.items()} == dict.fromkeys(
        ("wire", "started", "queued", "late"), WriteDroppedError
    )


async def test_cancelled_hold_can_be_released(make: Make, log: Log) -> None:
    """A bind that is cancelled while it waits leaves no hold behind."""
    dispatcher = make()
    log.gates["patch"] = asyncio.Event()
    dispatcher.submit(Noted(log, "patch", "pod"))
    await settle()
    hold = asyncio.create_task(dispatcher.hold(key("pod")))
    await settle()
    hold.cancel()
    with suppress(asyncio.CancelledError):
        await hold
    dispatcher.release(key("pod"), bound=False)
    dispatcher.submit(Noted(log, "next", "pod"))
    log.gates["patch"].set()
    await settle()
    assert log.done == ["patch", "next"]
