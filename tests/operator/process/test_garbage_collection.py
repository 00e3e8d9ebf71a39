"""Tests of the pause of garbage collection during a start."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bayplan.process.garbage_collection import CollectorPause, import_without_gc

from tests.support.tables import table


@pytest.fixture(autouse=True)
def restore_collector() -> Iterator[None]:
    """Restore the thresholds of the garbage collector after a test; frozen objects stay frozen, as all tests are."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


class WatchedLoop(asyncio.SelectorEventLoop):
    """Event loop that records its timers."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[asyncio.TimerHandle] = []

    def call_at(self, *arguments: object, **more: object) -> asyncio.TimerHandle:
        """Record the timer."""
        self.timers.append(super().call_at(*arguments, **more))  # type: ignore[arg-type]  # as the loop's own
        return self.timers[-1]


def begin_pause(action: Callable[[CollectorPause], None]) -> list[asyncio.TimerHandle]:
    """Begin a pause, apply an action to it, and return the loop's timers."""
    pause = CollectorPause()

    async def run() -> None:
        pause.begin()
        action(pause)

    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(run())
        loop = runner.get_loop()
        assert isinstance(loop, WatchedLoop)
        return loop.timers


def test_a_pause_turns_the_collector_off() -> None:
    """A pause disables the collector."""
    begin_pause(lambda _: None)
    assert not gc.isenabled()


@table("end_pause", ("lists are complete", CollectorPause.freeze), ("stop", CollectorPause.end))
def test_the_end_of_a_pause_enables_the_collector(end_pause: Callable[[CollectorPause], None]) -> None:
    """The end of a pause enables the collector and cancels its timer."""
    timers = begin_pause(end_pause)
    assert (gc.isenabled(), [timer.cancelled() for timer in timers]) == (True, [True])


def test_a_pause_ends_by_its_timer() -> None:
    """A pause that takes too long ends by its timer."""
    (timer,) = begin_pause(lambda _: None)
    timer._run()
    assert gc.isenabled()


def test_frozen_objects_are_not_collected() -> None:
    """A freeze excludes listed objects from full collections."""
    listed = [[number] for number in range(10)]
    begin_pause(CollectorPause.freeze)
    assert not [each for each in gc.get_objects() if any(each is one for one in listed)]


def test_after_a_freeze_the_collector_runs_less_often() -> None:
    """A freeze raises the threshold of the collector."""
    before = gc.get_threshold()[0]
    begin_pause(CollectorPause.freeze)
    assert gc.get_threshold()[0] > before


NAME = "a_module_of_this_test"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path of a module that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / f"{NAME}.py"
    sys.modules.pop(NAME, None)
    gc.enable()


def test_the_collector_is_off_while_a_module_is_imported(module: Path) -> None:
    """The collector is disabled while a module is imported."""
    module.write_text("import gc\nwas_enabled = gc.isenabled()\n")
    assert (import_without_gc(NAME).was_enabled, gc.isenabled()) == (False, True)


def test_objects_of_an_imported_module_are_frozen(module: Path) -> None:
    """Objects that a module allocates on import are frozen."""
    module.write_text("nested = [[]]\n")
    nested = import_without_gc(NAME).nested
    assert not [each for each in gc.get_objects() if each is nested]


@table("was_enabled", ("on", True), ("off", False))
def test_a_failed_import_restores_the_collector(module: Path, was_enabled: bool) -> None:
    """A failed import restores the previous state of the collector."""
    module.write_text("raise RuntimeError\n")
    (gc.enable if was_enabled else gc.disable)()
    with pytest.raises(RuntimeError):
        import_without_gc(NAME)
    assert gc.isenabled() is was_enabled


def test_an_already_imported_module_is_not_frozen_again() -> None:
    """A second import of a module freezes nothing."""
    before = gc.get_freeze_count()
    assert (import_without_gc("sys"), gc.get_freeze_count()) == (sys, before)
