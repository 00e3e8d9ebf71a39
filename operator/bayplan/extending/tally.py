"""What was asked of an extender: how long it took and how often it failed.

Owns the numbers. It must not know how they are told. Why by extender and not by client: a profile's edit makes new
clients, and a counter must never fall.
"""

from __future__ import annotations

from bisect import bisect_left

BUCKETS = tuple(0.001 * 2**power for power in range(15))
"""Upper bounds of the histogram in seconds, 1 ms to 16 s; a further bucket takes what is longer."""


class Tally:
    """The calls of one extender.

    Attributes:
        counts: Calls by what was asked, then by bucket of their duration.
        seconds: The sum of their durations, by what was asked.
        errors: Calls that failed, by what was asked.
    """

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}
        self.seconds: dict[str, float] = {}
        self.errors: dict[str, int] = {}

    def observe(self, point: str, seconds: float) -> None:
        """A call to ``point`` has ended after ``seconds``."""
        counts = self.counts.setdefault(point, [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds[point] = self.seconds.get(point, 0.0) + seconds
        self.errors.setdefault(point, 0)

    def count_error(self, point: str) -> None:
        """A call to ``point`` has failed."""
        self.errors[point] = self.errors.get(point, 0) + 1
