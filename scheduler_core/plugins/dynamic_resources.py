"""DynamicResources: pods that claim devices are turned away, and all others pass as the reference lets them.

Owns the answers for pods without claims, which every profile shows: it stands before DefaultPreemption, so its words
begin the message of each failed preemption. Devices are not allocated yet; a pod that claims some is told so, since
placing it anyhow would leave it without them on its node.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go``.
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

_LOOKED_AT: StateKey[bool] = StateKey("DynamicResources/preFilter")
_NO_CLAIMS = PreFilterResult(SKIP)
_NOT_SUPPORTED = unresolvable("resource claims are not supported yet; remove spec.resourceClaims from the pod")
_NOTHING_TO_DEALLOCATE = PostFilterResult(unschedulable("no new claims to deallocate"))
_NOT_LOOKED_AT = PostFilterResult(error("not found"))


class DynamicResources(
    PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, PostFilterPlugin, ScorePlugin, ReservePlugin, PreBindPlugin
):
    """Turns away pods with resource claims."""

    name = "DynamicResources"
    reuse = Reuse(filter=Reads.NODE, score=Reads.NODE, pod=PodReads.NOTHING)
    args_model = DynamicResourcesArgs

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Whether there are claims says it all."""
        del pod, nodes
        return always

    def events_to_register(self) -> Sequence[EventRegistration]:
        """None: a pod's claims cannot be changed, and nothing else would help."""
        return ()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Let every pod in, so that one with claims is told why it is not placed."""
        del pod
        return SUCCESS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Skip a pod without claims, reject any other."""
        del nodes
        state.write(_LOOKED_AT, True)
        if pod.pod.spec.resource_claims:
            return PreFilterResult(_NOT_SUPPORTED)
        # Its score would be 0 everywhere.
        state.skip_score.add(self.name)
        return _NO_CLAIMS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Every row will do: pods with claims have been rejected already."""
        del state, pod, nodes, rows
        return None

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """The one rejection there is."""
        del state, pod, code
        return _NOT_SUPPORTED

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """There is no claim to give up; an error where PreFilter did not come so far, which ends PostFilter."""
        del pod, nodes, diagnosis
        return _NOTHING_TO_DEALLOCATE if state.get(_LOOKED_AT) else _NOT_LOOKED_AT

    def preview(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis) -> PostFilterPreview:
        """The same; it changes nothing."""
        return PostFilterPreview(self.post_filter(state, pod, nodes, diagnosis))

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """0 everywhere, int64 per row."""
        del state, pod
        return np.zeros(nodes.size if isinstance(rows, slice) else len(rows), dtype=np.int64)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Nothing is to be held."""
        del state, pod, node_name
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Nothing was held."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Nothing is to be written."""
        del state, pod, node_name
        return SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Nothing is to be written."""
        del state, pod, node_name
        return SUCCESS
