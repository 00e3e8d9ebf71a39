"""Third-party plugins for the twin schedulers, per node and vectorised, which do not declare what they read.

They skip some pods and fail for others, so that every result of a plugin is compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    Normalization,
    PreFilterPlugin,
    PreFilterResult,
)
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error, unresolvable, unschedulable
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_APP_LIMIT = 3


def _app(pod: PodInfo) -> str:
    return pod.pod.metadata.labels.get("app", "")


class AppLimitPerNode(NodeFilterPlugin, PreFilterPlugin):
    """Limits the pods of one app on a node; skips pods without an app; fails for "a5" in zone "a"."""

    name = "AppLimitPerNode"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        return PreFilterResult(SUCCESS if _app(pod) else SKIP)

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        app, zone = _app(pod), node.labels.get("zone")
        if (app, zone) == ("a5", "a"):
            return error(f"the pods of node {node.name} cannot be read")
        if (app, zone) == ("a4", "b"):
            return unresolvable("node(s) did not allow the app")
        count = sum(_app(other) == app for other in node.pods)
        return SUCCESS if count < _APP_LIMIT else unschedulable(f"node(s) had {count} pods of the app")


class FewPodsPerNode(NodeScorePlugin):
    """Prefers nodes with few pods, with its own normalization; raises for app "a6" on nodes with six or more pods."""

    name = "FewPodsPerNode"
    normalization = Normalization.OWN

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        count = sum(1 for _ in node.pods)
        if count > 5 and _app(pod) == "a6":
            raise ValueError(f"node {node.name} has too many pods")
        return count

    def normalize(self, state: CycleState, pod: PodInfo, raw: Mapping[str, int]) -> Mapping[str, int]:
        maximum = max(raw.values(), default=0)
        return {name: 100 - 100 * count // maximum if maximum else 0 for name, count in raw.items()}


class PodCountFilter(FilterPlugin):
    """Rejects nodes by their number of pods, in array operations; the result depends on the pod's name."""

    name = "PodCountFilter"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        if not _app(pod):
            return None
        codes: Codes = ((nodes.pod_count[rows] + len(pod.key)) % 7 == 3).astype(np.int16)
        return codes

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("node(s) had a rejected number of pods")


OPAQUE_PLUGINS = (AppLimitPerNode, FewPodsPerNode, PodCountFilter)
