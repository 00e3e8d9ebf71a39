"""The real clock on the running loop; implements :class:`scheduler_core.ports.Clock`.

All other code gets its time from a clock, so that tests and simulations can inject their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from scheduler_core.ports import Timer


class SystemClock:
    """Monotonic time, wall time in UTC, and the loop's timers."""

    __slots__ = ()

    now = staticmethod(time.monotonic)
    """Return monotonic seconds; the function itself for speed, since each cycle calls it often."""

    def wall(self) -> datetime:
        """Return the date and time in UTC."""
        return datetime.now(UTC)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the running loop in ``seconds``; must be called on that loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; 0 lets other tasks run once."""
        await asyncio.sleep(seconds)
