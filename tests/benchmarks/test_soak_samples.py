"""Values that are computed from the samples and the log of a soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import Sample, read_trouble, rss_slope
from tests.support.tables import table


def sample(seconds: float, rss_mib: float) -> Sample:
    return Sample(seconds, rss_mib, 0.0, {}, 0, 0, 0, 0, 0, 0)


@table(
    "points, slope",
    ("early samples are left out", [(0, 10), (60, 90), (120, 100), (180, 102), (240, 104)], 2.0),
    ("peak", [(120, 100), (180, 101), (240, 100)], 0.0),
    ("too few", [(60, 90), (120, 100)], None),
)
def test_the_slope_of_memory(points: list[tuple[float, float]], slope: float | None) -> None:
    """The slope is in MiB a minute, from the given second on."""
    found = rss_slope([sample(*point) for point in points], after_seconds=120.0)
    assert found == (None if slope is None else pytest.approx(slope))


def test_trouble_in_a_log(tmp_path: Path) -> None:
    """Warnings, errors and tracebacks are counted, and other lines are not."""
    log = tmp_path / "operator.log"
    log.write_text("1 INFO    x: fine\n2 WARNING x: hm\n3 ERROR   x: no\nTraceback (most recent call last):\n")
    trouble = read_trouble(log)
    assert trouble.counts == {"WARNING": 1, "ERROR": 1, "Traceback": 1}
    assert trouble.examples == ["2 WARNING x: hm", "3 ERROR   x: no", "Traceback (most recent call last):"]
