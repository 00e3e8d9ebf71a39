"""Counts of scheduled pods per node: by query, and by the affinity terms of the pods.

Two groups of columns are updated as pods are added and removed, so that no cycle visits single pods:

* per query, the number of pods on each row that it selects, with terminating pods also counted separately;
* per distinct term of scheduled pods, the number of pods on each row that have it.

Counts per topology domain are sums of these over the rows of a domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.affinity_terms import AffinityTerm, PodQuery
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.indexes.namespace_labels import NamespaceLabels
from scheduler_core.snapshot.indexes.selector_index import NamespaceBuckets, required_pair
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.table_bounds import DEFAULT_BOUNDS, SnapshotBounds

_FEWEST_QUERIES = 64

Counts = NDArray[np.int32]


class TermKind(Enum):
    """The list of a pod's affinity that contains a term."""

    REQUIRED = auto()
    REQUIRED_ANTI = auto()
    PREFERRED = auto()
    PREFERRED_ANTI = auto()

    # The hash of an Enum is computed by a Python function, which is slow; kinds are looked up for every pod.
    __hash__ = object.__hash__


class QueryCounts:
    """Number of scheduled pods per row that a query selects.

    Attributes:
        total: int32[capacity], all pods.
        ending: int32[capacity], those that are being deleted.
        version: Incremented by every change.
        idle_checks: Number of pods that were compared with the query since its last use.
    """

    __slots__ = ("ending", "idle_checks", "total", "version")

    def __init__(self, capacity: int) -> None:
        self.total: Counts = np.zeros(capacity, dtype=np.int32)
        self.ending: Counts = np.zeros(capacity, dtype=np.int32)
        self.version = 0
        self.idle_checks = 0

    def count(self, info: PodInfo, row: int, sign: int) -> None:
        """Add (1) or subtract (-1) a pod."""
        self.total[row] += sign
        if info.pod.metadata.deletion_timestamp is not None:
            self.ending[row] += sign
        self.version += 1


class TermCounts:
    """Number of scheduled pods per row that have a term: ``holders`` int32[capacity], ``sum`` over all rows."""

    __slots__ = ("holders", "kind", "sum", "term", "version")

    def __init__(self, kind: TermKind, term: AffinityTerm, capacity: int) -> None:
        self.kind = kind
        self.term = term
        self.holders: Counts = np.zeros(capacity, dtype=np.int32)
        self.sum = 0
        self.version = 0


