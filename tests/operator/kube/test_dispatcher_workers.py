"""Tests of the dispatcher's workers: task reuse, and that no sendable write is left waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, DispatcherOptions, ObjectKey, Rank, Write
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import ForbiddenError, ServerUnavailableError
from tests.support.virtual_clock import VirtualClock


class Traced(Write):
    """Write that records the task that executes it.

    Attributes:
        errors: Raised by the next attempts, one each.
        waits: Whether the write yields to the loop, as it does when it waits for a response.
    """

    def __init__(
        self, tasks: list[asyncio.Task[None] | None], name: str, rank: Rank = Rank.EVENT, *, waits: bool = True
    ) -> None:
        super().__init__(key(name), rank, 3)
        self.tasks = tasks
        self.errors: list[Exception] = []
        self.waits = waits

    async def carry_out(self) -> None:
        self.tasks.append(asyncio.current_task())
        if self.waits:
            await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)


def key(name: str) -> ObjectKey:
    return ("Event", "n", name, "")


async def settle() -> None:
    """Run every task that is ready."""
    for _ in range(40):
        await asyncio.sleep(0)


@pytest.mark.parametrize("workers", [1, 3])
async def test_a_worker_continues_with_the_next(workers: int) -> None:
    """A burst of writes uses as many tasks as there are workers, not as many as there are writes."""
    dispatcher = ApiDispatcher(DispatcherOptions(workers=workers), VirtualClock(), lambda: False)
    tasks: list[asyncio.Task[None] | None] = []
    for n in range(12):
        dispatcher.submit(Traced(tasks, str(n)))
    await settle()
    assert (dispatcher.written, len(tasks), len(set(tasks))) == (12, 12, workers)
    await dispatcher.close()


async def test_consecutive_failures_yield_to_other_tasks() -> None:
    """Writes that fail without waiting, for example for a missing right, do not block the loop."""
    dispatcher = ApiDispatcher(DispatcherOptions(workers=1), VirtualClock(), lambda: False)
    tasks: list[asyncio.Task[None] | None] = []
    for n in range(12):
        write = Traced(tasks, str(n), waits=False)
        write.errors.append(ForbiddenError("no"))
        dispatcher.submit(write)
    await settle()
    assert (dispatcher.given_up, len(set(tasks))) == (12, 12)
    await dispatcher.close()


async def test_writes_queued_by_a_write_use_all_workers() -> None:
    """Writes that arrive while all workers are busy are spread over all workers."""
    dispatcher = ApiDispatcher(DispatcherOptions(workers=2), VirtualClock(), lambda: False)
    tasks: list[asyncio.Task[None] | None] = []

    class Spawning(Traced):
        """Write that queues more writes when it ends."""

        def ended(self, error: Exception | None) -> None:
            for name in "bcd":
                dispatcher.submit(Traced(tasks, name))

    dispatcher.submit(Spawning(tasks, "a"))
    await settle()
    assert (dispatcher.written, len(set(tasks))) == (4, 2)
    await dispatcher.close()


STEPS = ("event", "deletion", "patch", "failing", "hold", "tick", "long", *("press", "release", "turn") * 3)


@given(st.lists(st.sampled_from(STEPS), max_size=40), st.sampled_from([1, 2, 8]), st.sampled_from([3, 1000]))
def test_no_sendable_write_is_left_waiting(steps: Sequence[str], workers: int, burst: int) -> None:
    """After any sequence of events, pump() finds no write that could be sent."""
    asyncio.run(_run_steps(steps, workers, burst))


async def _run_steps(steps: Sequence[str], workers: int, burst: int) -> None:
    clock, presses, holds = VirtualClock(), False, 0
    options = DispatcherOptions(workers=workers, event_burst=burst, events_per_second=2.0, max_events=6)
    dispatcher = ApiDispatcher(options, clock, lambda: presses)
    tasks: list[asyncio.Task[None] | None] = []
    for n, step in enumerate(steps):
        if step == "event":
            dispatcher.submit(Traced(tasks, str(n)))
        elif step == "failing":
            write = Traced(tasks, str(n))
            write.errors.append(ServerUnavailableError("away"))
            dispatcher.submit(write)
        elif step == "deletion":
            dispatcher.submit(Traced(tasks, "pod", Rank.DELETION))
        elif step == "patch":
            dispatcher.submit(Traced(tasks, "pod", Rank.PATCH))
        elif step == "press":
            presses = True
        elif step == "hold":
            await asyncio.wait_for(dispatcher.hold(key("pod")), 5)
            holds += 1
        elif step == "release":
            # The end of a bind ends the bind backlog.
            presses = False
            await dispatcher.hold(key("pod"))
            dispatcher.release(key("pod"), bound=n % 2 == 0)
            if holds:
                holds -= 1
                dispatcher.release(key("pod"), bound=False)
        elif step in ("tick", "long"):
            clock.advance(0.3 if step == "tick" else 3.0)
        if step != "turn":
            continue
        await settle()
        begun = len(tasks)
        dispatcher.pump()
        await settle()
        assert len(tasks) == begun, step
    for _ in range(holds):
        dispatcher.release(key("pod"), bound=False)
    presses = False
    await dispatcher.hold(key("other"))
    dispatcher.release(key("other"), bound=True)
    for _ in range(60):
        await settle()
        clock.advance(2.0)
    assert (dispatcher.queued, dispatcher.in_flight) == (0, 0)
    await dispatcher.close()
