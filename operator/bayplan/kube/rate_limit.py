"""A token bucket.

Owns tokens and their price in seconds. Must not know what is being limited. Reservations may take the bucket below
zero: whoever comes later waits longer, which keeps the order of arrival without a queue (the way of Go's
``golang.org/x/time/rate``, which limits client-go).
"""

from __future__ import annotations

from scheduler_core.ports import Clock


class TokenBucket:
    """``rate`` tokens a second, at most ``burst`` saved up.

    Args:
        rate: Tokens per second, above 0.
        burst: Tokens in a full bucket, at least 1.
        clock: Time.
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
            0.0 when it was taken; otherwise the seconds until there will be one, and nothing is taken.
        """
        self._refill()
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate

    async def take(self) -> None:
        """Take a token, waiting for it in the order of arrival."""
        self._refill()
        self._tokens -= 1.0
        if self._tokens < 0.0:
            await self._clock.sleep(-self._tokens / self._rate)