class PodIndex:
    """The counts over one set of columns.

    Args:
        namespaces: Labels of namespaces, for namespace selectors.
        bounds: Maximum number of queries, and memory for their counts; a few dozen queries always fit.

    Attributes:
        namespaces: Labels of namespaces.
        terms_version: Incremented when the first pod with a term is added, or the last one is removed.
    """

    def __init__(self, namespaces: NamespaceLabels, bounds: SnapshotBounds = DEFAULT_BOUNDS) -> None:
        self.namespaces = namespaces
        self.terms_version = 0
        self._bounds = bounds
        self._pod_count = 0
        self._capacity = 0
        self._rows: list[dict[str, PodInfo]] = []
        self._queries: dict[PodQuery, QueryCounts] = {}
        self._query_buckets: NamespaceBuckets[PodQuery] = NamespaceBuckets()
        self._terms: dict[tuple[TermKind, AffinityTerm], TermCounts] = {}
        self._term_buckets: dict[TermKind, NamespaceBuckets[AffinityTerm]] = {
            kind: NamespaceBuckets() for kind in TermKind
        }
        self._namespaces_version = namespaces.version
        self._query_limit = _FEWEST_QUERIES

    def resize(self, capacity: int, rows: list[dict[str, PodInfo]]) -> None:
        """Set the capacity of the columns; ``rows`` are the pods of each row, owned by the columns."""
        self._capacity, self._rows = capacity, rows
        bytes_per_query = 2 * np.dtype(np.int32).itemsize * capacity
        self._query_limit = min(self._bounds.queries, max(_FEWEST_QUERIES, self._bounds.query_bytes // bytes_per_query))
        for counts in self._queries.values():
            counts.total = _grown(counts.total, capacity)
            counts.ending = _grown(counts.ending, capacity)
        for term in self._terms.values():
            term.holders = _grown(term.holders, capacity)

    def add(self, info: PodInfo, row: int) -> None:
        """Count a pod that was added to a row."""
        self._count(info, row, 1)

    def remove(self, info: PodInfo, row: int) -> None:
        """Count a pod that was removed from a row."""
        self._count(info, row, -1)

    def relabel(self, info: PodInfo, pod: Pod, row: int) -> None:
        """Update the counts for a pod that differs only in labels.

        Args:
            info: The compiled pod, still with the version that was counted.
            pod: The new version.
            row: The row.
        """
        if not self._queries:
            return
        if self._namespaces_version != self.namespaces.version:
            self._drop_namespace_queries()
        namespace, candidates = pod.metadata.namespace, self._query_buckets.candidates
        for query in {*candidates(namespace, info.pod.metadata.labels), *candidates(namespace, pod.metadata.labels)}:
            sign = self._selects(query, pod) - self._selects(query, info.pod)
            if sign:
                self._queries[query].count(info, row, sign)

    def query(self, query: PodQuery) -> QueryCounts:
        """Return the counts of a query; they are computed from all pods on first use and updated from then on."""
        if self._namespaces_version != self.namespaces.version:
            self._drop_namespace_queries()
        counts = self._queries.get(query)
        if counts is None:
            while len(self._queries) >= self._query_limit:
                self._drop(next(iter(self._queries)))
            counts = self._counted(query)
            self._query_buckets.add(_namespaces_of(query), query.selector, query)
        else:
            del self._queries[query]
        # The least recently used query is first, because a dict keeps the order of insertion.
        self._queries[query] = counts
        counts.idle_checks = 0
        return counts

    def matching_terms(self, kind: TermKind, info: PodInfo) -> Iterator[TermCounts]:
        """Yield the terms of one kind, of scheduled pods, that match ``info``."""
        meta = info.pod.metadata
        namespace_labels = self.namespaces.get(meta.namespace)
        known = namespace_labels if namespace_labels is not None else {}
        for term in self._term_buckets[kind].candidates(meta.namespace, meta.labels):
            if term.query.matches(meta.namespace, meta.labels, known):
                yield self._terms[kind, term]

    def _count(self, info: PodInfo, row: int, sign: int) -> None:
        self._pod_count += sign
        if self._queries:
            self._count_queries(info, row, sign)
        terms = info.terms
        if not terms.is_empty:
            self._count_terms(TermKind.REQUIRED, terms.required, row, sign)
            self._count_terms(TermKind.REQUIRED_ANTI, terms.required_anti, row, sign)
            self._count_terms(TermKind.PREFERRED, terms.preferred, row, sign)
            self._count_terms(TermKind.PREFERRED_ANTI, terms.preferred_anti, row, sign)

    def _count_queries(self, info: PodInfo, row: int, sign: int) -> None:
        if self._namespaces_version != self.namespaces.version:
            self._drop_namespace_queries()
        meta, most = info.pod.metadata, max(self._bounds.idle_checks, self._pod_count)
        idle: list[PodQuery] = []
        for query in self._query_buckets.candidates(meta.namespace, meta.labels):
            counts = self._queries[query]
            counts.idle_checks += 1
            if counts.idle_checks > most:
                idle.append(query)
            elif self._selects(query, info.pod):
                counts.count(info, row, sign)
        for query in idle:
            self._drop(query)

    def _count_terms(self, kind: TermKind, terms: Iterable[AffinityTerm], row: int, sign: int) -> None:
        for term in terms:
            counts = self._terms.get((kind, term))
            if counts is None:
                counts = self._terms[kind, term] = TermCounts(kind, term, self._capacity)
                self._term_buckets[kind].add(_namespaces_of(term.query), term.query.selector, term)
                self.terms_version += 1
            counts.holders[row] += sign
            counts.sum += sign
            counts.version += 1
            if counts.sum == 0:
                del self._terms[kind, term]
                self._term_buckets[kind].remove(_namespaces_of(term.query), term.query.selector, term)
                self.terms_version += 1

    def _counted(self, query: PodQuery) -> QueryCounts:
        """Count all pods; a required label excludes most of them, which is cheaper than evaluating the query."""
        counts = QueryCounts(self._capacity)
        pair = required_pair(query.selector)
        for row, pods in enumerate(self._rows):
            for info in pods.values():
                if pair is not None and info.pod.metadata.labels.get(pair[0]) != pair[1]:
                    continue
                if self._selects(query, info.pod):
                    counts.count(info, row, 1)
        return counts

    def _selects(self, query: PodQuery, pod: Pod) -> bool:
        meta = pod.metadata
        return query.matches(meta.namespace, meta.labels, self.namespaces.get(meta.namespace))

    def _drop(self, query: PodQuery) -> None:
        del self._queries[query]
        self._query_buckets.remove(_namespaces_of(query), query.selector, query)

    def _drop_namespace_queries(self) -> None:
        """Drop the queries with namespace selectors after a change of namespaces; they are recounted when used."""
        for query in [query for query in self._queries if _reads_namespace_labels(query)]:
            self._drop(query)
        self._namespaces_version = self.namespaces.version


def _namespaces_of(query: PodQuery) -> frozenset[str] | None:
    """Return the namespaces that a query names; None if it may apply to others."""
    return query.namespaces if query.namespace_selector.nothing else None


def _reads_namespace_labels(query: PodQuery) -> bool:
    selector = query.namespace_selector
    return not (selector.nothing or selector.is_everything)


def _grown(counts: Counts, capacity: int) -> Counts:
    if len(counts) >= capacity:
        return counts
    grown = np.zeros(capacity, dtype=np.int32)
    grown[: len(counts)] = counts
    return grown
