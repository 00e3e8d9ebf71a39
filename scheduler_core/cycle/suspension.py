"""The time in which a scheduling cycle waits for an extender's answer.

Owns what must not happen meanwhile: changes of the columns, the nominations and the other things that the waiting cycle
has read and will read on. Must not know who waits, or for what::

    running ──begin──▶ suspended (reports are kept, in order; binding tasks wait) ──end──▶ running, reports taken

Why reports are kept rather than the cluster copied: an extender answers within seconds, and a copy of the columns at
each cycle would cost more than all the reports of that time. What only wakes pods (backoff timers, activation, the swap
of a profile) goes on: a cycle does not read what other pods wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec

log = logging.getLogger(__name__)

P = ParamSpec("P")


class Suspension:
    """Whether a cycle is suspended, and what waits for its end.

    Attributes:
        is_on: Whether a cycle is suspended now: nothing that cycles read may change, and none may be tried out.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._kept: deque[Callable[[], None]] = deque()
        self._over = asyncio.Event()
        self._waiting = 0

    @property
    def is_awaited(self) -> bool:
        """Whether tasks wait in :meth:`over`, or have not run since the end that they waited for."""
        return self._waiting > 0

    def report(self, take: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Take a report at once, or when the suspended cycle is over, after all that came before it."""
        if self.is_on:
            self._kept.append(partial(take, *args, **kwargs))
        else:
            take(*args, **kwargs)

    @contextmanager
    def of_cycle(self) -> Iterator[None]:
        """A cycle that may wait; when the block ends, however it does, all reports of its time are taken."""
        self.is_on = True
        self._over.clear()
        try:
            yield
        finally:
            self._end()

    async def over(self) -> None:
        """Wait until no cycle is suspended; what follows runs before another one can be."""
        while self.is_on:
            self._waiting += 1
            try:
                await self._over.wait()
            finally:
                self._waiting -= 1

    def _end(self) -> None:
        self.is_on = False
        while self._kept:
            take = self._kept.popleft()
            try:
                take()
            except Exception:
                log.exception("a change that came while a cycle was suspended could not be taken; please report it")
        self._over.set()
