"""PodTopologySpread: spreads matching pods evenly over the domains of a topology.

This module chooses between the pod's own constraints and the defaults; each extension point has a module.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/podtopologyspread/``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from scheduler_core.config.plugin_args import PodTopologySpreadArgs
from scheduler_core.errors import SelectorError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    CONTINUE,
    Codes,
    FilterPlugin,
    Normalization,
    PodReads,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Reads,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.pod_topology_spread import hints
from scheduler_core.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    Constraints,
    NodeInclusion,
    compiled,
)
from scheduler_core.plugins.pod_topology_spread.default_constraints import (
    constraints_of,
    default_constraints,
    is_system_defaulted,
)
from scheduler_core.plugins.pod_topology_spread.details import spread_details
from scheduler_core.plugins.pod_topology_spread.filtering import REASONS, REQUIRED, RequiredSpread
from scheduler_core.plugins.pod_topology_spread.scoring import PREFERRED, SpreadScoring
from scheduler_core.snapshot.indexes.workload_index import WorkloadIndex
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo, compiled_pod

__all__ = ["PodTopologySpread"]

_SKIPPED = PreFilterResult(SKIP)


class PodTopologySpread(PreFilterPlugin, PreFilterExtensions, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Limits the difference of the numbers of matching pods between topology domains."""

    name = "PodTopologySpread"
    handles_resizes = False
    reasons = REASONS
    reuse = Reuse(filter=Reads.DOMAINS, score=Reads.DOMAINS, pod=PodReads.LABELS)
    args_model = PodTopologySpreadArgs
    normalization = Normalization.OWN

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        checked: PodTopologySpreadArgs = PodTopologySpreadArgs() if args is None else args
        self._defaults = constraints_of(checked)
        self._is_system_defaulted = is_system_defaulted(checked)
        self._inclusion = NodeInclusion(handle.nodes.bounds, handle.nodes.steps)
        self._compiled: WeakKeyDictionary[PodInfo, Constraints] = WeakKeyDictionary()

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check for a pod without constraints; it holds until default constraints may apply. Else None."""
        if pod.pod.spec.topology_spread_constraints:
            return None
        workloads, version = nodes.workloads, nodes.workloads.version
        if any(self._constraints(pod.pod, workloads, action) for action in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)):
            return None
        return lambda: workloads.version == version

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return additions, deletions and relevant updates of pods and nodes."""
        assigned = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE)
        own = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION)
        node_actions = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return (
            EventRegistration(assigned, self.after_pod_change),
            EventRegistration(own, self.after_pod_change),
            EventRegistration(ClusterEvent(Resource.NODE, node_actions), self.after_node_change),
        )

    def after_pod_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if the counts of the constraints may change."""
        if not isinstance(old, Pod | None) or not isinstance(new, Pod | None):
            return Hint.QUEUE
        try:
            constraints = self._constraints_for_hint(pod)
        except SelectorError:
            return Hint.QUEUE
        return hints.after_pod_change(pod, constraints, old, new)

    def after_node_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if domains, or the nodes that count in them, may change."""
        if not isinstance(old, Node | None) or not isinstance(new, Node | None):
            return Hint.QUEUE
        try:
            constraints = self._constraints_for_hint(pod)
        except SelectorError:
            return Hint.QUEUE
        return hints.after_node_change(constraints, old, new)

    def _constraints_for_hint(self, pod: Pod) -> Constraints:
        """Return the required constraints; those of a waiting pod's spec are compiled once, not at each event."""
        info = compiled_pod(pod)
        if info is None or not pod.spec.topology_spread_constraints:
            return self._constraints(pod, self.handle.nodes.workloads, DO_NOT_SCHEDULE)
        found = self._compiled.get(info)
        if found is None:
            found = self._compiled[info] = compiled(
                pod.spec.topology_spread_constraints, pod.metadata.labels, DO_NOT_SCHEDULE
            )
        return found

    def _constraints(self, pod: Pod, workloads: WorkloadIndex, action: str) -> Constraints:
        """Return the pod's constraints with this action or, if the pod has no constraints at all, the defaults."""
        own = pod.spec.topology_spread_constraints
        if own:
            return compiled(own, pod.metadata.labels, action)
        return default_constraints(self._defaults, pod, workloads, action)

    # -- filtering ----------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Count matching pods per domain; return Skip if the pod has no required constraint."""
        try:
            constraints = self._constraints(pod.pod, nodes.workloads, DO_NOT_SCHEDULE)
        except SelectorError as problem:
            return PreFilterResult(error(f"invalid topology spread constraints; correct the pod's spec: {problem}"))
        if not constraints:
            return _SKIPPED
        state.write(REQUIRED, RequiredSpread.of(pod, nodes, constraints, self._inclusion))
        return CONTINUE

    def details(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> tuple[str, ...]:
        """Return the counts of the constraints that reject a row, and the domains that set the minimum."""
        spread = state.get(REQUIRED)
        return () if spread is None else tuple(spread_details(spread, pod, nodes, row, self._inclusion))

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """Add ``added`` to the counts."""
        del nodes
        state.read(REQUIRED).count(pod, added, row, 1)
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """Subtract ``removed`` from the counts."""
        del nodes
        state.read(REQUIRED).count(pod, removed, row, -1)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows without a topology key, and rows whose domain would exceed the skew."""
        del pod, nodes
        return state.read(REQUIRED).codes(rows)

    # -- scoring ------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Compute weights of the domains of the feasible rows; return Skip if the pod has no preferred constraint."""
        try:
            constraints = self._constraints(pod.pod, nodes.workloads, SCHEDULE_ANYWAY)
        except SelectorError as problem:
            return error(f"invalid topology spread constraints; correct the pod's spec: {problem}")
        if not constraints:
            return SKIP
        needs_all_keys = bool(pod.pod.spec.topology_spread_constraints) or not self._is_system_defaulted
        scoring = SpreadScoring(pod, nodes, rows, needs_all_keys)
        state.write(PREFERRED, scoring.preferred(constraints, self._inclusion))
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return the weighted number of matching pods in the row's domains, int64 per row; lower is better."""
        del pod, nodes, rows
        return state.read(PREFERRED).raw()

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        """Invert the scores to 0..100; ignored rows get 0."""
        del pod
        return state.read(PREFERRED).normalized(raw)
