"""InterPodAffinity: pods that must, should, or should not share a topology domain with other pods.

Required terms of the pod and required anti-affinity of existing pods rule nodes out; preferred terms of both, and
required affinity of existing pods, score the rest.

Filter has three groups of tables per topology domain: pods that match the pod's affinity, pods that match its
anti-affinity, and pods whose own anti-affinity matches the pod. All are sums of counts in the pod index, so PreFilter
costs a few passes over rows and reads no pods. A pod on a node counts for the pod's affinity only if it matches all
required terms at once, so these terms are joined into one query; each anti-affinity term has its own.

Weights of one topology key are added per row before they are summed per domain, because there are few keys however many
terms there are. A hint is called for every unschedulable pod and decides from the objects alone, so it errs towards
requeueing.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/interpodaffinity/``. In hints, as there, namespace
selectors are matched without labels: a pod in a namespace that is selected only by label is not recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler_core.config.plugin_args import InterPodAffinityArgs
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
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error, unresolvable, unschedulable
from scheduler_core.kernels.domain_counts import DomainTable
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import MATCH_EVERYTHING, MATCH_NOTHING, NO_TERMS, AffinityTerm, PodQuery, all_of
from scheduler_core.snapshot.indexes.pod_index import Counts, TermCounts, TermKind
from scheduler_core.snapshot.indexes.selector_index import NamespaceLabels
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo, terms_of

# If a node fails for several reasons, kube-scheduler reports the first in its order, which is the highest number here.
# So the codes of several keys are combined by their maximum.
EXISTING_ANTI_AFFINITY = 1
ANTI_AFFINITY = 2
AFFINITY = 3
REASONS = (
    unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"),
    unschedulable("node(s) didn't match pod anti-affinity rules"),
    unresolvable("node(s) didn't match pod affinity rules"),
)

Tables = dict[str, DomainTable]
"""Counts by domain, per topology key."""


class RequiredAffinity:
    """State from PreFilter to Filter.

    Attributes:
        affinity: Existing pods that match all required affinity terms, by the key of each term.
        anti: Existing pods that match a required anti-affinity term, by its key; summed over terms of one key.
        existing: Required anti-affinity terms of existing pods that match the pod, by their key.
        is_own_match: Whether the pod matches its own affinity, so that it may be the first of its group.
    """

    __slots__ = ("affinity", "affinity_query", "anti", "anti_terms", "existing", "is_own_match")

    def __init__(self, pod: PodInfo, nodes: NodeColumns) -> None:
        terms, index, meta = pod.terms, nodes.pod_index, pod.pod.metadata
        self.anti_terms = terms.required_anti
        self.affinity_query = joined((term.query for term in terms.required), nodes.namespaces)
        self.affinity: Tables = {}
        self.is_own_match = False
        query = self.affinity_query
        if query is not None:
            counts = index.query(query).total
            for key in dict.fromkeys(term.topology_key for term in terms.required):
                self.affinity[key] = _table(nodes, key, counts)
            self.is_own_match = query.matches(meta.namespace, meta.labels, nodes.namespaces.get(meta.namespace))
        self.anti = _tables(nodes, ((term.topology_key, index.query(term.query).total) for term in self.anti_terms))
        about = index.matching_terms(TermKind.REQUIRED_ANTI, pod)
        existing = {key: _table(nodes, key, counts) for key, counts in _summed(nodes, about).items()}
        self.existing = {key: table for key, table in existing.items() if table.counts.any()}

    @property
    def is_idle(self) -> bool:
        return not (self.existing or self.anti_terms) and self.affinity_query is None

    def clone(self) -> RequiredAffinity:
        other = copy(self)
        other.affinity, other.anti, other.existing = map(_cloned, (self.affinity, self.anti, self.existing))
        return other

    def count(self, pod: PodInfo, other: PodInfo, where: tuple[NodeColumns, int], sign: int) -> None:
        nodes, row = where
        own, meta = pod.pod.metadata, other.pod.metadata
        own_namespace = nodes.namespaces.get(own.namespace) or {}
        for term in other.terms.required_anti:
            if term.query.matches(own.namespace, own.labels, own_namespace):
                key = term.topology_key
                if key not in self.existing:
                    self.existing[key] = _table(nodes, key, None)
                self.existing[key].add(row, sign)
        namespace = nodes.namespaces.get(meta.namespace)
        query = self.affinity_query
        if query is not None and query.matches(meta.namespace, meta.labels, namespace):
            for table in self.affinity.values():
                table.add(row, sign)
        for term in self.anti_terms:
            if term.query.matches(meta.namespace, meta.labels, namespace):
                self.anti[term.topology_key].add(row, sign)

    def codes(self, rows: Rows) -> Codes | None:
        """Filter rows: int16 each, None if all of them pass."""
        codes: Codes | None = None
        is_first = self.is_own_match and not any(table.counts.any() for table in self.affinity.values())
        for table in self.affinity.values():
            ids = table.ids[rows]
            # The first pod of a group only needs a domain; others need one that contains a matching pod.
            fails = ids < 0 if is_first else table.counts.take(ids) <= 0
            codes = _highest(codes, np.multiply(fails, AFFINITY, dtype=np.int16))
        for code, tables in ((ANTI_AFFINITY, self.anti), (EXISTING_ANTI_AFFINITY, self.existing)):
            for table in tables.values():
                fails = table.counts.take(table.ids[rows]) > 0
                codes = _highest(codes, np.multiply(fails, code, dtype=np.int16))
        return codes


REQUIRED: StateKey[RequiredAffinity] = StateKey("InterPodAffinity/required")


def joined(queries: Iterable[PodQuery], namespaces: NamespaceLabels) -> PodQuery | None:
    """Return one query for the pods that match all queries of an incoming pod; None if there is no query."""
    terms = list(queries)
    if not terms:
        return None
    selector = all_of(query.selector for query in terms)
    first = terms[0]
    if all(_same_namespaces(first, query) for query in terms):
        return PodQuery(selector, first.namespaces, first.namespace_selector)
    names: frozenset[str] | None = None
    for query in terms:
        if not query.namespace_selector.is_everything:
            own = query.namespaces | namespaces.selected(query.namespace_selector)
            names = own if names is None else names & own
    if names is None:
        return PodQuery(selector, frozenset(), MATCH_EVERYTHING)
    return PodQuery(selector, names, MATCH_NOTHING)


def _same_namespaces(one: PodQuery, other: PodQuery) -> bool:
    return one.namespaces == other.namespaces and one.namespace_selector == other.namespace_selector


def _table(nodes: NodeColumns, key: str, counts: Counts | None) -> DomainTable:
    column = nodes.label_column(key)
    domains = len(column.values)
    if counts is None:
        return DomainTable(column.ids, np.zeros(domains + 1, dtype=np.int64))
    return DomainTable.of_rows(counts[: nodes.size], column.ids, domains)


def _tables(nodes: NodeColumns, counts_by_key: Iterable[tuple[str, Counts]]) -> Tables:
    summed: dict[str, Counts] = {}
    for key, counts in counts_by_key:
        summed[key] = summed[key] + counts if key in summed else counts
    return {key: _table(nodes, key, counts) for key, counts in summed.items()}


def _summed(nodes: NodeColumns, terms: Iterable[TermCounts]) -> dict[str, Counts]:
    """Return how many pods per row have any of some terms, by the topology keys of the terms."""
    summed: dict[str, Counts] = {}
    for held in terms:
        key = held.term.topology_key
        # Terms of other pods, which the pod is not charged for.
        nodes.steps.upkeep()
        if key not in summed:
            summed[key] = np.zeros(nodes.size, dtype=np.int32)
        held.add_to(summed[key], 1)
    return summed


def _cloned(tables: Tables) -> Tables:
    return {key: table.clone() for key, table in tables.items()}


def _highest(codes: Codes | None, more: Codes) -> Codes:
    return more if codes is None else np.maximum(codes, more, out=codes)


WeightTables = tuple[DomainTable, ...]
"""Sum of weights per domain, one table per topology key."""

WEIGHTS: StateKey[WeightTables] = StateKey("InterPodAffinity/weights")

_PartOfOthers = tuple[str, int, TermCounts]
"""A topology key, a weight, and the number of pods per row that it applies to."""


def weight_tables(pod: PodInfo, nodes: NodeColumns, args: InterPodAffinityArgs) -> WeightTables:
    """Return the sums of weights per domain, without keys whose sums are all 0."""
    size = nodes.size
    by_row: dict[str, NDArray[np.int64]] = {}
    for sign, own in ((1, pod.terms.preferred), (-1, pod.terms.preferred_anti)):
        for term in own:
            counts = nodes.pod_index.query(term.query).total
            weighted = np.multiply(counts[:size], sign * term.weight, dtype=np.int64)
            key = term.topology_key
            by_row[key] = np.add(by_row[key], weighted, out=by_row[key]) if key in by_row else weighted
    for key, weight, held in _parts_of_others(pod, nodes, args):
        nodes.steps.upkeep()
        if key not in by_row:
            by_row[key] = np.zeros(size, dtype=np.int64)
        held.add_to(by_row[key], weight)
    tables: list[DomainTable] = []
    for key, amounts in by_row.items():
        column = nodes.label_column(key)
        table = DomainTable.of_rows(amounts, column.ids, len(column.values))
        if table.counts.any():
            tables.append(table)
    return tuple(tables)


def _parts_of_others(pod: PodInfo, nodes: NodeColumns, args: InterPodAffinityArgs) -> Iterator[_PartOfOthers]:
    index, hard_weight = nodes.pod_index, args.hard_pod_affinity_weight
    if hard_weight > 0:
        for held in index.matching_terms(TermKind.REQUIRED, pod):
            yield held.term.topology_key, hard_weight, held
    for held in index.matching_terms(TermKind.PREFERRED, pod):
        yield held.term.topology_key, held.term.weight, held
    for held in index.matching_terms(TermKind.PREFERRED_ANTI, pod):
        yield held.term.topology_key, -held.term.weight, held


_NO_LABELS: dict[str, str] = {}


def after_pod_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a scheduled pod starts to match the pod's affinity, or stops to match an anti-affinity."""
    if not isinstance(old, Pod | None) or not isinstance(new, Pod | None):
        return Hint.QUEUE
    if old is not None and new is not None and new.metadata.uid == pod.metadata.uid:
        return Hint.QUEUE
    if _is_nowhere(old) or _is_nowhere(new):
        return Hint.SKIP
    terms = terms_of(pod)
    if terms.problem:
        return Hint.QUEUE
    if old is not None and new is not None:
        begins = not _matches_all(terms.required, old) and _matches_all(terms.required, new)
        ceases = _matches_any(terms.required_anti, old) and not _matches_any(terms.required_anti, new)
        return _queue_if(begins or ceases)
    if new is not None:
        return _queue_if(_matches_all(terms.required, new))
    if old is None or _matches_any(terms.required_anti, old):
        return Hint.QUEUE
    return _queue_if(_matches_any(terms_of(old).required_anti, pod))


