"""Observations counted in buckets, as cheaply as the hot path wants it.

Owns the counts only; whoever exports them reads them. Why of our own: a histogram of a metrics library takes a lock and
looks its labels up for each observation, and the core knows no such library.

What is observed in every cycle waits in a :class:`Backlog`, in which an observation costs what it costs to append a
number, and is counted with many others at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K", bound=Hashable)

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


def observe_columns(histograms: Sequence[Histogram], values: NDArray[np.float64]) -> None:
    """Add many observations to histograms of equal bounds.

    Args:
        histograms: One for each column, some of them perhaps the same.
        values: float64[observations, columns].
    """
    bounds, columns = histograms[0].bounds, len(histograms)
    buckets = len(bounds) + 1
    places = np.searchsorted(bounds, values.ravel()).reshape(values.shape) + buckets * np.arange(columns)
    counts = np.bincount(places.ravel(), minlength=buckets * columns).reshape(columns, buckets).tolist()
    totals: list[float] = values.sum(axis=0).tolist()
    for histogram, added, total in zip(histograms, counts, totals, strict=True):
        histogram.counts = [before + more for before, more in zip(histogram.counts, added, strict=True)]
        histogram.total += total


class Backlog:
    """Observations that wait to be counted.

    Attributes:
        observe: Adds one.
    """

    __slots__ = ("_waiting", "observe")

    def __init__(self) -> None:
        self._waiting = array("d")
        self.observe: Callable[[float], None] = self._waiting.append

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def settle(self, histogram: Histogram) -> None:
        """Count them."""
        if self._waiting:
            observe_columns((histogram,), np.array(self._waiting).reshape(-1, 1))
            del self._waiting[:]


class Backlogs(Generic[K]):
    """Observations that wait to be counted, by label; a label has no histogram before it has an observation.

    Args:
        histograms: Where they are counted.
        bounds: Those of histograms that are begun.
    """

    def __init__(self, histograms: dict[K, Histogram], bounds: Bounds) -> None:
        self._histograms = histograms
        self._bounds = bounds
        self._backlogs: dict[K, Backlog] = {}

    def of(self, label: K) -> Backlog:
        """Those of one label."""
        found = self._backlogs.get(label)
        if found is None:
            found = self._backlogs[label] = Backlog()
        return found

    def settle(self) -> None:
        """Count them."""
        for label, backlog in self._backlogs.items():
            if backlog:
                histogram = self._histograms.get(label)
                if histogram is None:
                    histogram = self._histograms[label] = Histogram(self._bounds)
                backlog.settle(histogram)
