"""NodeUnschedulable: cordoned nodes accept only pods that tolerate the cordon.

Reads ``spec.unschedulable``. The node controller also adds a taint, which TaintToleration handles; the field takes
effect at once, the taint only when the controller has acted.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go``.
"""

from __future__ import annotations

import numpy as np

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource, hint_on
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
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.taints import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE, Taint, tolerated
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_CORDON = Taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)


@hint_on(Node)
def after_node_change(pod: Pod, old: Node | None, new: Node | None) -> Hint:
    """Queue if the node was added uncordoned, or was uncordoned."""
    was_closed = old is None or old.spec.unschedulable
    return Hint.QUEUE if new is None or (was_closed and not new.spec.unschedulable) else Hint.SKIP


@hint_on(Pod)
def after_toleration_change(pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
    """Queue if the update is of this pod and it tolerates a cordon now."""
    if new is None:
        return Hint.QUEUE
    if new.metadata.uid != pod.metadata.uid:
        return Hint.SKIP
    return Hint.QUEUE if tolerated(_CORDON, new.spec.tolerations) else Hint.SKIP


class NodeUnschedulable(PreFilterPlugin, FilterPlugin):
    """Rules out cordoned nodes."""

    name = "NodeUnschedulable"
    handles_resizes = False
    reasons = (unresolvable("node(s) were unschedulable"),)
    reuse = Reuse(filter=Reads.NODE, pod=PodReads.NOTHING, prepares_once=True)
    events = (
        EventRegistration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), after_node_change),
        EventRegistration(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION), after_toleration_change),
    )

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Continue; the extension point is there so that a profile may name the plugin at it, as in kube-scheduler."""
        return CONTINUE

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject cordoned rows; None if there are none in ``rows`` or the pod tolerates the cordon."""
        cordoned = nodes.unschedulable[rows]
        if not cordoned.any() or tolerated(_CORDON, pod.pod.spec.tolerations):
            return None
        return cordoned.astype(np.int16)
