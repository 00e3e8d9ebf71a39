"""Percentiles of latencies, and gaps between bindings."""

from __future__ import annotations

import dataclasses

from benchmarks.latency import Latency, percentile, summary
from benchmarks.startup import longest_gap
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER
from tests.support.tables import table

ONE = Latency(BAYPLAN, 50, 1000, 2.0, 8.0, 1.0, 100, 1)


@table(
    "share, expected",
    ("median", 0.5, 50.0),
    ("99th-percentile", 0.99, 99.0),
    ("largest", 1.0, 100.0),
    ("smallest", 0.0, 1.0),
)
def test_percentiles(share: float, expected: float) -> None:
    """Percentiles of the values from 1 to 100 are the values themselves."""
    assert percentile([float(value) for value in range(1, 101)], share) == expected


def test_latencies_are_compared_by_rate() -> None:
    """Rows have medians and spread of repetitions; a rate that one scheduler lacks is left out."""
    runs = [ONE, dataclasses.replace(ONE, repetition=2, p99_ms=12.0), dataclasses.replace(ONE, rate=200)]
    (row,) = summary([*runs, dataclasses.replace(ONE, scheduler=KUBE_SCHEDULER, p99_ms=5.0)])
    assert (row["nodes"], row["rate"], row["repetitions"]) == (100, 50, [2, 1])
    assert row["counted"]["p99 ms"] == {
        "medians": (10.0, 5.0),
        "lowest": [8.0, 5.0],
        "highest": [12.0, 5.0],
        "ratio": 2.0,
    }


@table("since, expected", ("all", 0.0, 5.0), ("gap-in-progress", 2.5, 3.0), ("earlier-gaps-excluded", 8.5, 1.0))
def test_the_longest_time_without_a_bind(since: float, expected: float) -> None:
    """The gap is between two bindings of which the later one is after the given time, in any order of the input."""
    assert longest_gap([9.0, 8.0, -3.0, 2.0, 5.0], since) == expected
