"""Metrics under kube-scheduler's names, held against what a running kube-scheduler v1.36.3 shows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from bayplan.serving.metrics import metrics_registry
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_core.framework.histogram import exponential_bounds
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig

POINT = exponential_bounds(0.0001, 2, 12)
ATTEMPT = exponential_bounds(0.001, 2, 15)
PLUGIN = exponential_bounds(0.00001, 1.5, 20)
LONG = exponential_bounds(0.01, 2, 20)


@dataclass(frozen=True)
class Shown:
    """A family as kube-scheduler shows it."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = field(default=())


FAMILIES = [
    Shown(
        "scheduler_framework_extension_point_duration_seconds",
        "histogram",
        ("extension_point", "profile", "status"),
        POINT,
    ),
    Shown("scheduler_pending_pods", "gauge", ("queue",)),
    Shown("scheduler_pod_scheduling_attempts", "histogram", (), (1, 2, 4, 8, 16)),
    Shown("scheduler_preemption_attempts", "counter"),
    Shown("scheduler_preemption_victims", "histogram", (), (1, 2, 4, 8, 16, 32, 64)),
    Shown("scheduler_queue_incoming_pods", "counter", ("event", "queue")),
    Shown("scheduler_schedule_attempts", "counter", ("profile", "result")),
    Shown("scheduler_scheduling_attempt_duration_seconds", "histogram", ("profile", "result"), ATTEMPT),
    Shown("scheduler_goroutines", "gauge", ("operation",)),
    Shown("scheduler_plugin_evaluation", "counter", ("extension_point", "plugin", "profile")),
    Shown("scheduler_pod_scheduling_sli_duration_seconds", "histogram", ("attempts",), LONG),
    Shown("scheduler_unschedulable_pods", "gauge", ("plugin", "profile")),
    Shown("scheduler_cache_size", "gauge", ("type",)),
    Shown("scheduler_inflight_events", "gauge", ("event",)),
    Shown("scheduler_event_handling_duration_seconds", "histogram", ("event",), POINT),
    Shown("scheduler_plugin_execution_duration_seconds", "histogram", ("extension_point", "plugin", "status"), PLUGIN),
    Shown("scheduler_pod_scheduled_after_flush", "counter"),
    Shown("scheduler_scheduling_algorithm_duration_seconds", "histogram", (), ATTEMPT),
    Shown("scheduler_queueing_hint_execution_duration_seconds", "histogram", ("event", "hint", "plugin"), PLUGIN),
    Shown("scheduler_preemption_goroutines_duration_seconds", "histogram", ("result",), LONG),
    Shown("scheduler_preemption_goroutines_execution", "counter", ("result",)),
]


def shown_by(made: Rig) -> dict[str, Metric]:
    """What is scraped, by family."""
    text = generate_latest(metrics_registry(made.scheduler, {})).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def labels_of(family: Metric) -> set[tuple[str, ...]]:
    """The label names of its samples, without the bound of buckets."""
    return {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples}


def value(families: dict[str, Metric], name: str, sample: str, **labels: str) -> float:
    """One sample's value."""
    (found,) = [each.value for each in families[name].samples if each.name == sample and each.labels == labels]
    return found


async def busy() -> Rig:
    """A scheduler that has placed pods, turned one away, preempted for another, and asked hints."""
    made = rig(defaults=default_plugins())
    made.add(node("n0"), node("n1"))
    for number in range(10):
        # Of different classes, since the plugins are not called again for pods of one class.
        made.add(pod(f"p{number}", image=f"image-{number}", requests={"cpu": f"{number + 1}m"}))
        assert await made.attempt()
    made.add(pod("huge", requests={"cpu": "100"}))
    assert not await made.attempt()
    made.add(node("n2"))
    for name in ("n0", "n1", "n2"):
        made.add(running(name))
    made.add(pod("urgent", requests={"cpu": "3"}, priority=1000))
    assert not await made.attempt()
    return made


def running(node_name: str) -> Pod:
    """A pod of no importance that fills a node."""
    return pod(f"fills-{node_name}", node_name=node_name, requests={"cpu": "3"}, priority=1)


