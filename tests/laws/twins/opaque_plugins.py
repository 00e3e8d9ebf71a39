"""Third-party plugins for the twins: per node and vectorised, none of which declares what it reads.

They read the pods on a node, skip some pods and fail for others, so that every way out of a plugin is compared.
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
from scheduler_core.framework.node_view import NodeView
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error, unresolvable, unschedulable
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_SEATS = 3


def _app(pod: PodInfo) -> str:
    return pod.pod.metadata.labels.get("app", "")


class SeatsPerNode(NodeFilterPlugin, PreFilterPlugin):
    """Limits the pods of one app on a node; skips pods without an app; fails for "a5" in zone "a"."""

    name = "SeatsPerNode"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        return PreFilterResult(SUCCESS if _app(pod) else SKIP)

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        app, zone = _app(pod), node.labels.get("zone")
        if (app, zone) == ("a5", "a"):
            return error(f"the seats of node {node.name} cannot be read")
        if (app, zone) == ("a4", "b"):
            return unresolvable("node(s) had no seats")
        taken = sum(_app(other) == app for other in node.pods)
        return SUCCESS if taken < _SEATS else unschedulable(f"node(s) had {taken} seats taken")


class QuietPerNode(NodeScorePlugin):
    """Prefers nodes with few pods, normalised by itself; raises for app "a6" on a node of six pods or more."""

    name = "QuietPerNode"
    normalization = Normalization.OWN

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        count = sum(1 for _ in node.pods)
        if count > 5 and _app(pod) == "a6":
            raise ValueError(f"node {node.name} is loud")
        return count

    def normalize(self, state: CycleState, pod: PodInfo, raw: Mapping[str, int]) -> Mapping[str, int]:
        most = max(raw.values(), default=0)
        return {name: 100 - 100 * count // most if most else 0 for name, count in raw.items()}


class OddCounts(FilterPlugin):
    """Rejects nodes by their number of pods, in array operations; its answer depends on the pod's name."""

    name = "OddCounts"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        if not _app(pod):
            return None
        codes: Codes = ((nodes.pod_count[rows] + len(pod.key)) % 7 == 3).astype(np.int16)
        return codes

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("node(s) had an odd count of pods")


OPAQUE_PLUGINS = (SeatsPerNode, QuietPerNode, OddCounts)
