"""Event loop with virtual time: the time advances only when no task is runnable.

A virtual clock would not suffice, because parts of the operator use ``asyncio.sleep`` and ``asyncio.timeout``. Tasks
are numbered and hash by their number, so that a set of tasks has the same order in every run.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import random
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler_core.ports import Timer

_MAXIMUM_ROUNDS = 200_000
"""Maximum number of loop iterations without time passing; a healthy run needs some hundreds."""
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PROCESS: ContextVar[int] = ContextVar("PROCESS", default=0)
"""Number of the operator process that a task belongs to; 0 for all others. A task inherits it from its creator."""


class StalledError(Exception):
    """The run is stuck: no task is runnable and no timer is set, or tasks run without time passing."""


class NumberedTask(asyncio.Task[Any]):
    """Task with a number and the number of its operator process."""

    def __init__(self, number: int, coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number
        context: Context | None = options.get("context")
        self.process = PROCESS.get() if context is None else context.get(PROCESS, 0)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class _NoFiles:
    """Replacement of the selector: waiting advances the virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._seen = 0.0
        self._rounds = 0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise StalledError("every task waits for another; a timer or a response was lost")
        self._loop.virtual_now += max(0.0, timeout)
        self._rounds = self._rounds + 1 if self._loop.virtual_now == self._seen else 0
        self._seen = self._loop.virtual_now
        if self._rounds > _MAXIMUM_ROUNDS:
            raise StalledError("the loop runs but time does not pass; a timer or task reschedules itself without delay")
        return []

    def close(self) -> None:
        """Do nothing: no file is open."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop with virtual time.

    Attributes:
        virtual_now: Seconds since the start.
    """

    def __init__(self) -> None:
        super().__init__()
        self.virtual_now = 0.0
        self._selector = _NoFiles(self)
        self._numbers = itertools.count(1)
        self._tasks: list[NumberedTask] = []
        self.set_task_factory(self._make_task)
        self.slow_callback_duration = float("inf")

    def time(self) -> float:
        """Return virtual seconds."""
        return self.virtual_now

    def tasks_of(self, process: int) -> list[NumberedTask]:
        """Return the unfinished tasks of an operator process, oldest first."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return [task for task in self._tasks if task.process == process]

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        context: Context | None = None,
    ) -> NumberedTask:
        task = NumberedTask(next(self._numbers), coro, loop=loop, context=context)
        self._tasks.append(task)
        if task.number % 1024 == 0:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def _process_events(self, event_list: list[object]) -> None:
        """Do nothing: without files there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: no thread waits in a selector."""


@contextmanager
def virtual_time(seed: int) -> Iterator[VirtualLoop]:
    """Make a virtual loop the current one, without logs, and seed the global random generator.

    The operator's retries take their jitter from that generator.
    """
    random.seed(seed)
    logging.disable(logging.CRITICAL)
    collects = gc.isenabled()
    gc.disable()  # a run creates little garbage; collecting it would take a third of the time
    loop = VirtualLoop()
    try:
        asyncio.set_event_loop(loop)
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        if collects:
            gc.enable()
        logging.disable(logging.NOTSET)


class _NoTimer:
    """Timer of a clock whose loop is closed; it never fires."""

    def cancel(self) -> None:
        """Do nothing."""


class LoopClock:
    """Clock of one operator process on the loop's time; implements :class:`scheduler_core.ports.Clock`.

    Args:
        loop: Event loop with virtual time.
        seconds_per_read: Time that passes with each read of the clock, as on a slow processor. With 0, a slice of
            cycles never reaches its time limit.

    Attributes:
        is_dead: Whether the process was killed, so that none of its timers fires.
    """

    def __init__(self, loop: VirtualLoop, seconds_per_read: float = 0.0) -> None:
        self._loop = loop
        self._seconds_per_read = seconds_per_read
        self.is_dead = False

    def now(self) -> float:
        """Return virtual seconds since the start."""
        self._loop.virtual_now += self._seconds_per_read
        return self._loop.virtual_now

    def wall(self) -> datetime:
        """Return the date and time of :meth:`now`, UTC."""
        return _EPOCH + timedelta(seconds=self._loop.virtual_now)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` after ``seconds`` unless the process is killed; a closed loop never calls it."""
        if self._loop.is_closed():
            return _NoTimer()
        return self._loop.call_later(max(0.0, seconds), self._call, callback)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; 0 lets other tasks run once."""
        await asyncio.sleep(max(0.0, seconds))

    def _call(self, callback: Callable[[], None]) -> None:
        if not self.is_dead:
            callback()
