"""Dry runs of filters with simulated removal of pods."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    NodeFilterPlugin,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
)
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error, unschedulable
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.preemption import PreemptionWorld
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, Rig, rig
from tests.support.tables import table

ROW = np.array([0], dtype=np.intp)
WANTED = pod("wants", requests={"cpu": "1"})
PODS = [pod(f"p{index}", node_name="a", requests={"cpu": "2"}, ports=[80]) for index in range(2)]


def world() -> tuple[PreemptionWorld, CycleState, PodInfo]:
    made = PreemptionWorld([node("a"), node("b", allocatable={"cpu": "0", "pods": "9"})], PODS)
    failed = present(made.failed_attempt(WANTED))
    return made, failed[0].state, failed[0].info


def test_a_host_port_is_free_when_one_of_its_pods_is_removed() -> None:
    """A host port is free when one of two pods with it is removed, as in kube-scheduler."""
    made, state, _ = world()
    incoming = made.columns.compile_pod(pod("incoming", ports=[80]))
    first, _ = made.columns.pods[0].values()
    with made.handle.dry_run(state, incoming) as dry_run:
        dry_run.remove(first)
        assert made.columns.host_ports.conflicting_rows(incoming.host_ports).tolist() == []
        dry_run.restore(first)
        assert made.columns.host_ports.conflicting_rows(incoming.host_ports).tolist() == [0]
        dry_run.remove(first)
    assert made.columns.host_ports.conflicting_rows(incoming.host_ports).tolist() == [0]


def test_resources_and_ports_are_local_to_rows() -> None:
    """The dry run is row-local for pods without inter-pod affinity and spread constraints."""
    made, state, info = world()
    state.skip_filter |= {"PodTopologySpread", "InterPodAffinity"}
    with made.handle.dry_run(state, info) as dry_run:
        assert dry_run.is_row_local


class Counting(PreFilterPlugin, PreFilterExtensions):
    """PreFilter plugin that records the pods that are added and removed."""

    name = "Counting"
    calls: ClassVar[list[str]]
    answer = SUCCESS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        del state, pod, nodes
        return PreFilterResult()

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        del state, pod, nodes
        self.calls.append(f"+{added.pod.metadata.name}@{row}")
        return self.answer

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        del state, pod, nodes
        self.calls.append(f"-{removed.pod.metadata.name}@{row}")
        return self.answer


class SingleNodeFilter(NodeFilterPlugin):
    """Filter plugin that evaluates one node at a time."""

    name = "SingleNodeFilter"

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        del state, pod
        return unschedulable("taken") if list(node.pods) else SUCCESS


def staged(*plugins: type[Counting | SingleNodeFilter]) -> Rig:
    made = rig(plugins)
    made.add(node("a"), PODS[0])
    return made


def test_plugins_are_called_for_each_step() -> None:
    """PreFilterExtensions are called for each step unless PreFilter skipped; such a dry run is not row-local."""

    class Recording(Counting):
        calls: ClassVar[list[str]] = []

    made = staged(Recording)
    columns = made.columns
    info, (running,) = columns.compile_pod(WANTED), columns.pods[0].values()
    plugin = Recording.calls
    instance = present(made.context.profiles.get(DEFAULT_NAME))
    handle = instance.pre_filter[0].handle
    with handle.dry_run(CycleState(), info) as dry_run:
        assert not dry_run.is_row_local
        dry_run.remove(running)
        dry_run.restore(running)
    skipped = CycleState()
    skipped.skip_filter.add("Counting")
    with handle.dry_run(skipped, info) as dry_run:
        dry_run.remove(running)
    assert plugin == ["-p0@0", "+p0@0"]


@table("answer", ("error", error("lost")), ("invalid-status", SKIP))
def test_a_failed_pre_filter_extension(answer: Status) -> None:
    """A failed RemovePod raises an error with the plugin's name, and the pod is restored."""

    class Failing(Counting):
        calls: ClassVar[list[str]] = []

    Failing.answer = answer
    made = staged(Failing)
    columns = made.columns
    info, (running,) = columns.compile_pod(WANTED), columns.pods[0].values()
    instance = present(made.context.profiles.get(DEFAULT_NAME))
    with (
        pytest.raises(PluginError, match="Counting"),
        instance.pre_filter[0].handle.dry_run(CycleState(), info) as dry_run,
    ):
        dry_run.remove(running)
    assert running.row == 0


def test_plugins_that_read_single_nodes_are_called_again() -> None:
    """A dry run with a plugin that evaluates single nodes is not row-local, and calls the plugin for each run."""
    made = staged(SingleNodeFilter)
    columns = made.columns
    info, (running,) = columns.compile_pod(WANTED), columns.pods[0].values()
    instance = present(made.context.profiles.get(DEFAULT_NAME))
    with made.scheduler.build(instance.config).bind[0].handle.dry_run(CycleState(), info) as dry_run:
        assert not dry_run.is_row_local
        assert dry_run.run_filters(ROW)[0] != 0
        dry_run.remove(running)
        assert dry_run.run_filters(ROW)[0] == 0
