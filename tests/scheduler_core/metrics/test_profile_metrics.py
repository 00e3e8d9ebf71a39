"""Metrics of profiles, of plugins that record their own, and of gangs.

Cycles are counted in batches, with the same result as counting each when it ends.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bayplan.serving.bayplan_metrics import metrics_registry
from prometheus_client import generate_latest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleStage, CycleState
from scheduler_core.framework.extension_points import FilterPlugin, ReservePlugin
from scheduler_core.framework.status import SUCCESS, Code, Status, unschedulable
from scheduler_core.metrics.scheduler_metrics import SAMPLING_INTERVAL, RecordedPluginMetrics
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gangs import group, members, settle_gang
from tests.support.scheduling import BARE, DEFAULT_NAME, Rig, plugin_set, rig
from tests.support.tables import table

SECONDS = 1 / 16
PODS = 3 * SAMPLING_INTERVAL


class Slow(FilterPlugin, ReservePlugin):
    """Plugin that takes 1/16 s at Filter, and raises at Filter for pods with the label ``error``."""

    name = "Slow"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> None:
        self.handle.clock.advance(SECONDS)  # type: ignore[attr-defined]  # the rig's clock
        if "error" in pod.pod.metadata.labels:
            raise PluginError(self.name, "filter", "raised")

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("never called")

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


def attempted(*cpus: str, labels: dict[str, str] | None = None) -> Rig:
    """Return a scheduler after one attempt for each pod; ``cpus`` are the pods' requests."""
    plugins = ("Slow", "NodeResourcesFit", "NodePorts", "DefaultPreemption", *BARE)
    made = rig([Slow], defaults=Plugins(multi_point=plugin_set(*plugins)))
    made.add(node("n0", allocatable={"cpu": "64", "memory": "64Gi", "pods": "110"}), node("n1"))
    for number, cpu in enumerate(cpus):
        made.add(pod(f"p{number}", requests={"cpu": cpu}, labels=labels or {}))
        made.decide()
    return made


async def test_stages_are_counted_when_the_metrics_are_read() -> None:
    """Each cycle counts once for each of its stages, with their durations."""
    metrics = attempted(*["10m"] * PODS).context.metrics
    filtered = metrics.profiles[DEFAULT_NAME].stages.histograms[CycleStage.FILTER][Code.SUCCESS]
    assert filtered.count == 0
    metrics.settle()
    metrics.settle()
    assert (filtered.count, filtered.total) == (PODS, SECONDS * PODS)
    assert (metrics.algorithm.count, metrics.algorithm.total) == (PODS, SECONDS * PODS)


