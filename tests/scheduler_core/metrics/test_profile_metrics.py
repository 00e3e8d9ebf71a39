"""Metrics of profiles. Cycles are counted in batches, with the same result as counting each when it ends."""

from __future__ import annotations

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleStage, CycleState
from scheduler_core.framework.extension_points import FilterPlugin, ReservePlugin
from scheduler_core.framework.status import SUCCESS, Code, Status, unschedulable
from scheduler_core.metrics.scheduler_metrics import SAMPLING_INTERVAL
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, DEFAULT_NAME, Rig, plugin_set, rig

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
