"""Counts of placed pods per node: by query, and by the affinity terms that they carry.

Owns two families of columns, kept up as pods come and go, so that no cycle looks at pods one by one:

* per query (which pods are meant), how many pods of each row it selects, those that are ending apart;
* per distinct term that placed pods carry, how many pods of each row carry it.

Counts per topology domain are sums of these over the rows of a domain. Must not know which plugin asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.affinity_terms import AffinityTerm, PodQuery
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.bounds import DEFAULT_BOUNDS, SnapshotBounds
from scheduler_core.snapshot.label_buckets import NamespaceBuckets, insisted_pair
from scheduler_core.snapshot.namespace_labels import NamespaceLabels
from scheduler_core.snapshot.pod_info import PodInfo

_FEWEST_QUERIES = 64

Counts = NDArray[np.int32]


class TermKind(Enum):
    """Which of a pod's lists a term stands in."""

    REQUIRED = auto()
    REQUIRED_ANTI = auto()
    PREFERRED = auto()
    PREFERRED_ANTI = auto()

    # That of an enum is a function in Python, and kinds are looked up for every pod.
    __hash__ = object.__hash__


class QueryCounts:
    """How many placed pods of each row a query selects.

    Attributes:
        query: The query.
        total: int32[capacity], all of them.
        ending: int32[capacity], those of them that are being deleted.
        version: Raised by every change.
        idle_checks: Pods that the query was compared with since its last use.
    """

    __slots__ = ("ending", "idle_checks", "query", "total", "version")

    def __init__(self, query: PodQuery, capacity: int) -> None:
        self.query = query
        self.total: Counts = np.zeros(capacity, dtype=np.int32)
        self.ending: Counts = np.zeros(capacity, dtype=np.int32)
        self.version = 0
        self.idle_checks = 0

    def count(self, info: PodInfo, row: int, sign: int) -> None:
        """Count a pod in or out."""
        self.total[row] += sign
        if info.pod.metadata.deletion_timestamp is not None:
            self.ending[row] += sign
        self.version += 1


class TermCounts:
    """How many placed pods of each row carry a term: ``holders`` int32[capacity], ``sum`` over all rows."""

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
        namespaces: Labels of namespaces, which queries may ask for.
        bounds: Most queries, and the memory for their counts; a few dozen fit in any case.

    Attributes:
        namespaces: Labels of namespaces.
        terms_version: Raised when a term is carried for the first time, and when nobody carries it any more.
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
        """Follow the columns' capacity; ``rows`` are the pods of each row, kept by the columns."""
        self._capacity, self._rows = capacity, rows
        bytes_per_query = 2 * np.dtype(np.int32).itemsize * capacity
        self._query_limit = min(self._bounds.queries, max(_FEWEST_QUERIES, self._bounds.query_bytes // bytes_per_query))
        for counts in self._queries.values():
            counts.total = _grown(counts.total, capacity)
            counts.ending = _grown(counts.ending, capacity)
        for term in self._terms.values():
            term.holders = _grown(term.holders, capacity)

    def add(self, info: PodInfo, row: int) -> None:
        """A pod has been put on a row."""
        self._count(info, row, 1)

    def remove(self, info: PodInfo, row: int) -> None:
        """A pod has been taken off a row."""
        self._count(info, row, -1)

    def relabel(self, info: PodInfo, pod: Pod, row: int) -> None:
        """A pod on a row gets other labels and is else as it was: what selects both versions counts no other.

        Args:
            info: The compiled pod, which still holds the version that was counted.
            pod: The other version.
            row: The row.
        """
        if not self._queries:
            return
        if self._namespaces_version != self.namespaces.version:
            self._forget_by_namespace_label()
        namespace, candidates = pod.metadata.namespace, self._query_buckets.candidates
        for query in {*candidates(namespace, info.pod.metadata.labels), *candidates(namespace, pod.metadata.labels)}:
            sign = self._selects(query, pod) - self._selects(query, info.pod)
            if sign:
                self._queries[query].count(info, row, sign)

    def query(self, query: PodQuery) -> QueryCounts:
        """The counts of a query, made from all placed pods on first use and kept up from then on."""
        if self._namespaces_version != self.namespaces.version:
            self._forget_by_namespace_label()
        counts = self._queries.get(query)
        if counts is None:
            while len(self._queries) >= self._query_limit:
                self._forget(next(iter(self._queries)))
            counts = self._counted(query)
            self._query_buckets.add(_namespaces_of(query), query.selector, query)
        else:
            del self._queries[query]
        # The oldest in use stands first: a dict keeps the order of insertion.
        self._queries[query] = counts
        counts.idle_checks = 0
        return counts

    def terms_about(self, kind: TermKind, info: PodInfo) -> Iterator[TermCounts]:
        """Terms of one kind, carried by placed pods, that speak of ``info``."""
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
            self._carry(TermKind.REQUIRED, terms.required, row, sign)
            self._carry(TermKind.REQUIRED_ANTI, terms.required_anti, row, sign)
            self._carry(TermKind.PREFERRED, terms.preferred, row, sign)
            self._carry(TermKind.PREFERRED_ANTI, terms.preferred_anti, row, sign)

    def _count_queries(self, info: PodInfo, row: int, sign: int) -> None:
        if self._namespaces_version != self.namespaces.version:
            self._forget_by_namespace_label()
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
            self._forget(query)

    def _carry(self, kind: TermKind, terms: Iterable[AffinityTerm], row: int, sign: int) -> None:
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
        """Count all placed pods; most of them drop out by one label, which is far cheaper than to ask the query."""
        counts = QueryCounts(query, self._capacity)
        pair = insisted_pair(query.selector)
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

    def _forget(self, query: PodQuery) -> None:
        del self._queries[query]
        self._query_buckets.remove(_namespaces_of(query), query.selector, query)

    def _forget_by_namespace_label(self) -> None:
        """Namespaces have changed: what asked for their labels is counted anew when it is asked again."""
        self._namespaces_version = self.namespaces.version
        for query in [query for query in self._queries if _asks_for_namespace_labels(query)]:
            self._forget(query)


def _namespaces_of(query: PodQuery) -> frozenset[str] | None:
    """The namespaces that a query names; None if it may concern others."""
    return query.namespaces if query.namespace_selector.nothing else None


def _asks_for_namespace_labels(query: PodQuery) -> bool:
    selector = query.namespace_selector
    return not (selector.nothing or selector.is_everything)


def _grown(counts: Counts, capacity: int) -> Counts:
    if len(counts) >= capacity:
        return counts
    grown = np.zeros(capacity, dtype=np.int32)
    grown[: len(counts)] = counts
    return grown
