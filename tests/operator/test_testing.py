"""Tests of the checks for plugin authors: a correct plugin passes, and each broken guarantee is found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from bayplan.testing import BrokenGuaranteeError, check_plugin
from bayplan_example_plugins.license_seats import LicenseSeats
from bayplan_example_plugins.node_cost import ANNOTATION, NodeCost

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    NodeFilterPlugin,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.plugin import Plugin, always
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity
from scheduler_core.plugins.node_affinity import NodeAffinity
from scheduler_core.plugins.node_name import NodeName
from scheduler_core.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.plugins.node_unschedulable import NodeUnschedulable
from scheduler_core.plugins.taint_toleration import TaintToleration
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.tables import table

AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "10"}
SEATS = {"metadata": {"labels": {"licenses.example.com/solver": "1"}}, "status": {"allocatable": AMOUNTS}}
CHEAP = {"metadata": {"annotations": {ANNOTATION: "0.5"}}, "status": {"allocatable": AMOUNTS}}
SOLVER = {
    "metadata": {"labels": {"licenses.example.com/name": "solver"}},
    "spec": {"containers": [{"name": "main", "image": "solver"}]},
}


@pytest.mark.parametrize(
    "plugin",
    [
        InterPodAffinity,
        NodeAffinity,
        NodeName,
        NodeResourcesBalancedAllocation,
        NodeResourcesFit,
        NodeUnschedulable,
        TaintToleration,
        NodeCost,
        LicenseSeats,
    ],
)
def test_correct_plugins_pass(plugin: type[Plugin]) -> None:
    """Built-in plugins and the example plugins keep every guarantee."""
    check_plugin(plugin, nodes=[SEATS, CHEAP], pods=[SOLVER], rounds=10)


def _codes_of_rows_with_pods(nodes: NodeColumns, rows: Rows) -> Codes:
    crowded: Codes = (nodes.pod_count[rows] > 1).astype(np.int16)
    return crowded


class _Bad(FilterPlugin):
    name = "Bad"
    reasons = (unschedulable("node(s) were bad"),)


class OwnRow(_Bad):
    """Plugin whose result for one row differs from that for all rows."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return _codes_of_rows_with_pods(nodes, rows)

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        return 0


class IgnoresRows(_Bad):
    """Plugin that numbers the rows of the call."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        codes: Codes = (np.arange(len(nodes.pod_count[rows])) % 2).astype(np.int16)
        return codes


class CountsDeadRows(ScorePlugin):
    """Plugin whose score depends on the number of rows."""

    name = "Bad"

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        return np.full(len(nodes.pod_count[rows]), nodes.size, dtype=np.int64)


class KeepsState(_Bad):
    """Plugin that rejects pods after the first call."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        name = pod.pod.metadata.name
        self.seen = getattr(self, "seen", 0) + (name.startswith("earlier"))
        return np.ones(len(nodes.pod_count[rows]), dtype=np.int16) if self.seen else None


class HidesLabels(_Bad):
    """Plugin that reads labels of the pod and declares that it reads none."""

    reuse = Reuse(filter=Reads.NODE, pod=PodReads.NOTHING)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        count = len(nodes.pod_count[rows])
        return np.ones(count, dtype=np.int16) if "checked" in pod.pod.metadata.labels else None


class HidesName(NodeFilterPlugin):
    """Plugin that reads the pod's name and declares only its labels."""

    name = "Bad"
    reuse = Reuse(pod=PodReads.LABELS)

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        return unschedulable("node(s) were bad") if pod.pod.metadata.name == "another" else SUCCESS


class HidesPods(_Bad):
    """Plugin that reads the pods of the node and declares only the Node object."""

    reuse = Reuse(filter=Reads.NODE, pod=PodReads.NOTHING)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return _codes_of_rows_with_pods(nodes, rows)


class HidesOtherNodes(ScorePlugin):
    """Plugin whose score depends on other nodes and that declares only its own row."""

    name = "Bad"
    reuse = Reuse(score=Reads.NODE, pod=PodReads.NOTHING)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        return np.full(len(nodes.pod_count[rows]), int(nodes.alive.sum()), dtype=np.int64)


class AlwaysHolds(PreFilterPlugin, _Bad):
    """Plugin whose PreFilter reads pods of the cluster and whose reuse check reports no change."""

    reuse = Reuse(filter=Reads.DOMAINS, pod=PodReads.NOTHING)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        self.total = int(nodes.pod_count.sum())
        self.by_state = getattr(self, "by_state", {})
        self.by_state[id(state)] = self.total
        return PreFilterResult()

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        return always

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return np.full(len(nodes.pod_count[rows]), self.by_state[id(state)] % 2, dtype=np.int16)


@table(
    "plugin, guarantee",
    ("one-row", OwnRow, "one row"),
    ("rows", IgnoresRows, "rows"),
    ("dead-rows", CountsDeadRows, "dead rows"),
    ("state", KeepsState, "no state"),
    ("labels", HidesLabels, "pod reads"),
    ("name", HidesName, "pod reads"),
    ("pods", HidesPods, "cluster reads"),
    ("nodes", HidesOtherNodes, "cluster reads"),
    ("reuse-check", AlwaysHolds, "reuse check"),
)
def test_a_broken_guarantee_is_found(plugin: type[Plugin], guarantee: str) -> None:
    """The error names the plugin, the guarantee and both results."""
    with pytest.raises(BrokenGuaranteeError, match=r"plugin Bad breaks a guarantee: .* instead of") as caught:
        check_plugin(plugin)
    assert caught.value.guarantee == guarantee
