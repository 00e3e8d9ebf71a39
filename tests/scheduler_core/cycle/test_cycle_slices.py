"""Slices of a scheduling cycle: the event loop runs between them, and the cycle is suspended until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from scheduler_core.cycle.journal import Journal
from scheduler_core.cycle.suspension import CycleSlices, Suspension
from scheduler_core.errors import AttemptLimitError
from scheduler_core.step_counter import StepCounter
from tests.support.virtual_clock import VirtualClock

SLICE = 10


class Interrupted:
    """A scheduling loop in slices, and what another task sees between them."""

    def __init__(self) -> None:
        self.steps = StepCounter(SLICE, attempt_steps=100, dry_run_steps=30)
        self.suspension = Suspension()
        self.slices = CycleSlices(self.steps, self.suspension, VirtualClock(), Journal())
        self.seen: list[bool] = []
        self.applied: list[int] = []

    async def run(self, loop: Coroutine[Any, Any, Any]) -> Any:
        """Run a loop beside another task."""
        other = asyncio.create_task(self._other())
        try:
            return await self.slices.run(loop)
        finally:
            other.cancel()

    async def _other(self) -> None:
        while True:
            self.seen.append(self.suspension.is_on)
            self.suspension.run_or_defer(self.applied.append, len(self.seen))
            await asyncio.sleep(0)

    def cycle(self, steps: int) -> int:
        """Run a cycle that takes a number of steps, deep below the loop; return what was applied during it."""
        before = len(self.applied)
        try:
            self._spend(steps)
            return len(self.applied) - before
        finally:
            self.slices.cycle_ended()

    def _spend(self, steps: int) -> None:
        for _ in range(steps):
            self.steps.spend()


async def test_other_tasks_run_between_slices_and_their_changes_wait() -> None:
    """A cycle of 35 steps is interrupted three times; what is reported meanwhile is applied when it ends, in order."""
    world = Interrupted()

    async def loop() -> int:
        return world.cycle(35)

    assert await world.run(loop()) == 0
    assert world.seen == [True] * 3
    assert world.applied == [1, 2, 3]
    assert not world.suspension.is_on


async def test_a_change_that_uses_up_a_slice_does_not_suspend_permanently() -> None:
    """A deferred change may take steps, too: when the cycle has ended, nothing is deferred any more."""
    world = Interrupted()
    late: list[bool] = []

    def change() -> None:
        world._spend(SLICE + 1)
        late.append(True)

    async def loop() -> None:
        world.suspension.begin()
        world.slices.has_suspended = True
        world.suspension.run_or_defer(change)
        world.cycle(0)
        assert not world.suspension.is_on
        await world.suspension.over()

    await world.run(loop())
    assert late == [True]
    assert len(world.applied) == len(world.seen)


async def test_the_end_of_a_cycle_is_repeated_if_it_raises() -> None:
    """The scheduling loop calls it twice; changes after the one that failed are applied, and tasks go on."""
    world = Interrupted()

    def fail() -> None:
        raise ValueError("broken")

    world.suspension.begin()
    world.slices.has_suspended = True
    world.suspension.on_error = fail
    world.suspension.run_or_defer(fail)
    world.suspension.run_or_defer(world.applied.append, 1)
    with pytest.raises(ValueError, match="broken"):
        world.slices.cycle_ended()
    world.slices.cycle_ended()
    assert world.applied == [1]
    assert not world.slices.has_suspended
    await asyncio.wait_for(world.suspension.over(), 1)


async def test_a_short_cycle_is_not_suspended() -> None:
    """Cycles within one slice, with an await between them, neither suspend nor yield."""
    world = Interrupted()

    async def loop() -> None:
        for _ in range(3):
            world.cycle(SLICE // 4)
            assert not world.suspension.is_on
            await asyncio.sleep(0)

    await world.run(loop())
    assert True not in world.seen


async def test_a_cancellation_is_raised_in_the_cycle() -> None:
    """A task that is cancelled between two slices unwinds the cycle, and its suspension ends."""
    world = Interrupted()
    unwound: list[str] = []

    async def loop() -> None:
        try:
            world.cycle(1_000)
        finally:
            unwound.append("cycle")

    task = asyncio.create_task(world.run(loop()))
    for _ in range(3):
        await asyncio.sleep(0)
    assert world.suspension.is_on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert unwound == ["cycle"]
    assert not world.suspension.is_on


async def test_an_error_of_the_cycle_reaches_the_task() -> None:
    """An exception in a later slice is raised to the task that awaits the loop."""
    world = Interrupted()

    async def loop() -> None:
        world.cycle(25)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await world.run(loop())


async def test_the_limit_of_an_attempt_does_not_depend_on_slices() -> None:
    """An attempt ends with the step behind its limit, in slices and without."""
    counts = []
    for in_slices in (True, False):
        world = Interrupted()

        async def loop(world: Interrupted = world) -> None:
            with world.steps.live_attempt(), pytest.raises(AttemptLimitError, match="after 100 steps"):
                world.cycle(1_000)

        await (world.run(loop()) if in_slices else loop())
        counts.append(world.steps.spent)
    assert counts == [101, 101]


def test_a_dry_run_within_another_one_has_no_limit_of_its_own() -> None:
    """Nested dry runs share a limit; behind the outer one there is none, and the next one starts at 0."""
    steps = StepCounter(SLICE, dry_run_steps=30)
    for _ in range(2):
        with steps.dry_run():
            assert steps.is_dry
            with steps.dry_run():
                steps.spend(30)
            with pytest.raises(AttemptLimitError):
                steps.spend()
        assert not steps.is_dry
    steps.spend(1_000)


def test_upkeep_ends_slices_but_is_not_charged() -> None:
    """Steps of upkeep use up the slice, not the attempt."""
    steps = StepCounter(SLICE, attempt_steps=5)
    ended: list[int] = []
    steps.on_slice_end = lambda: ended.append(steps.spent)
    with steps.live_attempt():
        for _ in range(25):
            steps.upkeep()
        steps.spend(5)
    assert ended == [0, 0, 5]


@pytest.mark.parametrize(("pods", "limit"), [(0, 600), (1, 600), (2, 606), (101, 1200)])
def test_each_member_of_a_gang_raises_the_limit_a_little(pods: int, limit: int) -> None:
    """A gang has the steps of one pod, and a hundredth of them for each further member."""
    steps = StepCounter(attempt_steps=600)
    with steps.live_attempt(pods):
        steps.spend(limit)
        with pytest.raises(AttemptLimitError, match=f"after {limit} steps"):
            steps.spend()
