"""Filter of InterPodAffinity: counts per topology domain, and the nodes that they rule out.

There are three groups of tables: pods that match the pod's affinity, pods that match its anti-affinity, and pods whose
own anti-affinity matches the pod. All are sums of counts in the pod index, so PreFilter costs a few passes over rows
and reads no pods.

A pod on a node counts for the pod's affinity only if it matches all required terms at once, so these terms are joined
into one query; each anti-affinity term has its own.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/interpodaffinity/filtering.go``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.extension_points import Codes
from scheduler_core.framework.status import unresolvable, unschedulable
from scheduler_core.kernels.domain_counts import DomainTable
from scheduler_core.model.selectors import MATCH_EVERYTHING, MATCH_NOTHING, PodQuery, all_of
from scheduler_core.snapshot.indexes.pod_index import Counts, TermCounts, TermKind
from scheduler_core.snapshot.indexes.selector_index import NamespaceLabels
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

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
        affinity_query: All required affinity terms as one query; None without any.
        anti_terms: The required anti-affinity terms.
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
        """Whether no term of the pod or of other pods applies."""
        return not (self.existing or self.anti_terms) and self.affinity_query is None

    def clone(self) -> RequiredAffinity:
        """Return a copy for a dry run."""
        copy = object.__new__(RequiredAffinity)
        copy.affinity_query = self.affinity_query
        copy.anti_terms = self.anti_terms
        copy.is_own_match = self.is_own_match
        copy.affinity = _cloned(self.affinity)
        copy.anti = _cloned(self.anti)
        copy.existing = _cloned(self.existing)
        return copy

    def count(self, pod: PodInfo, other: PodInfo, where: tuple[NodeColumns, int], sign: int) -> None:
        """Add another pod to the counts, or subtract it."""
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
