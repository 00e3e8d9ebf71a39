"""DeferredPodScheduling: a running pod whose resize is deferred stays on its node, and may preempt there if allowed.

Such pods are queued only with the feature gate InPlacePodVerticalScalingSchedulerPreemption; for others the plugin
does nothing.

Follows kube-scheduler v1.37.1,
``pkg/scheduler/framework/plugins/deferredpodscheduling/deferred_pod_scheduling.go``. Its Permit, which rejects a pod
whose resize fits, is not reached there either: the pod cannot be assumed.
"""

from __future__ import annotations

import numpy as np

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource, hint_on
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    CONTINUE,
    Codes,
    FilterPlugin,
    PermitPlugin,
    PermitResult,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Reuse,
)
from scheduler_core.framework.status import SKIP, SUCCESS, unresolvable
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_OTHER_NODE, _DISABLED = 1, 2
_FITS = unresolvable("pod resize fits, waiting for Kubelet actuation")


@hint_on(Node)
def after_policy_change(pod: Pod, old: Node | None, new: Node | None) -> Hint:
    """Queue if preemption is no longer disabled on the pod's node."""
    if old is None or new is None:
        return Hint.QUEUE
    if not pod.has_deferred_resize or new.metadata.name != pod.spec.node_name:
        return Hint.SKIP
    is_enabled = old.spec.disables_resize_preemption and not new.spec.disables_resize_preemption
    return Hint.QUEUE if is_enabled else Hint.SKIP


@hint_on(Node)
def after_node_addition(pod: Pod, old: Node | None, new: Node | None) -> Hint:
    """Queue if the node is the pod's and does not disable preemption."""
    if new is None:
        return Hint.QUEUE
    if not pod.has_deferred_resize or new.metadata.name != pod.spec.node_name:
        return Hint.SKIP
    return Hint.SKIP if new.spec.disables_resize_preemption else Hint.QUEUE


class DeferredPodScheduling(PreFilterPlugin, FilterPlugin, PermitPlugin):
    """Rules out other nodes than the pod's own, and its own if preemption for resizes is disabled there."""

    name = "DeferredPodScheduling"
    reasons = (unresolvable("pod assigned to different node"), unresolvable("node had resize preemption disabled"))
    reuse = Reuse(filter=Reads.NODE, pod=PodReads.NOTHING, prepares_once=True)
    events = (
        EventRegistration(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_PREEMPTION_POLICY), after_policy_change),
        EventRegistration(ClusterEvent(Resource.NODE, Action.ADD), after_node_addition),
    )

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Skip pods other than those whose resize is deferred."""
        return CONTINUE if pod.pod.has_deferred_resize else PreFilterResult(SKIP)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows of other nodes, and that of the pod's node if its policy disables preemption."""
        if not pod.pod.has_deferred_resize:
            return None
        home = nodes.row_of(pod.pod.spec.node_name)
        row_array = np.arange(nodes.size)[rows]
        codes: Codes = np.full(len(row_array), _OTHER_NODE, dtype=np.int16)
        node = nodes.nodes[home] if home >= 0 else None
        codes[row_array == home] = _DISABLED if node is not None and node.spec.disables_resize_preemption else 0
        return codes

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Reject a pod whose resize fits: the kubelet carries it out."""
        return PermitResult(_FITS if pod.pod.has_deferred_resize else SUCCESS)
