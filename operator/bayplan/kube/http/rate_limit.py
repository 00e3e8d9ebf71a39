"""Token bucket.

A reservation may take the bucket below zero: later callers wait longer, which preserves the order of arrival without a
queue, as Go's ``golang.org/x/time/rate`` does, which limits client-go.
"""

from __future__ import annotations

from scheduler_core.ports import Clock


class TokenBucket:
    """Bucket that gains ``rate`` tokens per second and holds at most ``burst``.

    Args:
        rate: Tokens per second, above 0.
        burst: Tokens in a full bucket, at least 1.
        clock: Clock.
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
