"""Slow cycles: log lines and their rate."""

from __future__ import annotations

import logging

import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig


class Slow(FilterPlugin):
    """Filter plugin that accepts every node and advances the virtual clock by the pod's label ``seconds``."""

    name = "Slow"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> None:
        self.handle.clock.advance(float(pod.pod.metadata.labels.get("seconds", "0")))  # type: ignore[attr-defined]  # the rig's clock

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> None:  # type: ignore[override]  # never called
        raise AssertionError


def slow_attempts(*seconds: float, options: SchedulerOptions | None = None) -> Rig:
    """Return a scheduler after one attempt for each pod; ``seconds`` are the durations of their cycles."""
    made = rig([Slow], options=options)
    made.add(node("n0"), node("n1"))
    for number, each in enumerate(seconds):
        made.add(pod(f"p{number}", labels={"seconds": str(each)}))
        made.decide()
    return made


async def test_a_slow_cycle_names_the_slow_plugin(caplog: pytest.LogCaptureFixture) -> None:
    """The log line has the pod, nodes, candidates, the slowest stage, and each plugin's duration by extension point."""
    with caplog.at_level(logging.WARNING):
        slow_attempts(0.25)
    (text,) = [record.getMessage() for record in caplog.records if "slow scheduling cycle" in record.getMessage()]
    assert "pod default/p0 took 250.0 ms (limit 100.0 ms)" in text
    assert "2 nodes, 2 candidates; slowest stage Filter" in text
    assert "Filter 250.0 ms (Slow 250.0 ms)" in text


@pytest.mark.parametrize(
    ("limit", "seconds", "logged"),
    [
        pytest.param(0.1, 0.05, 0, id="faster-than-the-limit"),
        pytest.param(0.1, 0.11, 1, id="slower"),
        pytest.param(0.5, 0.25, 0, id="configured-limit"),
    ],
)
async def test_the_limit(caplog: pytest.LogCaptureFixture, limit: float, seconds: float, logged: int) -> None:
    """Only a cycle that reaches the limit is logged."""
    with caplog.at_level(logging.WARNING):
        slow_attempts(seconds, options=SchedulerOptions(slow_cycle_seconds=limit))
    assert sum("slow scheduling cycle" in record.getMessage() for record in caplog.records) == logged


async def test_one_slow_cycle_is_logged_per_second(caplog: pytest.LogCaptureFixture) -> None:
    """At most one slow cycle per second is logged, with the number of suppressed ones."""
    with caplog.at_level(logging.WARNING):
        slow_attempts(0.2, 0.2, 0.2, 1.0)
    texts = [record.getMessage() for record in caplog.records if "slow scheduling cycle" in record.getMessage()]
    assert [text.partition("pod ")[2].partition(" ")[0] for text in texts] == ["default/p0", "default/p3"]
    assert texts[1].endswith("; 2 more slow cycles were not logged")
