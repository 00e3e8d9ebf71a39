"""Deadlines of many futures with one timer.

A timer for each would cost more than everything here: nearly every request ends long before its deadline. The timer
stays set when no future is watched any more, and then finds nothing to do.
"""

from __future__ import annotations

import asyncio
from typing import Any

_TICK_SECONDS = 0.001
"""A timer may fire early by this much."""


class Deadlines:
    """Fails futures that are not done at their deadline with a TimeoutError."""

    __slots__ = ("_due", "_timer", "_times")

    def __init__(self) -> None:
        self._times: dict[asyncio.Future[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")

    def watch(self, future: asyncio.Future[Any], time: float) -> None:
        """Set a future's deadline, in the running loop's time."""
        self._times[future] = time
        if time < self._due:
            self._set(time)

    def forget(self, future: asyncio.Future[Any]) -> None:
        """Remove a future's deadline; harmless if it has none."""
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
