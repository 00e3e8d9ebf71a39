"""Histograms that are cheap enough for the hot path.

A metrics library's histogram takes a lock and looks up its labels on every observation, and the core depends on no such
library. Observations of every cycle go to a :class:`Backlog`: each costs one append, and they are counted in batches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K", bound=Hashable)

Bounds = tuple[float, ...]


def exponential_bounds(first: float, factor: float, count: int) -> Bounds:
    """Return bounds that grow by *factor*, multiplied one by one to equal kube-scheduler's to the last bit."""
    bounds = [first]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


class Histogram:
    """Number of observations per bucket, and their sum.

    Args:
        bounds: Upper bounds of the buckets, inclusive, ascending; one more bucket counts larger values.

    Attributes:
        counts: Per bucket, not cumulative; one entry more than ``bounds``.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Histograms(dict[K, Histogram]):
    """Histograms by label, created on the first lookup."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self._bounds = bounds

    def __missing__(self, label: K) -> Histogram:
        found = self[label] = Histogram(self._bounds)
        return found


def observe_many(histograms: Sequence[Histogram], places: NDArray[np.intp], values: NDArray[np.float64]) -> None:
    """Add many observations to histograms that have the same bounds.

    Args:
        places: int[n], the index in ``histograms`` for each observation.
    """
    bounds, count = histograms[0].bounds, len(histograms)
    buckets = len(bounds) + 1
    cells = np.searchsorted(bounds, values) + buckets * places
    counts = np.bincount(cells, minlength=buckets * count).reshape(count, buckets)
    totals = np.bincount(places, weights=values, minlength=count)
    for place in np.flatnonzero(counts.any(axis=1)).tolist():
        histogram = histograms[place]
        histogram.counts = [
            before + more for before, more in zip(histogram.counts, counts[place].tolist(), strict=True)
        ]
        histogram.total += float(totals[place])


class Backlog:
    """Observations that are not counted yet."""

    __slots__ = ("_waiting", "observe")

    def __init__(self) -> None:
        self._waiting = array("d")
        self.observe: Callable[[float], None] = self._waiting.append

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def settle(self, histogram: Histogram) -> None:
        if self._waiting:
            values = np.array(self._waiting)
            observe_many((histogram,), np.zeros(len(values), dtype=np.intp), values)
            del self._waiting[:]


class Backlogs(Generic[K]):
    """Backlogs by label; a label has no histogram before its first observation."""

    def __init__(self, histograms: Histograms[K]) -> None:
        self._histograms = histograms
        self._backlogs: defaultdict[K, Backlog] = defaultdict(Backlog)

    def of(self, label: K) -> Backlog:
        return self._backlogs[label]

    def settle(self) -> None:
        for label, backlog in self._backlogs.items():
            if backlog:
                backlog.settle(self._histograms[label])
