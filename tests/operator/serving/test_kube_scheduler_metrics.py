"""Tests of the metrics with kube-scheduler's names, which equal those of a running kube-scheduler v1.36.3."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from bayplan.serving.bayplan_metrics import metrics_registry
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_core.metrics.histogram import exponential_bounds
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, default_rig

POINT = exponential_bounds(0.0001, 2, 12)
ATTEMPT = exponential_bounds(0.001, 2, 15)
PLUGIN = exponential_bounds(0.00001, 1.5, 20)
LONG = exponential_bounds(0.01, 2, 20)


@dataclass(frozen=True)
class Family:
    """Metric family of kube-scheduler."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = field(default=())


FAMILIES = [
    Family(
        "scheduler_framework_extension_point_duration_seconds",
        "histogram",
        ("extension_point", "profile", "status"),
        POINT,
    ),
    Family("scheduler_pending_pods", "gauge", ("queue",)),
    Family("scheduler_pod_scheduling_attempts", "histogram", (), (1, 2, 4, 8, 16)),
    Family("scheduler_preemption_attempts", "counter"),
    Family("scheduler_preemption_victims", "histogram", (), (1, 2, 4, 8, 16, 32, 64)),
    Family("scheduler_queue_incoming_pods", "counter", ("event", "queue")),
    Family("scheduler_schedule_attempts", "counter", ("profile", "result")),
    Family("scheduler_scheduling_attempt_duration_seconds", "histogram", ("profile", "result"), ATTEMPT),
    Family("scheduler_goroutines", "gauge", ("operation",)),
    Family("scheduler_plugin_evaluation", "counter", ("extension_point", "plugin", "profile")),
    Family("scheduler_pod_scheduling_sli_duration_seconds", "histogram", ("attempts",), LONG),
    Family("scheduler_unschedulable_pods", "gauge", ("plugin", "profile")),
    Family("scheduler_cache_size", "gauge", ("type",)),
    Family("scheduler_inflight_events", "gauge", ("event",)),
    Family("scheduler_event_handling_duration_seconds", "histogram", ("event",), POINT),
    Family("scheduler_plugin_execution_duration_seconds", "histogram", ("extension_point", "plugin", "status"), PLUGIN),
    Family("scheduler_pod_scheduled_after_flush", "counter"),
    Family("scheduler_scheduling_algorithm_duration_seconds", "histogram", (), ATTEMPT),
    Family("scheduler_queueing_hint_execution_duration_seconds", "histogram", ("event", "hint", "plugin"), PLUGIN),
    Family("scheduler_preemption_goroutines_duration_seconds", "histogram", ("result",), LONG),
    Family("scheduler_preemption_goroutines_execution", "counter", ("result",)),
]


def scrape(made: Rig) -> dict[str, Metric]:
    """Return the scraped families by name."""
    text = generate_latest(metrics_registry(made.scheduler, {})).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def labels_of(family: Metric) -> set[tuple[str, ...]]:
    """Return the label names of a family's samples, without the bucket bound."""
    return {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples}


def value(families: dict[str, Metric], name: str, sample: str, **labels: str) -> float:
    (found,) = [each.value for each in families[name].samples if each.name == sample and each.labels == labels]
    return found


async def used_rig() -> Rig:
    """Return a scheduler that has scheduled pods, rejected a pod, preempted a pod, and called hints."""
    made = default_rig(node("n0"), node("n1"))
    for number in range(10):
        # The pods have different pod classes, since plugins are not called again for a pod of the same class.
        made.add(pod(f"p{number}", image=f"image-{number}", requests={"cpu": f"{number + 1}m"}))
        assert await made.attempt()
    made.add(pod("huge", requests={"cpu": "100"}))
    assert not await made.attempt()
    made.add(node("n2"))
    for name in ("n0", "n1", "n2"):
        made.add(filling_pod(name))
    made.add(pod("urgent", requests={"cpu": "3"}, priority=1000))
    assert not await made.attempt()
    return made


def filling_pod(node_name: str) -> Pod:
    """Return a pod of low priority that fills a node."""
    return pod(f"fills-{node_name}", node_name=node_name, requests={"cpu": "3"}, priority=1)


