"""Suspension of a scheduling cycle while it waits for an extender, or between its slices.

Meanwhile nothing may change the state that the cycle reads, such as columns and nominations::

    running ──begin──▶ suspended (changes buffered in order, binding tasks wait) ──end──▶ running, changes applied

Changes that only requeue pods (backoff timers, activation, profile swaps) are not buffered, because a cycle does not
read the queue.
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
    """State of the suspension, and the changes buffered until it ends.

    Attributes:
        is_on: Whether a cycle is suspended now: no state that cycles read may change, and no dry run may start.
        is_midway: Whether the cycle is between two slices, perhaps within a dry run: columns may be hypothetical.
        waiting_tasks: Tasks that wait in :meth:`over`, or have not run since the suspension ended.
        reported: Number of changes that were applied.
        failed: Number of exceptions that interrupted a change.
        on_error: Called if a change that is reported now is buffered and fails when it is applied; None for nothing.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.is_midway = False
        self.reported = self.failed = 0
        self.on_error: Callable[[], None] | None = None
        self._deferred: deque[tuple[Callable[[], None], Callable[[], None] | None]] = deque()
        self._afterwards: deque[Callable[[], None]] = deque()
        self._over = asyncio.Event()
        self.waiting_tasks = 0

    def run_or_defer(self, take: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call a function at once, or after the suspended cycle and all calls buffered before."""
        if self.is_on:
            # Cheaper than a copy of the columns for each cycle, because extenders respond within seconds.
            self._deferred.append((partial(take, *args, **kwargs), self.on_error))
        else:
            self.reported += 1
            try:
                take(*args, **kwargs)
            except Exception:
                # Only counted here; the caller handles it.
                self.failed += 1
                raise

    def run_afterwards(self, act: Callable[[], None]) -> None:
        """Call a function at once, or when the suspended cycle has ended and all buffered changes are applied."""
        if self.is_on:
            self._afterwards.append(act)
        else:
            act()

    @contextmanager
    def of_cycle(self) -> Iterator[None]:
        """Suspend other changes for a cycle that may await; apply the buffered changes on exit, even after an error."""
        self.begin()
        try:
            yield
        finally:
            try:
                self.end()
            except Exception:
                # Without its end nothing would change any more.
                log.exception("the end of a suspended cycle failed; it is repeated")
                self.end()

    async def over(self) -> None:
        """Wait until no cycle is suspended; the caller continues before another cycle can be suspended."""
        while self.is_on:
            self.waiting_tasks += 1
            try:
                await self._over.wait()
            finally:
                self.waiting_tasks -= 1

    async def readable(self) -> None:
        """Wait until no cycle is midway; the caller may read columns until it awaits."""
        if self.is_midway:
            await self.over()

    def begin(self) -> None:
        """Buffer changes from now on."""
        self.is_on = True
        self._over.clear()

    def end(self) -> None:
        """Apply the buffered changes."""
        # First, because a change may report others, which are then applied at once.
        self.is_on = False
        while self._deferred:
            take, on_error = self._deferred.popleft()
            self.reported += 1
            try:
                take()
            except Exception:
                # The changes after it are of other objects, and must be applied in their order.
                log.exception("a change that arrived while a cycle was suspended could not be applied; it is repeated")
                self.failed += 1
                self._repeat(take, on_error)
        while self._afterwards:
            act = self._afterwards.popleft()
            try:
                act()
            except Exception:
                # The others must be done all the same, and without the end nothing would change any more.
                log.exception("what a suspended cycle has decided could not be done; please report it")
                self.failed += 1
        if not self.is_on:
            # A change may have used up a slice of the cycle, which suspends again.
            self._over.set()

    def _repeat(self, take: Callable[[], None], on_error: Callable[[], None] | None) -> None:
        try:
            take()
        except Exception:
            log.exception("a change that arrived while a cycle was suspended could not be applied; please report it")
            if on_error is not None:
                on_error()
