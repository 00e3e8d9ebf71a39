"""Slices of a long scheduling cycle, and its suspension between them or while it waits for an extender.

The code of a cycle is synchronous. It runs in a greenlet, which switches back to the task of the scheduling loop when a
slice is used up (:mod:`scheduler_core.step_counter`), so that the event loop runs.

While a cycle is suspended, nothing may change the state that it reads, such as columns and nominations, so that its
decisions are those of a cycle that is not interrupted::

    running ──begin──▶ suspended (changes buffered in order, binding tasks wait) ──end──▶ running, changes applied

Changes that only requeue pods (backoff timers, activation, profile swaps) are not buffered, because a cycle does not
read the queue.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

import greenlet

from scheduler_core.cycle.journal import Journal
from scheduler_core.ports import Clock
from scheduler_core.step_counter import StepCounter

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


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

    @contextmanager
    def reporting_later_errors(self, report: Callable[[], None]) -> Iterator[None]:
        """Call ``report``, too, if a change that is reported within the block is buffered and fails later."""
        outer = self.on_error

        def failed() -> None:
            report()
            if outer is not None:
                outer()

        self.on_error = failed
        try:
            yield
        finally:
            self.on_error = outer

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
            # The second exception of one change: its owner delivers it again, and the later changes are still applied.
            log.exception("a change that arrived while a cycle was suspended could not be applied; please report it")
            if on_error is not None:
                on_error()


# -- slices -----------------------------------------------------------------------------------------------------------


_SLICE_OVER = object()


@dataclass(slots=True, eq=False)
class CycleSlices:
    """Interrupts the scheduling loop within a cycle whenever a slice is used up.

    Changes are deferred from the end of the first slice to the end of the cycle.

    Attributes:
        has_suspended: Whether the cycle in progress was interrupted, so that :meth:`cycle_ended` must be called.
    """

    _steps: StepCounter
    _suspension: Suspension
    _clock: Clock
    _journal: Journal
    has_suspended: bool = False

    async def run(self, loop: Coroutine[Any, Any, T]) -> T:
        return await self._in_greenlet(loop)

    def cycle_ended(self) -> None:
        """Apply the changes that were deferred while the cycle was interrupted."""
        # A change that is applied here may use up a slice, which suspends again.
        while self.has_suspended:
            self.has_suspended = False
            try:
                self._suspension.end()
            except Exception:
                # Raised to the caller, which repeats this: without the end nothing would change any more.
                self.has_suspended = True
                raise

    @types.coroutine
    def _in_greenlet(self, loop: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        # Generators were the alternative: every function between the loop and the search for devices would have become
        # one. One greenlet for all cycles: a new one for each costs as much as a fifth of a short cycle.
        child = greenlet.greenlet(_advance)
        child.gr_context = greenlet.getcurrent().gr_context
        proceed: Callable[[Any], Any] = loop.send
        value: Any = None
        try:
            while True:
                awaited = self._switch(child.switch, proceed, value)
                while awaited is _SLICE_OVER:
                    try:
                        yield from self._between_slices().__await__()
                    except BaseException as fault:
                        # A cancellation between two slices is raised in the cycle, where the slice ended.
                        awaited = self._switch(child.throw, fault)
                    else:
                        awaited = self._switch(child.switch)
                try:
                    value = yield awaited
                except BaseException as fault:
                    proceed, value = loop.throw, fault
                else:
                    proceed = loop.send
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _between_slices(self) -> None:
        if not self._suspension.is_on:
            self._suspension.begin()
            self.has_suspended = True
        self._suspension.is_midway = True
        try:
            await self._journal.between_slices(self._clock.sleep(0))
        finally:
            self._suspension.is_midway = False

    def _switch(self, switch: Callable[..., Any], *value: Any) -> Any:
        """Run the loop until it awaits or ends, or until a slice is used up."""
        self._steps.on_slice_end = self._end_slice
        try:
            return switch(*value)
        finally:
            self._steps.on_slice_end = None

    def _end_slice(self) -> None:
        if self._journal.is_slice_over():
            parent = greenlet.getcurrent().parent
            assert parent is not None, "the scheduling loop runs in a greenlet of its own"
            parent.switch(_SLICE_OVER)


def _advance(proceed: Callable[[Any], Any], value: Any) -> None:
    """Continue the loop, and switch back with what it awaits; runs in the greenlet, which ends with the loop."""
    parent = greenlet.getcurrent().parent
    assert parent is not None, "the scheduling loop runs in a greenlet of its own"
    while True:
        proceed, value = parent.switch(proceed(value))
