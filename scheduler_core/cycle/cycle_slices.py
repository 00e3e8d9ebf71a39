"""Slices of a long scheduling cycle, between which the event loop runs.

The code of a cycle is synchronous. It runs in a greenlet, which switches back to the task of the scheduling loop when a
slice is used up (:mod:`scheduler_core.step_counter`). From then on the cycle is suspended, as one that waits for an
extender (:mod:`scheduler_core.cycle.suspension`): nothing that it reads changes, so its decisions are those of a cycle
that is not interrupted.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import greenlet

from scheduler_core.cycle.journal import Journal
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.ports import Clock
from scheduler_core.step_counter import StepCounter

T = TypeVar("T")

_SLICE_OVER = object()


class CycleSlices:
    """Interrupts the scheduling loop within a cycle whenever a slice is used up.

    Args:
        suspension: Defers changes from the end of the first slice to the end of the cycle.

    Attributes:
        has_suspended: Whether the cycle in progress was interrupted, so that :meth:`cycle_ended` must be called.
    """

    def __init__(self, steps: StepCounter, suspension: Suspension, clock: Clock, journal: Journal) -> None:
        self._steps = steps
        self._suspension = suspension
        self._clock = clock
        self._journal = journal
        self.has_suspended = False

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
