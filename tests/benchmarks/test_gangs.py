"""What is asked of both schedulers in the benchmark of gangs, and what is read off them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gangs import arguments_of
from benchmarks.gangs_metrics import GroupAttempts, group_attempts
from benchmarks.gangs_workload import GangBacklog, gang_of, longest_partial, members, partial_gangs


def told(name: str, node: str = "") -> dict[str, Any]:
    """A pod as the API server has it."""
    return {"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}}


def test_members_are_told_gang_by_gang() -> None:
    """Each gang has its members in a row, under names that tell whose they are."""
    made = list(members(GangBacklog(nodes=1, gangs=2, size=3)))
    assert [pod["spec"]["schedulingGroup"]["podGroupName"] for pod in made] == ["gang-0"] * 3 + ["gang-1"] * 3
    assert [gang_of(pod["metadata"]["name"]) for pod in made] == ["gang-0"] * 3 + ["gang-1"] * 3
    assert len({pod["metadata"]["name"] for pod in made}) == 6


@pytest.mark.parametrize(
    ("pods", "partial"),
    [
        pytest.param([told("gang-0-0", "a"), told("gang-0-1", "b")], [], id="whole"),
        pytest.param([told("gang-0-0"), told("gang-0-1")], [], id="none"),
        pytest.param([told("gang-0-0", "a"), told("gang-0-1")], ["gang-0"], id="part"),
        pytest.param([told("gang-1-0", "a"), told("gang-11-0", "a")], ["gang-1", "gang-11"], id="names alike"),
    ],
)
def test_gangs_that_are_placed_in_part(pods: list[dict[str, Any]], partial: list[str]) -> None:
    """All members have a node or none has."""
    assert partial_gangs(pods, 2) == partial


def test_how_long_a_gang_is_placed_in_part() -> None:
    """From its first bind to its last; the longest counts."""
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


@pytest.mark.parametrize(
    ("text", "attempts"),
    [
        pytest.param(SCRAPE, GroupAttempts(4, 10.0, 2.0), id="all results"),
        pytest.param("", GroupAttempts(0, None, None), id="nothing"),
    ],
)
def test_attempts_in_a_scrape(text: str, attempts: GroupAttempts) -> None:
    """Attempts are counted however they ended; without any there is no mean."""
    found = group_attempts(text)
    assert found.count == attempts.count
    assert found.mean_ms == (None if attempts.mean_ms is None else pytest.approx(attempts.mean_ms))
    assert found.algorithm_mean_ms == (
        None if attempts.algorithm_mean_ms is None else pytest.approx(attempts.algorithm_mean_ms)
    )


@pytest.mark.parametrize(
    ("argv", "gangs", "nodes"),
    [
        pytest.param([], [1000, 2000, 3000], 5000, id="as published"),
        pytest.param(["--quick"], [100], 100, id="quick"),
        pytest.param(["--quick", "--gangs", "7", "--nodes", "9"], [7], 9, id="quick, but told"),
        pytest.param(["--profile", "x.prof"], [1000], 5000, id="a profile is one drain"),
    ],
)
def test_the_command_line(argv: list[str], gangs: list[int], nodes: int) -> None:
    """The published workload unless something else is asked for."""
    read = arguments_of(argv)
    assert (read.gangs, read.nodes) == (gangs, nodes)
