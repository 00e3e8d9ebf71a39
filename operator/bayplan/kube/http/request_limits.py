"""Limits of concurrent requests and of their rate; callers that wait are served in the order of arrival.

Unlike asyncio's semaphore, acquiring a free slot awaits nothing, and a wait can be ended from outside, as by a
deadline. A reservation may take the token bucket below zero, so later callers wait longer, as in Go's
``golang.org/x/time/rate``, which limits client-go.
"""

from __future__ import annotations

import asyncio
from collections import deque

from scheduler_core.ports import Clock


class Slots:
    """A number of slots; a waiting caller gets the next slot that is released.

    Args:
        limit: Number of slots, at least 1.
    """

    __slots__ = ("_free", "_line")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._line: deque[asyncio.Future[None]] = deque()

    def acquire(self) -> asyncio.Future[None] | None:
        """Acquire a slot; return None if one was free, else the future to pass to :meth:`wait`."""
        if self._free:
            self._free -= 1
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        return turn

    async def wait(self, turn: asyncio.Future[None]) -> None:
        """Wait for a slot; an exception set on the future is raised here, and no slot is acquired then."""
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release()
            raise

    def release(self) -> None:
        """Release a slot."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class TokenBucket:
    """Bucket that gains ``rate`` tokens per second and holds at most ``burst``.

    Args:
        rate: Tokens per second, above 0.
        burst: Tokens in a full bucket, at least 1.
    """

    __slots__ = ("_burst", "_clock", "_rate", "_then", "_tokens")

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._tokens = self._burst
        self._then = clock.now()

    def _refill(self) -> None:
        now = self._clock.now()
        self._tokens = min(self._burst, self._tokens + (now - self._then) * self._rate)
        self._then = now

    def try_take(self) -> float:
        """Take a token if there is one.

        Returns:
            0.0 if a token was taken; otherwise the seconds until there will be one.
        """
        self._refill()
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate

    async def take(self) -> None:
        """Take a token; wait for it in the order of arrival."""
        self._refill()
        self._tokens -= 1.0
        if self._tokens < 0.0:
            await self._clock.sleep(-self._tokens / self._rate)
