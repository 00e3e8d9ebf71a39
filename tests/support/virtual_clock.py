"""Time that stands still until a test moves it.

Owns a :class:`scheduler_core.ports.Clock` whose timers and sleepers wake, in the order of their times, when the test
advances it. Why not the loop's own time: a test of a five-minute back-off must neither wait nor depend on load.
"""

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualTimer:
    """A callback that waits for its time."""

    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Keep the callback from running."""
        self.cancelled = True


class VirtualClock:
    """A clock that the test advances; starts at 1,000 seconds and at 2026-01-01 UTC."""

    def __init__(self, start: float = 1000.0) -> None:
        self._start = self._now = start
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._sequence = 0

    def now(self) -> float:
        """Seconds, as far as the test has advanced them."""
        return self._now

    def wall(self) -> datetime:
        """The date and time that goes with :meth:`now`."""
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
        woken = asyncio.Event()
        self.call_later(seconds, woken.set)
        await woken.wait()

    @property
    def pending(self) -> int:
        """How many timers and sleepers wait."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Move time on; callbacks that fall due run now, each at its own time, also those that they set up."""
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._now = due
            if not timer.cancelled:
                timer.callback()
        self._now = until


class AutoAdvanceClock(VirtualClock):
    """A clock that moves on by itself when something sleeps."""

    async def sleep(self, seconds: float) -> None:
        """Move time on."""
        self.advance(seconds)
