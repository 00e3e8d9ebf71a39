"""Counts of scheduled pods per node: by query, and by the affinity terms of the pods.

Two groups of columns are updated as pods are added and removed, so that no cycle visits single pods:

* per query, the number of pods on each row that it selects, with terminating pods also counted separately;
* per distinct term of scheduled pods, the number of pods on each row that have it.

Counts per topology domain are sums of these over the rows of a domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import NO_TERMS, AffinityTerm, PodQuery
from scheduler_core.snapshot.indexes.selector_index import NamespaceBuckets, NamespaceLabels, required_pair
from scheduler_core.snapshot.interning import DEFAULT_BOUNDS, SnapshotBounds
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter

_FEWEST_QUERIES = 64
_ELEMENTS_OF_ENTRY = 32
"""Elements of a column that take as much memory as one entry of a dict."""
_PODS_OF_STEP, _LABELS_OF_STEP = 7, 100
"""Pods that are compared with a query in one step, and pods of which one label is read."""
_STEPS_AT_ONCE = 20
_TERMS_OF_STEP = 8
"""Terms of running pods that are compared with a pod in one step."""

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
    """Number of scheduled pods per row that have a term.

    A column is allocated only for a term that pods on many rows have: a pod may have hundreds of terms that no other
    pod has, and a column for each of them would take more memory than all other data of the pod.
    """

    __slots__ = ("_capacity", "_column", "_rows", "kind", "sum", "term", "version")

    def __init__(self, kind: TermKind, term: AffinityTerm, capacity: int) -> None:
        self.kind = kind
        self.term = term
        self.sum = 0
        self.version = 0
        self._capacity = capacity
        self._rows: dict[int, int] = {}
        self._column: Counts | None = None

    @property
    def holders(self) -> Counts:
        """The numbers as a column, int32[capacity], which must not be changed."""
        if self._column is not None:
            return self._column
        column = np.zeros(self._capacity, dtype=np.int32)
        for row, count in self._rows.items():
            column[row] = count
        return column

    def add_to(self, column: NDArray[Any], weight: int) -> None:
        """Add the numbers times a weight to a column, which may end before the capacity, after the last row in use."""
        if self._column is not None:
            own = self._column[: len(column)]
            column += own if weight == 1 else np.multiply(own, weight, dtype=column.dtype)
            return
        for row, count in self._rows.items():
            column[row] += count * weight

    def count(self, row: int, sign: int) -> None:
        """Add (1) or subtract (-1) a pod."""
        self.sum += sign
        self.version += 1
        if self._column is not None:
            self._column[row] += sign
            return
        rows = self._rows
        count = rows[row] = rows.get(row, 0) + sign
        if not count:
            del rows[row]
        elif len(rows) > self._capacity // _ELEMENTS_OF_ENTRY:
            self._column = self.holders
            rows.clear()

    def resize(self, capacity: int) -> None:
        self._capacity = capacity
        if self._column is not None:
            self._column = _grown(self._column, capacity)


class PodIndex:
    """The counts over one set of columns.

    Args:
        bounds: Maximum number of queries, and memory for their counts; a few dozen queries always fit.

    Attributes:
        terms_version: Incremented when the first pod with a term is added, or the last one is removed.
    """

    def __init__(
        self, namespaces: NamespaceLabels, bounds: SnapshotBounds = DEFAULT_BOUNDS, steps: StepCounter | None = None
    ) -> None:
        self.namespaces = namespaces
        self._steps = StepCounter() if steps is None else steps
        self.terms_version = 0
        self._bounds = bounds
        self._pod_count = 0
        self._capacity = 0
        self._rows: list[dict[str, PodInfo]] = []
        self._queries: dict[PodQuery, QueryCounts] = {}
        self._dry_queries: dict[PodQuery, QueryCounts] = {}
        """Counts that only dry runs have read since the last change of a pod."""
        self._query_buckets: NamespaceBuckets[PodQuery] = NamespaceBuckets()
        self.terms: dict[tuple[TermKind, AffinityTerm], TermCounts] = {}
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
        self._dry_queries.clear()
        for counts in self._queries.values():
            counts.total = _grown(counts.total, capacity)
            counts.ending = _grown(counts.ending, capacity)
        for term in self.terms.values():
            term.resize(capacity)

    def count(self, info: PodInfo, row: int, sign: int) -> None:
        """Count a pod that was added to a row (1), or removed from it (-1)."""
        self._pod_count += sign
        self._dry_queries.clear()
        if self._queries:
            self._count_queries(info, row, sign)
        terms = info.terms
        if terms is not NO_TERMS:
            self._count_terms(TermKind.REQUIRED, terms.required, row, sign)
            self._count_terms(TermKind.REQUIRED_ANTI, terms.required_anti, row, sign)
            self._count_terms(TermKind.PREFERRED, terms.preferred, row, sign)
            self._count_terms(TermKind.PREFERRED_ANTI, terms.preferred_anti, row, sign)

    def clear_pods(self) -> None:
        """Remove all pods; the arrays of queries stay, because attempts in progress have them."""
        self._pod_count = 0
        self._dry_queries.clear()
        self.terms.clear()
        self._term_buckets = {kind: NamespaceBuckets() for kind in TermKind}
        self.terms_version += 1
        self._query_buckets = NamespaceBuckets()
        for query, counts in self._queries.items():
            counts.total[:] = counts.ending[:] = 0
            counts.version += 1
            self._query_buckets.add(_namespaces_of(query), query.selector, query)

    def relabel(self, info: PodInfo, pod: Pod, row: int) -> None:
        """Update the counts for a pod that differs only in labels; *info* has the version that was counted."""
        self._dry_queries.clear()
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
        """Return the counts of a query, computed from all pods on first use and updated from then on."""
        if self._namespaces_version != self.namespaces.version:
            self._drop_namespace_queries()
        counts = self._queries.get(query)
        if self._steps.is_dry:
            # It must not change which counts are stored: what a live attempt is charged for depends on that.
            return self._counted_dry(query) if counts is None else counts
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

    def _counted_dry(self, query: PodQuery) -> QueryCounts:
        counts = self._dry_queries.get(query)
        if counts is None:
            if len(self._dry_queries) >= self._query_limit:
                self._dry_queries.clear()
            counts = self._dry_queries[query] = self._counted(query)
        return counts

    def matching_terms(self, kind: TermKind, info: PodInfo) -> Iterator[TermCounts]:
        meta = info.pod.metadata
        namespace_labels = self.namespaces.get(meta.namespace)
        known = namespace_labels if namespace_labels is not None else {}
        for number, term in enumerate(self._term_buckets[kind].candidates(meta.namespace, meta.labels), 1):
            if not number % _TERMS_OF_STEP:
                # Terms of other pods, which the pod is not charged for.
                self._steps.pass_by(1)
            if term.query.matches(meta.namespace, meta.labels, known):
                yield self.terms[kind, term]

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
            counts = self.terms.get((kind, term))
            if counts is None:
                counts = self.terms[kind, term] = TermCounts(kind, term, self._capacity)
                self._term_buckets[kind].add(_namespaces_of(term.query), term.query.selector, term)
                self.terms_version += 1
            counts.count(row, sign)
            if counts.sum == 0:
                del self.terms[kind, term]
                self._term_buckets[kind].remove(_namespaces_of(term.query), term.query.selector, term)
                self.terms_version += 1

    def _counted(self, query: PodQuery) -> QueryCounts:
        """Count all pods; a required label excludes most of them, which is cheaper than evaluating the query."""
        counts = QueryCounts(self._capacity)
        pair = required_pair(query.selector)
        pods_of_step = _PODS_OF_STEP if pair is None else _LABELS_OF_STEP
        passed = 0
        for row, pods in enumerate(self._rows):
            passed += len(pods)
            if passed >= _STEPS_AT_ONCE * pods_of_step:
                self._steps.spend_stored(passed // pods_of_step)
                passed = 0
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
        self._dry_queries.clear()
        for query in list(self._queries):
            selector = query.namespace_selector
            if not (selector.nothing or selector.is_everything):
                self._drop(query)
        self._namespaces_version = self.namespaces.version


def _namespaces_of(query: PodQuery) -> frozenset[str] | None:
    """Return the namespaces that a query names; None if it may apply to others."""
    return query.namespaces if query.namespace_selector.nothing else None


def _grown(counts: Counts, capacity: int) -> Counts:
    if len(counts) >= capacity:
        return counts
    grown = np.zeros(capacity, dtype=np.int32)
    grown[: len(counts)] = counts
    return grown
