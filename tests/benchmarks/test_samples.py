"""Values that the benchmarks compute from metrics, /proc, samples and logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.end_to_end_drain import busy_seconds, difference, requests_of
from benchmarks.soak import Sample, read_trouble, rss_slope
from tests.support.tables import table

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="resourceclaims",subresource="",verb="PATCH",version="v1"} 3
apiserver_request_total{code="409",resource="resourceclaims",subresource="",verb="PATCH",version="v1"} 1
apiserver_request_total{code="200",resource="resourceclaims",subresource="status",verb="PATCH",version="v1"} 2
apiserver_request_total{code="200",resource="",subresource="/readyz",verb="GET",version=""} 5
apiserver_request_total{code="0",resource="pods",subresource="",verb="WATCH",version="v1"} 7
"""


def test_requests_by_kind() -> None:
    """Requests count whatever their response code; watches do not count."""
    assert requests_of(METRICS) == {"PATCH resourceclaims": 4, "PATCH resourceclaims/status": 2, "GET /readyz": 5}


def test_busy_seconds_grow() -> None:
    """The busy time of this process grows by at most the elapsed time, and the machine's does not shrink."""
    before = busy_seconds(())
    sum(range(3_000_000))
    grown = difference(busy_seconds(()), before)
    assert 0 < grown["benchmark"] <= grown["seconds"] + 0.1
    assert grown["machine"] >= 0


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
