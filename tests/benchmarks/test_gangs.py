"""Values that the gang benchmark reads from pods and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gangs_drain import GroupAttempts, group_attempts, longest_partial, partial_gangs
from tests.support.tables import table


def member(name: str, node: str = "") -> dict[str, Any]:
    """Return a pod as from the API server."""
    return {"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}}


@table(
    "pods, partial",
    ("whole", [member("gang-0-0", "a"), member("gang-0-1", "b")], []),
    ("none", [member("gang-0-0"), member("gang-0-1")], []),
    ("part", [member("gang-0-0", "a"), member("gang-0-1")], ["gang-0"]),
    ("similar names", [member("gang-1-0", "a"), member("gang-11-0", "a")], ["gang-1", "gang-11"]),
)
def test_partly_bound_gangs(pods: list[dict[str, Any]], partial: list[str]) -> None:
    """A gang is reported if some of its members have a node and others have none."""
    assert partial_gangs(pods, 2) == partial


def test_the_longest_partly_bound_time() -> None:
    """The time runs from the first bind of a gang to its last one; the longest is returned."""
    names = ["gang-0-0", "gang-1-0", "gang-0-1", "gang-1-1"]
    assert longest_partial(names, [1.0, 2.0, 3.0, 8.0]) == 6.0
    assert longest_partial([], []) == 0.0


SCRAPE = """\
# TYPE scheduler_podgroup_scheduling_attempt_duration_seconds histogram
scheduler_podgroup_scheduling_attempt_duration_seconds_bucket{profile="b",result="scheduled",le="+Inf"} 3
scheduler_podgroup_scheduling_attempt_duration_seconds_sum{profile="b",result="scheduled"} 0.03
scheduler_podgroup_scheduling_attempt_duration_seconds_count{profile="b",result="scheduled"} 3
scheduler_podgroup_scheduling_attempt_duration_seconds_bucket{profile="b",result="error",le="+Inf"} 1
scheduler_podgroup_scheduling_attempt_duration_seconds_sum{profile="b",result="error"} 0.01
scheduler_podgroup_scheduling_attempt_duration_seconds_count{profile="b",result="error"} 1
# TYPE scheduler_podgroup_scheduling_algorithm_duration_seconds histogram
scheduler_podgroup_scheduling_algorithm_duration_seconds_bucket{le="+Inf"} 4
scheduler_podgroup_scheduling_algorithm_duration_seconds_sum 0.008
scheduler_podgroup_scheduling_algorithm_duration_seconds_count 4
"""


@table(
    "text, attempts",
    ("all results", SCRAPE, GroupAttempts(4, 10.0, 2.0)),
    ("nothing", "", GroupAttempts(0, None, None)),
)
def test_attempts_in_a_scrape(text: str, attempts: GroupAttempts) -> None:
    """Attempts are counted whatever their result; without attempts there is no mean."""
    found = group_attempts(text)
    assert found.count == attempts.count
    assert found.mean_ms == (None if attempts.mean_ms is None else pytest.approx(attempts.mean_ms))
    assert found.algorithm_mean_ms == (
        None if attempts.algorithm_mean_ms is None else pytest.approx(attempts.algorithm_mean_ms)
    )
