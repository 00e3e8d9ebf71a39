"""Tests of the metrics of gang attempts, which have kube-scheduler's names, with a real scheduler."""

from __future__ import annotations

import pytest
from bayplan.serving.bayplan_metrics import metrics_registry

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import GroupSource
from tests.support.builders import node, pod
from tests.support.gangs import group, members
from tests.support.scheduling import DEFAULT_NAME, Rig, rig

ATTEMPTS = "scheduler_podgroup_schedule_attempts_total"
DURATION = "scheduler_podgroup_scheduling_attempt_duration_seconds"
ALGORITHM = "scheduler_podgroup_scheduling_algorithm_duration_seconds"


def rig_with_gang(size: int, *, priority: int = 0, running: int = 0) -> Rig:
    """Return a scheduler with a node of 4 CPUs, running pods of one CPU, and a gang of such pods."""
    made = rig(defaults=default_plugins())
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    made.add(node("a"), *(pod(f"old-{number}", requests={"cpu": "1"}, node_name="a") for number in range(running)))
    made.scheduler.group_feed.group_changed(group(min_member=size))
    made.add(*members(size, priority=priority))
    return made


@pytest.mark.parametrize(
    ("size", "priority", "running", "result"),
    [
        pytest.param(3, 0, 0, "scheduled", id="scheduled"),
        pytest.param(5, 0, 0, "unschedulable", id="too large"),
        pytest.param(4, 10, 2, "waiting_on_preemption", id="preemption"),
    ],
)
async def test_attempts_are_counted_by_result(size: int, priority: int, running: int, result: str) -> None:
    """An attempt is counted by its result and observed in both histograms."""
    made = rig_with_gang(size, priority=priority, running=running)
    async with made.running():
        await made.until(lambda: any(made.context.metrics.profiles[DEFAULT_NAME].groups[result].counts))
    registry = metrics_registry(made.scheduler, {})
    labels = {"result": result, "profile": DEFAULT_NAME}
    assert registry.get_sample_value(ATTEMPTS, labels) == 1
    assert registry.get_sample_value(f"{DURATION}_count", labels) == 1
    assert registry.get_sample_value(f"{ALGORITHM}_count") == 1


def test_buckets_are_those_of_the_reference() -> None:
    """The buckets are kube-scheduler's: 1 ms, doubled fourteen times."""
    registry = metrics_registry(rig_with_gang(1).scheduler, {})
    bounds = [f"{2**power / 1000:g}" for power in range(15)]
    assert [registry.get_sample_value(f"{ALGORITHM}_bucket", {"le": bound}) for bound in bounds] == [0.0] * 15
