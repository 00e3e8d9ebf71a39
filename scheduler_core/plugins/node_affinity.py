"""NodeAffinity: filters and scores nodes by the pod's node selector and node affinity.

Combines the pod's ``nodeSelector``, its node affinity, and the affinity that the profile adds to all its pods.
:mod:`scheduler_core.model.selectors` matches selectors on values,
:mod:`scheduler_core.snapshot.node_selector_matching` on columns. Rejections by the added affinity
have a reason of their own, because the author of the pod cannot change it.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scheduler_core.config.plugin_args import NodeAffinityArgs
from scheduler_core.errors import SelectorError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    CONTINUE,
    Codes,
    FilterPlugin,
    Normalization,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Reads,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.plugin import NodeChange
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error, unresolvable
from scheduler_core.model.affinity import NodeAffinity as PodNodeAffinity
from scheduler_core.model.affinity import NodeSelectorTerm
from scheduler_core.model.node import Node
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import (
    IN,
    METADATA_NAME,
    NodeMatcher,
    PreferredNodeTerm,
    RequiredNodeAffinity,
    compile_preferred_terms,
    compile_readable_node_selector,
)
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.node_selector_matching import NodeMatching
from scheduler_core.snapshot.pod_info import PodInfo, node_affinity_of

_ENFORCED = 1
_MISMATCH = 2
_SKIPPED = PreFilterResult(SKIP)
_CONFLICT = PreFilterResult(unresolvable("pod affinity terms conflict"))

_REQUIRED: StateKey[RequiredNodeAffinity] = StateKey("NodeAffinity/required")
_PREFERRED: StateKey[tuple[PreferredNodeTerm, ...]] = StateKey("NodeAffinity/preferred")


class NodeAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Rules out nodes that the pod or the profile excludes, and scores the others by preference."""

    name = "NodeAffinity"
    handles_resizes = False
    reasons = (
        unresolvable("node(s) didn't match scheduler-enforced node affinity"),
        unresolvable("node(s) didn't match Pod's node affinity/selector"),
    )
    reuse = Reuse(filter=Reads.NODE, score=Reads.NODE, pod=PodReads.NOTHING, prepares_once=True)
    hints_for = NodeChange.LABELS
    args_model = NodeAffinityArgs
    normalization = Normalization.MAX

    def __init__(self, args: Any, handle: Handle) -> None:
        """Compile the added affinity. Raises SelectorError: the added affinity is invalid; validated args never are."""
        super().__init__(args, handle)
        self._added: NodeMatcher | None = None
        self._added_preferred: tuple[PreferredNodeTerm, ...] = ()
        self._has_added_preferred = False
        self._matching = NodeMatching(handle.nodes)
        added = args.added_affinity if args is not None else None
        if added is not None:
            affinity = convert(added.model_dump(by_alias=True, exclude_none=True), PodNodeAffinity)
            if affinity.required is not None:
                self._added = compile_readable_node_selector(affinity.required)
            self._added_preferred = compile_preferred_terms(affinity.preferred)
            self._has_added_preferred = bool(affinity.preferred)

    def events_to_register(self) -> Sequence[EventRegistration]:
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return (EventRegistration(node, self.after_node_change),)

    def after_node_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if the node matches now and did not before, or if an invalid term leaves that open."""
        if not isinstance(new, Node) or not isinstance(old, Node | None):
            return Hint.QUEUE
        labels, name = new.metadata.labels, new.metadata.name
        if self._added is not None and not self._added.matches(labels, name):
            return Hint.SKIP
        required = node_affinity_of(pod)
        if required.problems(labels, name):
            return Hint.QUEUE
        if not required.matches(labels, name):
            return Hint.SKIP
        if old is None:
            return Hint.QUEUE
        return Hint.SKIP if required.matches(old.metadata.labels, old.metadata.name) else Hint.QUEUE

    # -- filtering ----------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Compile the pod's required terms; restrict the nodes if every term names nodes."""
        required = pod.node_affinity
        if required.is_everything and self._added is None:
            return _SKIPPED
        state.write(_REQUIRED, required)
        affinity = _node_affinity(pod.pod)
        if affinity is None or affinity.required is None:
            return CONTINUE
        names = _named_nodes(affinity.required.node_selector_terms)
        if names is None:
            return CONTINUE
        return PreFilterResult(SUCCESS, names) if names else _CONFLICT

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows that the added affinity, or else the pod, excludes; None if neither has requirements."""
        required = state.get(_REQUIRED)
        if required is None:
            required = pod.node_affinity
        matched = self._matching.required(required, rows)
        codes: Codes | None = None
        if matched is not None:
            codes = np.multiply(~matched, _MISMATCH, dtype=np.int16)
        if self._added is not None:
            allowed = self._matching.selector(self._added, rows)
            if codes is None:
                codes = (~allowed).astype(np.int16)
            else:
                codes[~allowed] = _ENFORCED
        return codes

    # -- scoring ------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Compile the preferred terms; return Skip if neither the pod nor the profile has any."""
        affinity = _node_affinity(pod.pod)
        terms = () if affinity is None else affinity.preferred
        if not terms and not self._has_added_preferred:
            return SKIP
        try:
            state.write(_PREFERRED, compile_preferred_terms(terms))
        except SelectorError as problem:
            return error(f"invalid preferred node affinity; correct the pod's spec: {problem}")
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return the sum of the weights of the matching terms, int64 per row."""
        terms = state.get(_PREFERRED)
        if terms is None:
            affinity = _node_affinity(pod.pod)
            terms = () if affinity is None else compile_preferred_terms(affinity.preferred)
        scores: Scores | None = None
        for preferred in (*self._added_preferred, *terms):
            weighted = np.multiply(self._matching.term(preferred.term, rows), preferred.weight, dtype=np.int64)
            scores = weighted if scores is None else np.add(scores, weighted, out=scores)
        return np.zeros(len(nodes.alive[rows]), dtype=np.int64) if scores is None else scores


def _node_affinity(pod: Pod) -> PodNodeAffinity | None:
    affinity = pod.spec.affinity
    return None if affinity is None else affinity.node_affinity


def _named_nodes(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """Return the nodes that the terms name; None if a term names none, or there is no term."""
    names: frozenset[str] | None = None
    for term in terms:
        of_term: frozenset[str] | None = None
        for field in term.match_fields:
            if field.key == METADATA_NAME and field.operator == IN:
                values = frozenset(field.values)
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None
        names = of_term if names is None else names | of_term
    return names
