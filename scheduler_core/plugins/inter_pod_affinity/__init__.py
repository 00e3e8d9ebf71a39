"""InterPodAffinity: pods that must, should, or should not share a topology domain with other pods.

Each extension point has a module. Required terms of the pod and required anti-affinity of existing pods rule nodes out;
preferred terms of both, and required affinity of existing pods, score the rest.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/interpodaffinity/``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scheduler_core.config.plugin_args import InterPodAffinityArgs
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Resource
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
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error, unresolvable
from scheduler_core.model.selectors import NO_TERMS
from scheduler_core.plugins.inter_pod_affinity.filtering import REASONS, REQUIRED, RequiredAffinity
from scheduler_core.plugins.inter_pod_affinity.hints import after_node_change, after_pod_change
from scheduler_core.plugins.inter_pod_affinity.scoring import (
    WEIGHTS,
    has_preferences,
    normalized,
    summed_weights,
    weight_tables,
)
from scheduler_core.snapshot.indexes.pod_index import TermKind
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

__all__ = ["InterPodAffinity"]

_SKIPPED = PreFilterResult(SKIP)


class InterPodAffinity(PreFilterPlugin, PreFilterExtensions, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Filters and scores nodes by pod affinity and anti-affinity."""

    name = "InterPodAffinity"
    handles_resizes = False
    reasons = REASONS
    reuse = Reuse(filter=Reads.DOMAINS, score=Reads.DOMAINS, pod=PodReads.LABELS)
    args_model = InterPodAffinityArgs
    normalization = Normalization.OWN

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._args: InterPodAffinityArgs = InterPodAffinityArgs() if args is None else args

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check for a pod that no term concerns; it holds until terms or namespaces change. Else None."""
        index, namespaces = nodes.pod_index, nodes.namespaces
        if not pod.terms.is_empty or any(any(index.matching_terms(kind, pod)) for kind in TermKind):
            return None
        known, version = index.terms_version, namespaces.version
        return lambda: index.terms_version == known and namespaces.version == version

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return additions, deletions and label changes of pods, and additions and label changes of nodes."""
        assigned = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE)
        own = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
        nodes = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return (
            EventRegistration(assigned, after_pod_change),
            EventRegistration(own, after_pod_change),
            EventRegistration(nodes, after_node_change),
        )

    # -- filtering ----------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Count pods per domain for the pod's terms and the terms that match it; return Skip if there are none."""
        if pod.terms.problem:
            return PreFilterResult(unresolvable(f"parsing pod: {pod.terms.problem}"))
        if pod.terms is NO_TERMS and not nodes.pod_index.terms:
            return _SKIPPED
        required = RequiredAffinity(pod, nodes)
        if required.is_idle:
            return _SKIPPED
        state.write(REQUIRED, required)
        return CONTINUE

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """Add ``added`` to the counts."""
        state.read(REQUIRED).count(pod, added, (nodes, row), 1)
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """Subtract ``removed`` from the counts."""
        state.read(REQUIRED).count(pod, removed, (nodes, row), -1)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows whose domains lack required pods, or contain pods that anti-affinity excludes."""
        del pod, nodes
        return state.read(REQUIRED).codes(rows)

    # -- scoring ------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Sum the weights per domain; return Skip if there are none."""
        del rows
        if self._args.ignore_preferred_terms_of_existing_pods and not has_preferences(pod):
            return SKIP
        if pod.terms.problem:
            return error(f"failed to parse pod: {pod.terms.problem}; correct the pod's spec")
        if pod.terms is NO_TERMS and not nodes.pod_index.terms:
            return SKIP
        tables = weight_tables(pod, nodes, self._args)
        if not tables:
            return SKIP
        state.write(WEIGHTS, tables)
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return the sum of the weights of the row's domains, int64 per row; may be negative."""
        del pod
        count = nodes.size if isinstance(rows, slice) else len(rows)
        return summed_weights(state.read(WEIGHTS), count, rows)

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        """Scale the scores between the lowest, 0, and the highest, 100."""
        del state, pod
        return normalized(raw)