async def test_plugins_are_counted_in_one_cycle_of_ten() -> None:
    """Each plugin counts with its own duration and status."""
    metrics = attempted(*["10m"] * PODS).context.metrics
    slow = metrics.plugins[CycleStage.FILTER, "Slow", Code.SUCCESS]
    assert (slow.count, slow.total) == (PODS // SAMPLING_INTERVAL, SECONDS * PODS / SAMPLING_INTERVAL)
    assert metrics.plugins[CycleStage.PRE_FILTER, "NodePorts", Code.SKIP].count == PODS // SAMPLING_INTERVAL
    assert metrics.plugins[CycleStage.RESERVE, "Slow", Code.SUCCESS].total == 0


async def test_statuses_of_plugins() -> None:
    """A plugin that rejects in one sampled cycle and not in the next counts under both statuses."""
    unsampled = ["10m"] * (SAMPLING_INTERVAL - 1)
    metrics = attempted(*unsampled, "1000", *unsampled, "10m").context.metrics
    counts = {
        code.name: observed.count
        for (stage, plugin, code), observed in metrics.plugins.items()
        if (stage, plugin) == (CycleStage.FILTER, "NodeResourcesFit")
    }
    assert counts == {"UNSCHEDULABLE": 1, "SUCCESS": 1}
    assert metrics.preemption_attempts == 1


async def test_a_stage_that_an_exception_interrupts(caplog: pytest.LogCaptureFixture) -> None:
    """An interrupted stage counts with status Error and its duration; the plugin that raised does not count."""
    metrics = attempted(*["10m"] * SAMPLING_INTERVAL, labels={"error": ""}).context.metrics
    metrics.settle()
    stages = metrics.profiles[DEFAULT_NAME].stages.histograms
    failed = stages[CycleStage.FILTER][Code.ERROR]
    assert (failed.count, failed.total) == (SAMPLING_INTERVAL, SECONDS * SAMPLING_INTERVAL)
    assert stages[CycleStage.FILTER][Code.SUCCESS].count == 0
    assert stages[CycleStage.UNRESERVE][Code.SUCCESS].count == 0
    assert metrics.algorithm.total == SECONDS * SAMPLING_INTERVAL
    assert {plugin for stage, plugin, _ in metrics.plugins if stage is CycleStage.FILTER} == set()
    assert "raised" in caplog.text


# -- metrics of plugins ------------------------------------------------------------------------------------------------


async def test_plugin_metrics_are_exported_with_their_profile() -> None:
    """A plugin's metrics are exported as bayplan_plugin_, with one sample for each profile."""
    made = rig()
    (instance,) = made.context.profiles
    metrics = instance.bind[0].handle.metrics
    assert isinstance(metrics, RecordedPluginMetrics)
    metrics.count("seats_taken")
    metrics.count("seats_taken", 2)
    metrics.observe("lookup_seconds", 0.004)
    metrics.observe("lookup_seconds", 1000)
    shown = generate_latest(metrics_registry(made.scheduler, {})).decode()
    label = '{profile="default-scheduler"}'
    assert f"bayplan_plugin_seats_taken_total{label} 3.0\n" in shown
    assert 'bayplan_plugin_lookup_seconds_bucket{le="0.001",profile="default-scheduler"} 0.0\n' in shown
    assert 'bayplan_plugin_lookup_seconds_bucket{le="0.005",profile="default-scheduler"} 1.0\n' in shown
    assert f"bayplan_plugin_lookup_seconds_count{label} 2.0\n" in shown
    assert f"bayplan_plugin_lookup_seconds_sum{label} 1000.004\n" in shown


@table(
    "call, message",
    ("invalid name", lambda metrics: metrics.count("seats-taken"), "use letters, digits and _"),
    ("histogram with the name of a counter", lambda metrics: metrics.observe("a", 1), "use two"),
    ("counter that decreases", lambda metrics: metrics.count("a", -1), "only increases"),
)
def test_invalid_calls(call: Callable[[RecordedPluginMetrics], None], message: str) -> None:
    """An invalid name or amount raises PluginError in the plugin's call, not at the scrape."""
    metrics = RecordedPluginMetrics()
    metrics.count("a")
    with pytest.raises(PluginError, match=message):
        call(metrics)


# -- metrics of gang members, which are assumed one after the other and permitted together -----------------------------


async def test_a_member_does_not_count_the_time_of_the_others() -> None:
    """Permit's duration excludes the search for later members; the gang's search duration includes all members."""
    made = rig(
        [Slow],
        defaults=Plugins(multi_point=plugin_set("Slow", "NodeResourcesFit", *BARE)),
        groups=[GroupSource.BAYPLAN],
    )
    made.add(node("a"))
    await settle_gang(made, *members(3), of=group(min_member=3))
    metrics = made.context.metrics
    metrics.settle()
    stages = metrics.profiles[DEFAULT_NAME].stages.histograms
    assert stages[CycleStage.FILTER][Code.SUCCESS].total == 3 * SECONDS
    assert (stages[CycleStage.PERMIT][Code.SUCCESS].count, stages[CycleStage.PERMIT][Code.SUCCESS].total) == (3, 0)
    assert (metrics.group_algorithm.count, metrics.group_algorithm.total) == (1, 3 * SECONDS)
