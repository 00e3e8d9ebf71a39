"""Histograms."""

from __future__ import annotations

import pytest

from scheduler_core.framework.histogram import Histogram, exponential_bounds


def test_bounds_grow_by_the_factor() -> None:
    """They are multiplied up one by one, as Go's client does it."""
    assert exponential_bounds(0.001, 2, 4) == (0.001, 0.002, 0.004, 0.008)
    assert exponential_bounds(0.00001, 1.5, 20)[-1] == pytest.approx(0.02216838)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        pytest.param(0.5, 0, id="below"),
        pytest.param(1.0, 0, id="a-bound-is-within"),
        pytest.param(1.5, 1, id="between"),
        pytest.param(9.0, 2, id="above-all"),
    ],
)
def test_buckets(value: float, bucket: int) -> None:
    """An observation counts in the first bucket whose bound it does not exceed."""
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    assert histogram.counts.index(1) == bucket
    assert (histogram.count, histogram.total) == (1, value)