@pytest.mark.parametrize("expected", FAMILIES, ids=lambda each: each.name)
async def test_a_family_is_as_kube_scheduler_shows_it(expected: Shown) -> None:
    """Type, label names and buckets are those that dashboards expect."""
    family = shown_by(await busy())[expected.name]
    assert family.type == expected.kind
    assert labels_of(family) == {expected.labels}
    bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
    assert sorted(map(float, bounds)) == ([*expected.bounds, float("inf")] if expected.bounds else [])
    assert all(not bound.endswith(".0") for bound in bounds)


async def test_attempts() -> None:
    """Each attempt counts once, with its result, in its duration as well; a bound pod counts with its attempts."""
    shown = shown_by(await busy())
    for result, count in (("scheduled", 10), ("unschedulable", 2), ("error", 0)):
        labels = {"profile": "default-scheduler", "result": result}
        assert value(shown, "scheduler_schedule_attempts", "scheduler_schedule_attempts_total", **labels) == count
    name = "scheduler_scheduling_attempt_duration_seconds"
    assert value(shown, name, f"{name}_count", profile="default-scheduler", result="scheduled") == 10
    name = "scheduler_scheduling_algorithm_duration_seconds"
    assert value(shown, name, f"{name}_count") == 12
    name = "scheduler_pod_scheduling_sli_duration_seconds"
    assert value(shown, name, f"{name}_count", attempts="1") == 10


async def test_preemption() -> None:
    """Attempts count each pod for which DefaultPreemption was asked, victims those of preemptions carried out."""
    shown = shown_by(await busy())
    assert value(shown, "scheduler_preemption_attempts", "scheduler_preemption_attempts_total") == 2
    name = "scheduler_preemption_victims"
    assert (value(shown, name, f"{name}_count"), value(shown, name, f"{name}_sum")) == (1, 1)
    name = "scheduler_preemption_goroutines_execution"
    assert value(shown, name, f"{name}_total", result="success") == 1


async def test_evaluations() -> None:
    """PreFilter counts pods that it did not skip, Filter and Score count nodes; who was never asked shows 0."""
    shown = shown_by(await busy())
    name = "scheduler_plugin_evaluation"
    counted = {
        (sample.labels["extension_point"], sample.labels["plugin"]): sample.value for sample in shown[name].samples
    }
    assert counted["PreFilter", "NodeResourcesFit"] >= 12
    assert counted["Filter", "NodeUnschedulable"] >= 10 * 2
    assert counted["Score", "NodeResourcesFit"] == 10 * 2
    assert counted["Filter", "NodePorts"] == 0


async def test_points() -> None:
    """A point counts once for each cycle that ran it, by what it answered."""
    shown = shown_by(await busy())
    name = "scheduler_framework_extension_point_duration_seconds"

    def count(point: str, status: str) -> float:
        return value(shown, name, f"{name}_count", extension_point=point, status=status, profile="default-scheduler")

    assert [count(point, "Success") for point in ("PreFilter", "Filter", "Reserve", "Bind", "PostBind")] == [
        12,
        12,
        10,
        10,
        10,
    ]
    assert (count("PostFilter", "Unschedulable"), count("PostFilter", "Success")) == (1, 1)


async def test_one_cycle_of_ten_has_its_plugins_timed() -> None:
    """Which ones is not left to chance."""
    shown = shown_by(await busy())
    name = "scheduler_plugin_execution_duration_seconds"
    labels = {"plugin": "DefaultBinder", "extension_point": "Bind", "status": "Success"}
    assert value(shown, name, f"{name}_count", **labels) == 1


async def test_a_withdrawn_profile_is_not_shown() -> None:
    """Whoever is given its name next has done nothing yet."""
    made = await busy()
    made.scheduler.withdraw("default-scheduler")
    shown = shown_by(made)
    assert not shown["scheduler_framework_extension_point_duration_seconds"].samples
    assert not shown["scheduler_plugin_evaluation"].samples
