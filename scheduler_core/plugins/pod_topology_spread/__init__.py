"""PodTopologySpread: spreads matching pods evenly over the domains of a topology.

In the score a count is weighted by the logarithm of the number of domains of its key, so that few pods spread over many
nodes compare with many pods in few zones. Nodes without a key score 0 if the pod or the profile defines the
constraints. With the system defaults, a node without a zone is still scored by its own pods.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/podtopologyspread/plugin.go`` and ``scoring.go``, with
float64 operations in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.config.plugin_args import PodTopologySpreadArgs
from scheduler_core.errors import SelectorError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    CONTINUE,
    MAX_NODE_SCORE,
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
from scheduler_core.kernels.domain_counts import DomainIds, domain_sums, domains_present
from scheduler_core.kernels.go_arithmetic import natural_logarithm
from scheduler_core.model.node import HOSTNAME, Node
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.pod_topology_spread.filtering import (
    DO_NOT_SCHEDULE,
    REASONS,
    REQUIRED,
    SCHEDULE_ANYWAY,
    Constraints,
    Mask,
    NodeInclusion,
    RequiredSpread,
    SpreadConstraint,
    compiled,
    constraints_of,
    default_constraints,
    has_all_keys,
    is_system_defaulted,
    matching_pods,
    spread_details,
    with_all_keys,
)
from scheduler_core.snapshot.indexes.selector_index import WorkloadIndex
from scheduler_core.snapshot.interning import LabelColumn
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo, compiled_pod


def _is_involved(pod: Pod, other: Pod | None) -> bool:
    """Return whether another pod, if given, can count for this pod: it is scheduled or nominated, in its namespace."""
    if other is None or other.metadata.uid == pod.metadata.uid:
        return True
    has_place = bool(other.spec.node_name or other.status.nominated_node_name)
    return has_place and other.metadata.namespace == pod.metadata.namespace


def _selects(constraint: SpreadConstraint, pod: Pod) -> bool:
    return constraint.selector.matches(pod.metadata.labels)


def _domains(node: Node, constraints: Constraints) -> list[str]:
    return [node.metadata.labels.get(constraint.topology_key, "") for constraint in constraints]


class PreferredSpread(Struct, frozen=True):
    """State from PreScore to NormalizeScore.

    Attributes:
        parts: Per constraint, float64 per requested row.
        ignored: bool per requested row: it has not all required keys; None if all rows have them.
    """

    parts: tuple[NDArray[np.float64], ...]
    ignored: Mask | None

    def raw(self) -> Scores:
        """Return the sum of the parts, rounded half away from zero; int64 per row, 0 where ignored."""
        total = self.parts[0]
        for part in self.parts[1:]:
            total = total + part
        whole = np.floor(total)
        scores = whole.astype(np.int64)
        # Adding 0.5 and flooring would round the largest number below 0.5 up.
        scores += total - whole >= 0.5
        if self.ignored is not None:
            scores[self.ignored] = 0
        return scores

    def normalized(self, raw: Scores) -> Scores:
        """Invert the scores between the lowest and the highest, which counts as at least 0; 0 where ignored."""
        considered = raw if self.ignored is None else raw[~self.ignored]
        if not len(considered):
            return np.zeros(len(raw), dtype=np.int64)
        lowest, highest = int(considered.min()), int(considered.max())
        if highest == 0:
            scores = np.full(len(raw), MAX_NODE_SCORE, dtype=np.int64)
        else:
            scores = (highest + lowest - raw) * MAX_NODE_SCORE // highest
        if self.ignored is not None:
            scores[self.ignored] = 0
        return scores


PREFERRED: StateKey[PreferredSpread] = StateKey("PodTopologySpread/preferred")


class _Domains(NamedTuple):
    """Domains of a constraint: by domain whether a scored node has it and its pods; by row the matching pods."""

    column: LabelColumn
    present: Mask
    sums: NDArray[np.int64]
    pods: NDArray[np.int32]


class SpreadScoring(Struct, frozen=True):
    """Arguments of the score: a pod on rows; with *needs_all_keys* nodes without a key are ignored."""

    pod: PodInfo
    nodes: NodeColumns
    rows: Rows
    needs_all_keys: bool

    def preferred(self, constraints: Constraints, inclusion: NodeInclusion) -> PreferredSpread:
        nodes = self.nodes
        ignored = self._ignored(constraints) if self.needs_all_keys else None
        counted = inclusion.counted_ids(self.pod, nodes, constraints, all_keys=self.needs_all_keys)
        parts: list[NDArray[np.float64]] = []
        for constraint, ids in zip(constraints, counted, strict=True):
            if constraint.topology_key == HOSTNAME:
                parts.append(self._by_node(constraint, ignored))
            else:
                parts.append(self._by_domain(constraint, ids, ignored, inclusion))
        return PreferredSpread(tuple(parts), ignored)

    def _ignored(self, constraints: Constraints) -> Mask | None:
        keyed = with_all_keys(self.nodes, constraints)
        if keyed is None:
            keyed = self.nodes.label_column(constraints[0].topology_key).ids >= 0
        ignored: Mask = ~keyed[self.rows]
        return ignored if ignored.any() else None

    def _by_node(self, constraint: SpreadConstraint, ignored: Mask | None) -> NDArray[np.float64]:
        """Score by the pods of each node: each host name is assumed to be one node, regardless of policies."""
        ids = self.nodes.label_column(constraint.topology_key).ids[self.rows]
        scored = len(ids) if ignored is None else int(np.count_nonzero(~ignored))
        pods = matching_pods(self.nodes, self.pod.pod.metadata.namespace, constraint)[self.rows]
        weighted = _weighted(pods, constraint, scored)
        weighted[ids < 0] = 0.0
        return weighted

    def _by_domain(
        self, constraint: SpreadConstraint, counted: DomainIds, ignored: Mask | None, inclusion: NodeInclusion
    ) -> NDArray[np.float64]:
        nodes = self.nodes
        column = nodes.label_column(constraint.topology_key)
        domains = len(column.values)
        ids = column.ids[self.rows]
        present = domains_present(ids if ignored is None else ids[~ignored], domains)
        pods = matching_pods(nodes, self.pod.pod.metadata.namespace, constraint)
        sums = domain_sums(pods, counted, domains)
        if not self.needs_all_keys:
            self._join_unlabeled(constraint, _Domains(column, present, sums, pods), inclusion)
        weights = _weighted(sums, constraint, int(np.count_nonzero(present)))
        weights[-1] = 0.0
        return weights.take(ids)

    def _join_unlabeled(self, constraint: SpreadConstraint, domains: _Domains, inclusion: NodeInclusion) -> None:
        """Count nodes without the key as one more domain, which kube-scheduler does not distinguish from the value "".

        If either of the two has a feasible node, the pods of both count there, including those on other nodes.
        """
        column, present, sums, pods = domains
        empty = column.values.find("")
        if empty is None or not (present[-1] or present[empty]):
            return
        unlabeled = inclusion.included(self.pod, self.nodes, constraint) & (column.ids < 0)
        sums[empty] += int(pods[unlabeled].sum())
        present[-1] = False
        present[empty] = True


def _weighted(pods: NDArray[np.integer], constraint: SpreadConstraint, domain_count: int) -> NDArray[np.float64]:
    weighted = pods.astype(np.float64)
    weighted *= natural_logarithm(float(domain_count + 2))
    weighted += float(constraint.max_skew - 1)
    return weighted


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
        self._inclusion = NodeInclusion(handle.nodes)
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
        """Queue if a matching pod was added or deleted, or a pod started or stopped to match.

        New tolerations of the pod itself help if a constraint honors taints.
        """
        constraints = self._constraints_for_hint(pod)
        if constraints is None or not isinstance(old, Pod | None) or not isinstance(new, Pod | None):
            return Hint.QUEUE
        if not (_is_involved(pod, old) and _is_involved(pod, new)):
            return Hint.SKIP
        if old is None or new is None:
            other = old or new
            helps = other is None or any(_selects(constraint, other) for constraint in constraints)
            return Hint.QUEUE if helps else Hint.SKIP
        is_own = new.metadata.uid == pod.metadata.uid
        if is_own and new.spec.tolerations != old.spec.tolerations and any(one.honors_taints for one in constraints):
            return Hint.QUEUE
        changes = any(_selects(constraint, old) is not _selects(constraint, new) for constraint in constraints)
        return Hint.QUEUE if changes else Hint.SKIP

    def after_node_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if a node with all keys was added or deleted, or changed its domains or taints."""
        constraints = self._constraints_for_hint(pod)
        if constraints is None or not isinstance(old, Node | None) or not isinstance(new, Node | None):
            return Hint.QUEUE
        had = old is not None and has_all_keys(old.metadata.labels, constraints)
        has = new is not None and has_all_keys(new.metadata.labels, constraints)
        if old is None or new is None:
            return Hint.QUEUE if had or has else Hint.SKIP
        if had is not has:
            return Hint.QUEUE
        if has and (_domains(old, constraints) != _domains(new, constraints) or old.spec.taints != new.spec.taints):
            return Hint.QUEUE
        return Hint.SKIP

    def _constraints_for_hint(self, pod: Pod) -> Constraints | None:
        """Return the required constraints, None for invalid ones; those of a waiting pod's spec are compiled once."""
        info = compiled_pod(pod) if pod.spec.topology_spread_constraints else None
        found = None if info is None else self._compiled.get(info)
        if found is not None:
            return found
        try:
            found = self._constraints(pod, self.handle.nodes.workloads, DO_NOT_SCHEDULE)
        except SelectorError:
            return None
        if info is not None:
            self._compiled[info] = found
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
        state.read(REQUIRED).count(pod, added, row, 1)
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        state.read(REQUIRED).count(pod, removed, row, -1)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows without a topology key, and rows whose domain would exceed the skew."""
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
        return state.read(PREFERRED).raw()

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        """Invert the scores to 0..100; ignored rows get 0."""
        return state.read(PREFERRED).normalized(raw)