@pytest.fixture(scope="module")
def families() -> dict[str, Metric]:
    return scrape(asyncio.run(used_rig()))


@pytest.mark.parametrize("expected", FAMILIES, ids=lambda each: each.name)
def test_family_equals_that_of_kube_scheduler(families: dict[str, Metric], expected: Family) -> None:
    """The type, the label names and the buckets of a family equal kube-scheduler's."""
    family = families[expected.name]
    assert family.type == expected.kind
    assert labels_of(family) == {expected.labels}
    bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
    assert sorted(map(float, bounds)) == ([*expected.bounds, float("inf")] if expected.bounds else [])
    assert all(not bound.endswith(".0") for bound in bounds)


def test_attempts_are_counted(families: dict[str, Metric]) -> None:
    """Each attempt is counted with its result and duration, and each bound pod with its number of attempts."""
    for result, count in (("scheduled", 10), ("unschedulable", 2), ("error", 0)):
        labels = {"profile": "default-scheduler", "result": result}
        assert value(families, "scheduler_schedule_attempts", "scheduler_schedule_attempts_total", **labels) == count
    name = "scheduler_scheduling_attempt_duration_seconds"
    assert value(families, name, f"{name}_count", profile="default-scheduler", result="scheduled") == 10
    name = "scheduler_scheduling_algorithm_duration_seconds"
    assert value(families, name, f"{name}_count") == 12
    name = "scheduler_pod_scheduling_sli_duration_seconds"
    assert value(families, name, f"{name}_count", attempts="1") == 10


def test_preemptions_are_counted(families: dict[str, Metric]) -> None:
    """Preemption attempts count calls of DefaultPreemption, and victims count those of executed preemptions."""
    assert value(families, "scheduler_preemption_attempts", "scheduler_preemption_attempts_total") == 2
    name = "scheduler_preemption_victims"
    assert (value(families, name, f"{name}_count"), value(families, name, f"{name}_sum")) == (1, 1)
    name = "scheduler_preemption_goroutines_execution"
    assert value(families, name, f"{name}_total", result="success") == 1


def test_plugin_evaluations_are_counted(families: dict[str, Metric]) -> None:
    """PreFilter counts pods that were not skipped, Filter and Score count nodes, and an uncalled plugin has 0."""
    name = "scheduler_plugin_evaluation"
    counted = {
        (sample.labels["extension_point"], sample.labels["plugin"]): sample.value for sample in families[name].samples
    }
    assert counted["PreFilter", "NodeResourcesFit"] >= 12
    assert counted["Filter", "NodeUnschedulable"] >= 10 * 2
    assert counted["Score", "NodeResourcesFit"] == 10 * 2
    assert counted["Filter", "NodePorts"] == 0


def test_extension_points_are_counted(families: dict[str, Metric]) -> None:
    """An extension point is counted once for each cycle that ran it, by status."""
    name = "scheduler_framework_extension_point_duration_seconds"

    def count(point: str, status: str) -> float:
        return value(families, name, f"{name}_count", extension_point=point, status=status, profile="default-scheduler")

    assert [count(point, "Success") for point in ("PreFilter", "Filter", "Reserve", "Bind", "PostBind")] == [
        12,
        12,
        10,
        10,
        10,
    ]
    assert (count("PostFilter", "Unschedulable"), count("PostFilter", "Success")) == (1, 1)


def test_plugins_are_timed_in_one_cycle_of_ten(families: dict[str, Metric]) -> None:
    """Plugins are timed in one cycle of ten, chosen deterministically."""
    name = "scheduler_plugin_execution_duration_seconds"
    labels = {"plugin": "DefaultBinder", "extension_point": "Bind", "status": "Success"}
    assert value(families, name, f"{name}_count", **labels) == 1


async def test_a_withdrawn_profile_has_no_metrics() -> None:
    """A withdrawn profile has no samples, so a later profile of the same name starts at zero."""
    made = await used_rig()
    made.scheduler.withdraw("default-scheduler")
    families = scrape(made)
    assert not families["scheduler_framework_extension_point_duration_seconds"].samples
    assert not families["scheduler_plugin_evaluation"].samples
