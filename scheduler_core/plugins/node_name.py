"""NodeName: a pod that names a node runs only on that node.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/nodename/node_name.go``.
"""

import numpy as np

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    CONTINUE,
    Codes,
    FilterPlugin,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Reuse,
)
from scheduler_core.framework.status import unresolvable
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo


class NodeName(PreFilterPlugin, FilterPlugin):
    """Rules out every node except the one that the pod's spec names."""

    name = "NodeName"
    reasons = (unresolvable("node(s) didn't match the requested node name"),)
    reuse = Reuse(filter=Reads.NODE, pod=PodReads.NOTHING, prepares_once=True)
    events = (EventRegistration(ClusterEvent(Resource.NODE, Action.ADD)),)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Return the named node; a pod without one may run on all nodes."""
        name = pod.pod.spec.node_name
        return PreFilterResult(node_names=frozenset((name,))) if name else CONTINUE

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject all rows except that of the named node; None if the pod names none."""
        name = pod.pod.spec.node_name
        if not name:
            return None
        codes: Codes = (np.arange(nodes.size)[rows] != nodes.row_of(name)).astype(np.int16)
        return codes
