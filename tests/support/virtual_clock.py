"""A :class:`scheduler_core.ports.Clock` that only the test advances.

Timers and sleepers run in the order of their times. The event loop's own time is not used, so that tests of long
backoffs neither wait nor depend on the load of the machine.
"""

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualTimer:
    """Callback with a due time."""

    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the callback."""
        self.cancelled = True


class VirtualClock:
    """Clock that the test advances; it starts at 1,000 seconds and at 2026-01-01 UTC."""

    def __init__(self, start: float = 1000.0) -> None:
        self._start = self._now = start
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._sequence = 0

    def now(self) -> float:
        """Return the time in seconds."""
        return self._now

    def wall(self) -> datetime:
        """Return the date and time that correspond to :meth:`now`."""
        return _EPOCH + timedelta(seconds=self._now - self._start)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        """Run ``callback`` when the test has advanced the clock by ``seconds``."""
        timer = VirtualTimer(callback)
        self._sequence += 1
        heapq.heappush(self._timers, (self._now + max(seconds, 0.0), self._sequence, timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has advanced the clock by ``seconds``; with 0, let other tasks run once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        is_due = asyncio.Event()
        self.call_later(seconds, is_due.set)
        await is_due.wait()

    @property
    def pending(self) -> int:
        """Number of pending timers and sleepers."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Advance the time and run the due callbacks, each at its own time, including those that callbacks add."""
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._now = due
            if not timer.cancelled:
                timer.callback()
        self._now = until


class AutoAdvanceClock(VirtualClock):
    """Clock that every sleep advances."""

    async def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.advance(seconds)
