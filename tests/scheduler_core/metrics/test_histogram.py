"""Histograms, their bucket bounds, and backlogs of observations."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_core.metrics.histogram import Backlog, Backlogs, Histogram, Histograms, exponential_bounds, observe_many
from tests.support.tables import table


def test_bounds_grow_by_the_factor() -> None:
    """Each bound is the previous one times the factor, as in Go's client."""
    assert exponential_bounds(0.001, 2, 4) == (0.001, 0.002, 0.004, 0.008)
    assert exponential_bounds(0.00001, 1.5, 20)[-1] == pytest.approx(0.02216838)


@table("value, bucket", ("below", 0.5, 0), ("at-the-bound", 1.0, 0), ("between", 1.5, 1), ("above-all", 9.0, 2))
def test_buckets(value: float, bucket: int) -> None:
    """An observation counts in the first bucket with a bound of at least its value."""
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    assert histogram.counts.index(1) == bucket
    assert (histogram.count, histogram.total) == (1, value)


def test_a_backlog_counts_like_single_observations() -> None:
    """Buckets and sum equal those of a histogram that observes each value at once."""
    values = [0.5, 1.0, 1.5, 2.0, 2.5, 1e9]
    at_once, late, backlog = Histogram((1.0, 2.0)), Histogram((1.0, 2.0)), Backlog()
    for value in values:
        at_once.observe(value)
        backlog.observe(value)
    assert late.count == 0
    backlog.settle(late)
    backlog.settle(late)
    assert (late.counts, late.total) == (at_once.counts, at_once.total)


def test_observations_of_several_histograms() -> None:
    """Each observation counts in the histogram at its index; other histograms do not change."""
    histograms = [Histogram((1.0, 2.0)) for _ in range(4)]
    histograms[0].observe(1.5)
    observe_many(histograms, np.array([0, 2, 0, 2, 0]), np.array([0.5, 3.0, 1.5, 3.0, 3.0]))
    assert [(each.counts, each.total) for each in histograms] == [
        ([1, 2, 1], 6.5),
        ([0, 0, 0], 0.0),
        ([0, 0, 2], 6.0),
        ([0, 0, 0], 0.0),
    ]


def test_a_label_without_an_observation_has_no_histogram() -> None:
    """A histogram is created with its first observation."""
    histograms: Histograms[str] = Histograms((1.0,))
    backlogs = Backlogs(histograms)
    backlogs.of("never")
    backlogs.of("once").observe(3.0)
    backlogs.settle()
    assert {label: histogram.counts for label, histogram in histograms.items()} == {"once": [0, 1]}