def after_node_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a suitable node was added, or a node changed a label that the pod uses as topology key."""
    if not isinstance(new, Node) or not isinstance(old, Node | None):
        return Hint.QUEUE
    terms = terms_of(pod)
    if terms.problem:
        return Hint.QUEUE
    now = new.metadata.labels
    if old is None:
        return _queue_if(bool(terms.required_anti) or any(term.topology_key in now for term in terms.required))
    before = old.metadata.labels
    for term in terms.required:
        key = term.topology_key
        if key in now and before.get(key) != now[key]:
            return Hint.QUEUE
    for term in terms.required_anti:
        key = term.topology_key
        if key in before and now.get(key) != before[key]:
            return Hint.QUEUE
    return Hint.SKIP


def _is_nowhere(pod: Pod | None) -> bool:
    return pod is not None and not pod.spec.node_name and not pod.status.nominated_node_name


def _matches_all(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    return bool(terms) and all(_matches(term, pod) for term in terms)


def _matches_any(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    return any(_matches(term, pod) for term in terms)


def _matches(term: AffinityTerm, pod: Pod) -> bool:
    return term.query.matches(pod.metadata.namespace, pod.metadata.labels, _NO_LABELS)


def _queue_if(helps: bool) -> Hint:
    return Hint.QUEUE if helps else Hint.SKIP


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
        state.read(REQUIRED).count(pod, added, (nodes, row), 1)
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        state.read(REQUIRED).count(pod, removed, (nodes, row), -1)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows whose domains lack required pods, or contain pods that anti-affinity excludes."""
        return state.read(REQUIRED).codes(rows)

    # -- scoring ------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Sum the weights per domain; return Skip if there are none."""
        has_preferences = pod.terms.preferred or pod.terms.preferred_anti
        if self._args.ignore_preferred_terms_of_existing_pods and not has_preferences:
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
        first, *others = state.read(WEIGHTS)
        scores: Scores = first.counts.take(first.ids[rows])
        for table in others:
            scores += table.counts.take(table.ids[rows])
        return scores

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        """Scale the scores between the lowest, 0, and the highest, 100; all are 0 if they are equal."""
        if not len(raw):
            return raw
        lowest = int(raw.min())
        span = int(raw.max()) - lowest
        if span == 0:
            return np.zeros(len(raw), dtype=np.int64)
        # Division before multiplication, in float64, as in kube-scheduler; the other order rounds differently.
        shares = (raw - lowest).astype(np.float64) / float(span)
        return (shares * float(MAX_NODE_SCORE)).astype(np.int64)
