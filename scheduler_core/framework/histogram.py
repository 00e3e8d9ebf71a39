"""Observations counted in buckets, as cheaply as the hot path wants it.

Owns the counts only; whoever exports them reads them. Why of our own: a histogram of a metrics library takes a lock and
looks its labels up for each observation, and the core knows no such library.
"""

from __future__ import annotations

from bisect import bisect_left

Bounds = tuple[float, ...]


def exponential_bounds(first: float, factor: float, count: int) -> Bounds:
    """Bounds that grow by a factor, multiplied up one by one, so that they equal the reference's to the last bit.

    Args:
        first: The lowest upper bound.
        factor: What each is multiplied by to give the next.
        count: How many.
    """
    bounds = [first]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


class Histogram:
    """How many observations fell into each bucket, and their sum.

    Args:
        bounds: The buckets' upper bounds, inclusive, ascending; whatever is above falls into one more.

    Attributes:
        bounds: As given.
        counts: Per bucket, not added up; one longer than ``bounds``.
        total: The sum of what was observed.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self.counts)
