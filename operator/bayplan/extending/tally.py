"""Counts, durations and errors of the calls to one extender.

Kept by extender and not by client: an edited profile gets new clients, and a counter must never decrease.
"""

from __future__ import annotations

from bisect import bisect_left

BUCKETS = tuple(0.001 * 2**power for power in range(15))
"""Upper bounds of the histogram in seconds, 1 ms to 16 s; a further bucket counts longer calls."""


class Tally:
    """The calls of one extender.

    Attributes:
        counts: Number of calls by extension point and by bucket of their duration.
        seconds: Sum of the durations by extension point.
        errors: Number of failed calls by extension point.
    """

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}
        self.seconds: dict[str, float] = {}
        self.errors: dict[str, int] = {}

    def observe(self, point: str, seconds: float) -> None:
        """Record the duration of a call."""
        counts = self.counts.setdefault(point, [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds[point] = self.seconds.get(point, 0.0) + seconds
        self.errors.setdefault(point, 0)

    def count_error(self, point: str) -> None:
        """Record the failure of a call."""
        self.errors[point] = self.errors.get(point, 0) + 1
