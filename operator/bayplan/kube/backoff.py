"""Exponential backoff with jitter.

Half of every delay is random, so that clients that lost the same server do not retry in step.
"""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from ``initial`` to ``maximum`` seconds until :meth:`reset`.

    Args:
        initial: First delay in seconds, before jitter.
        maximum: Maximum delay in seconds.
        seed: Seed of the jitter, for tests; None for a random one.
    """

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
        return step * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start over at ``initial`` after a success."""
        self._next = self._initial


def delay_of_try(tries: int, initial: float, maximum: float) -> float:
    """Return the jittered delay in seconds after ``tries`` (at least 1) failures, for callers with only a count."""
    step = min(initial * 2.0 ** min(tries - 1, 32), maximum)
    return step * random.uniform(0.5, 1.0)
