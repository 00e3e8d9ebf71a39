"""How long to wait before the next try: exponential and jittered.

Owns the arithmetic only. Half of every delay is random, so that many clients that lost the same server do not come
back in step.
"""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from ``initial`` up to ``maximum`` seconds until :meth:`reset`.

    Args:
        initial: The first delay in seconds, before jitter.
        maximum: No delay is longer, in seconds.
        seed: Fixes the jitter for tests; None takes it from the system.
    """

    __slots__ = ("_initial", "_maximum", "_next", "_random")

    def __init__(self, initial: float, maximum: float, seed: int | None = None) -> None:
        self._initial = initial
        self._maximum = maximum
        self._next = initial
        self._random = random.Random(seed)

    def next_delay(self) -> float:
        """The delay in seconds, between half and all of the current step; the step doubles."""
        step = min(self._next, self._maximum)
        self._next = min(self._next * 2, self._maximum)
        return step * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start over at ``initial``: something succeeded."""
        self._next = self._initial


def delay_of_try(tries: int, initial: float, maximum: float) -> float:
    """The jittered delay in seconds after ``tries`` (at least 1) failed tries, for those that keep only a count."""
    step = min(initial * 2.0 ** min(tries - 1, 32), maximum)
    return step * random.uniform(0.5, 1.0)
