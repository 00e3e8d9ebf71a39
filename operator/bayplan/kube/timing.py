"""The clock of the running loop, bounded waits, and exponential backoff with jitter.

All other code gets its time from a clock, so that tests and simulations can inject their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
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
        return datetime.now(UTC)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the running loop in ``seconds``; must be called on that loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; 0 lets other tasks run once."""
        await asyncio.sleep(seconds)


async def wait_at_most(event: asyncio.Event, seconds: float) -> bool:
    """Wait until an event is set, at most for some seconds; return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


class Backoff:
    """Delays that double from ``initial`` to ``maximum`` seconds, both before jitter, until :meth:`reset`."""

    __slots__ = ("_initial", "_maximum", "_next", "_random")

    def __init__(self, initial: float, maximum: float, seed: int | None = None) -> None:
        self._initial = initial
        self._maximum = maximum
        self._next = initial
        self._random = random.Random(seed)

    def next_delay(self) -> float:
        """Return the delay in seconds, between half and all of the current step; the step doubles."""
        step = min(self._next, self._maximum)
        self._next = min(self._next * 2, self._maximum)
        # Half is random, so that clients that lost the same server do not retry in step.
        return step * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start over at ``initial`` after a success."""
        self._next = self._initial


def delay_of_try(tries: int, initial: float, maximum: float) -> float:
    """Return the jittered delay in seconds after ``tries`` (at least 1) failures, for callers with only a count."""
    # The exponent is limited, because a power of a float may overflow.
    return jittered(min(initial * 2.0 ** min(tries - 1, 32), maximum))


def jittered(seconds: float) -> float:
    """Return half to all of a delay: clients that lost the same server must not retry in step."""
    return seconds * random.uniform(0.5, 1.0)
