"""DynamicResources: rejects pods with resource claims; devices are not allocated yet.

For pods without claims it returns the same as in kube-scheduler. A pod with claims is rejected with a reason, because
it would run without its devices otherwise.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scheduler_core.config.plugin_args import DynamicResourcesArgs
from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    PodReads,
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    ReservePlugin,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error, unresolvable, unschedulable
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_PRE_FILTER_RAN: StateKey[bool] = StateKey("DynamicResources/preFilter")
_NO_CLAIMS = PreFilterResult(SKIP)
_NOT_SUPPORTED = unresolvable("resource claims are not supported yet; remove spec.resourceClaims from the pod")
_NOTHING_TO_DEALLOCATE = PostFilterResult(unschedulable())
_PRE_FILTER_DID_NOT_RUN = PostFilterResult(error("not found"))


class DynamicResources(
    PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, PostFilterPlugin, ScorePlugin, ReservePlugin, PreBindPlugin
):
    """Rejects pods with resource claims."""

    name = "DynamicResources"
    reasons = (_NOT_SUPPORTED,)
    reuse = Reuse(filter=Reads.NODE, score=Reads.NODE, pod=PodReads.NOTHING)
    args_model = DynamicResourcesArgs

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that always holds: the results depend only on the pod's resource claims."""
        del pod, nodes
        return always

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return no events: a pod's claims are immutable, and no other change helps."""
        return ()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Admit all pods, so that a pod with claims gets a condition that says why it is unschedulable."""
        del pod
        return SUCCESS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Return Skip for a pod without claims, reject any other."""
        del nodes
        state.write(_PRE_FILTER_RAN, True)
        if pod.pod.spec.resource_claims:
            return PreFilterResult(_NOT_SUPPORTED)
        # The score would be 0 on all nodes.
        state.skip_score.add(self.name)
        return _NO_CLAIMS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Return None: PreFilter has rejected pods with claims."""
        del state, pod, nodes, rows
        return None

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Reject without a reason; return an error, which ends PostFilter, if PreFilter did not run."""
        del pod, nodes, diagnosis
        return _NOTHING_TO_DEALLOCATE if state.get(_PRE_FILTER_RAN) else _PRE_FILTER_DID_NOT_RUN

    def preview(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis) -> PostFilterPreview:
        """Return the result of ``post_filter``, which changes nothing."""
        return PostFilterPreview(self.post_filter(state, pod, nodes, diagnosis))

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return 0 for every row, int64."""
        del state, pod
        return np.zeros(nodes.size if isinstance(rows, slice) else len(rows), dtype=np.int64)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Do nothing."""
        del state, pod, node_name
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Do nothing."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Return Skip: there is nothing to write."""
        del state, pod, node_name
        return SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Do nothing."""
        del state, pod, node_name
        return SUCCESS
