"""The real clock, on the running loop.

Fulfils :class:`scheduler_core.ports.Clock`; everything else gets time from it, so that tests and simulations can run on
their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from scheduler_core.ports import Timer


class SystemClock:
    """Monotonic time, the wall clock in UTC, and the loop's timers."""

    __slots__ = ()

    now = staticmethod(time.monotonic)
    """Monotonic seconds, not stopped and not set by anybody; the function itself, since each cycle reads it often."""

    def wall(self) -> datetime:
        """The date and time in UTC."""
        return datetime.now(UTC)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` on the running loop in ``seconds``; must be called on that loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; 0 lets other tasks run once."""
        await asyncio.sleep(seconds)
