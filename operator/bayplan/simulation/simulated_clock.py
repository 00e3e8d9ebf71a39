"""A :class:`scheduler_core.ports.Clock` on virtual time, which advances only when the simulation advances it.

With the real clock a simulation would wait for backoffs and Permit timeouts, and its result would depend on the load of
the machine.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_START = datetime(2000, 1, 1, tzinfo=UTC)


class SimulatedTimer:
    """Callback that runs at a given time."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the callback; no effect if it has run."""
        self.callback = None


class SimulatedClock:
    """Clock that starts at 0 seconds and advances from timer to timer.

    Args:
        start: Date and time at 0 seconds, UTC.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._now = 0.0
        self._start = start
        self._timers: list[tuple[float, int, SimulatedTimer]] = []
        self._sequence = itertools.count()

    def now(self) -> float:
        """Return the virtual seconds since the start."""
        return self._now

    def wall(self) -> datetime:
        """Return the date and time of :meth:`now`, UTC."""
        return self._start + timedelta(seconds=self._now)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SimulatedTimer:
        """Run ``callback`` when the clock has advanced by ``seconds``."""
        timer = SimulatedTimer(callback)
        heapq.heappush(self._timers, (self._now + max(0.0, seconds), next(self._sequence), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has advanced by ``seconds``; 0 lets other tasks run once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        elapsed = asyncio.Event()
        self.call_later(seconds, elapsed.set)
        await elapsed.wait()

    def advance(self, until: float) -> bool:
        """Advance to the next timer and run it.

        Args:
            until: Latest time to advance to, in seconds.

        Returns:
            Whether a timer ran.
        """
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            self._now = due
            timer.callback()
            return True
        return False
