"""The times by which many things must have happened, under one timer.

Owns the deadlines of futures. It must not know what they stand for. Why not a timer each: nearly every request is
answered long before its time, and to set and cancel a timer for it costs more than all that is done here. The timer
stays set when nothing is watched any more, and finds nothing to do.
"""

from __future__ import annotations

import asyncio
from typing import Any

_TICK_SECONDS = 0.001
"""A timer may run so much too early."""


class Deadlines:
    """Ends futures with a TimeoutError that are still open when their time has come."""

    __slots__ = ("_due", "_timer", "_times")

    def __init__(self) -> None:
        self._times: dict[asyncio.Future[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")

    def watch(self, future: asyncio.Future[Any], time: float) -> None:
        """Give a future until ``time``, as the running loop tells it."""
        self._times[future] = time
        if time < self._due:
            self._set(time)

    def forget(self, future: asyncio.Future[Any]) -> None:
        """Watch a future no more; harmless when it is not watched."""
        self._times.pop(future, None)

    def _set(self, time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = time
        self._timer = asyncio.get_running_loop().call_at(time, self._sweep)

    def _sweep(self) -> None:
        self._timer, self._due = None, float("inf")
        now = asyncio.get_running_loop().time() + _TICK_SECONDS
        for future in [future for future, time in self._times.items() if time <= now]:
            del self._times[future]
            if not future.done():
                future.set_exception(TimeoutError())
        if self._times:
            self._set(min(self._times.values()))
