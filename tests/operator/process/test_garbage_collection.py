"""Tests of the garbage collector's pause during a start."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bayplan.process.garbage_collection import CollectorPause, import_without_gc


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


NAME = "a_module_of_this_test"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path of a module that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / f"{NAME}.py"
    sys.modules.pop(NAME, None)
    gc.enable()
    gc.unfreeze()


def test_the_collector_is_off_while_a_module_is_imported(module: Path) -> None:
    """It would walk ever more objects that all stay."""
    module.write_text("import gc\nwas_on = gc.isenabled()\n")
    assert (import_without_gc(NAME).was_on, gc.isenabled()) == (False, True)


def test_the_collector_ignores_what_a_module_allocates(module: Path) -> None:
    """Modules are never garbage."""
    module.write_text("nested = [[]]\n")
    nested = import_without_gc(NAME).nested
    assert not [each for each in gc.get_objects() if each is nested]


@pytest.mark.parametrize("was_on", [pytest.param(True, id="on"), pytest.param(False, id="off")])
def test_a_module_that_cannot_be_imported_leaves_the_collector_as_it_was(module: Path, was_on: bool) -> None:
    """A plugin that fails must not leave the collector off, nor turn it on where it was off."""
    module.write_text("raise RuntimeError\n")
    (gc.enable if was_on else gc.disable)()
    with pytest.raises(RuntimeError):
        import_without_gc(NAME)
    assert gc.isenabled() is was_on


def test_an_imported_module_is_returned_as_it_is() -> None:
    """The second call imports nothing and freezes nothing."""
    before = gc.get_freeze_count()
    assert (import_without_gc("sys"), gc.get_freeze_count()) == (sys, before)
