"""Time that passes only when the simulation lets it.

Owns a :class:`scheduler_core.ports.Clock` on virtual time. Why not the real clock: a simulation that waited for a
back-off or a Permit plugin's patience would be slow, and its result would depend on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_START = datetime(2000, 1, 1, tzinfo=UTC)


class SimulatedTimer:
    """A callback that waits for its time."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Keep the callback from running; harmless when it has run."""
        self.callback = None


class SimulatedClock:
    """A clock that starts at 0 seconds, on 2000-01-01 UTC, and is moved from timer to timer."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, int, SimulatedTimer]] = []
        self._sequence = itertools.count()

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def wall(self) -> datetime:
        """The date and time that goes with :meth:`now`, UTC."""
        return _START + timedelta(seconds=self._now)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SimulatedTimer:
        """Run ``callback`` when the clock has been moved by ``seconds``."""
        timer = SimulatedTimer(callback)
        heapq.heappush(self._timers, (self._now + max(0.0, seconds), next(self._sequence), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been moved by ``seconds``; 0 lets other tasks run once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        self.call_later(seconds, woken.set)
        await woken.wait()

    def advance(self, until: float) -> bool:
        """Move to the next timer and run it.

        Args:
            until: The clock's time that is not passed, in seconds.

        Returns:
            Whether there was such a timer.
        """
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            self._now = due
            timer.callback()
            return True
        return False
