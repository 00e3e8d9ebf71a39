"""Tests of the garbage collector's pause during a start."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest
from bayplan.process.collector_pause import CollectorPause


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    """Undo what a test turned off or froze."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()
    gc.unfreeze()


class WatchedLoop(asyncio.SelectorEventLoop):
    """A loop that records its timers."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[asyncio.TimerHandle] = []

    def call_at(self, *arguments: object, **more: object) -> asyncio.TimerHandle:
        """Record the timer."""
        self.timers.append(super().call_at(*arguments, **more))  # type: ignore[arg-type]  # as the loop's own
        return self.timers[-1]


def begun(what_follows: Callable[[CollectorPause], None]) -> list[asyncio.TimerHandle]:
    """Begin a pause and do something with it; return the loop's timers."""
    pause = CollectorPause()

    async def run() -> None:
        pause.begin()
        what_follows(pause)

    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(run())
        loop = runner.get_loop()
        assert isinstance(loop, WatchedLoop)
        return loop.timers


def test_a_pause_turns_the_collector_off() -> None:
    """No collection runs while the first lists arrive."""
    begun(lambda _: None)
    assert not gc.isenabled()


@pytest.mark.parametrize(
    "what_ends_it",
    [pytest.param(CollectorPause.freeze, id="lists are complete"), pytest.param(CollectorPause.end, id="a stop")],
)
def test_what_ends_a_pause_turns_the_collector_on(what_ends_it: Callable[[CollectorPause], None]) -> None:
    """The collector is off no longer than the start takes, and no timer is left behind."""
    timers = begun(what_ends_it)
    assert (gc.isenabled(), [timer.cancelled() for timer in timers]) == (True, [True])


def test_a_pause_that_takes_too_long_ends_by_itself() -> None:
    """A process that waits for an API server must not run without a collector forever."""
    (timer,) = begun(lambda _: None)
    timer._run()
    assert gc.isenabled()


def test_frozen_objects_are_not_collected() -> None:
    """Full collections do not walk what a start has listed."""
    listed = [[number] for number in range(10)]
    begun(CollectorPause.freeze)
    assert not [each for each in gc.get_objects() if any(each is one for one in listed)]


def test_after_a_freeze_the_collector_runs_less_often() -> None:
    """Most of what a burst of pods allocates is freed without it."""
    before = gc.get_threshold()[0]
    begun(CollectorPause.freeze)
    assert gc.get_threshold()[0] > before
