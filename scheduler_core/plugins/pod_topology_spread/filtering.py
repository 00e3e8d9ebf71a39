"""Filter of PodTopologySpread: matching pods per domain and constraint, and the nodes that exceed the skew.

Two counts differ from those of other plugins, as in kube-scheduler: terminating pods do not count, but a dry run that
adds or removes one counts it; and a selector that matches everything counts no pods, although the pod itself matches.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/podtopologyspread/filtering.go``. The minimum is
recomputed after a change. kube-scheduler keeps two candidates, which gives the same result for changes on one node but
may be wrong for more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.extension_points import Codes
from scheduler_core.framework.status import unresolvable, unschedulable
from scheduler_core.kernels.domain_counts import DomainIds, DomainTable, domains_present
from scheduler_core.model.selectors import PodQuery
from scheduler_core.plugins.pod_topology_spread.constraints import Constraints, NodeInclusion, SpreadConstraint
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

SKEWED = 1
UNLABELED = 2
_MISMATCH = "node(s) didn't match pod topology spread constraints"
REASONS = (unschedulable(_MISMATCH), unresolvable(f"{_MISMATCH} (missing required label)"))


def matching_pods(nodes: NodeColumns, namespace: str, constraint: SpreadConstraint) -> NDArray[np.int32]:
    """Return the number of scheduled pods that a constraint counts, int32[row]."""
    selector = constraint.selector
    if selector.is_everything or selector.nothing:
        return np.zeros(nodes.size, dtype=np.int32)
    counts = nodes.pod_index.query(PodQuery(selector, frozenset((namespace,))))
    return counts.total[: nodes.size] - counts.ending[: nodes.size]


class DomainSkew:
    """Counts of one constraint over its domains.

    Attributes:
        table: Matching pods per domain; its ids are -1 for rows that do not count.
    """

    __slots__ = ("_codes", "_is_domain", "_is_own_match", "_row_ids", "constraint", "table")

    def __init__(self, constraint: SpreadConstraint, pod: PodInfo, nodes: NodeColumns, counted_ids: DomainIds) -> None:
        column, meta = nodes.label_column(constraint.topology_key), pod.pod.metadata
        domains = len(column.values)
        self.constraint = constraint
        self.table = DomainTable.of_rows(matching_pods(nodes, meta.namespace, constraint), counted_ids, domains)
        self._row_ids = column.ids
        self._is_domain = domains_present(counted_ids, domains)
        self._is_domain[-1] = False
        self._is_own_match = constraint.selector.matches(meta.labels)
        self._codes: Codes | None = None

    def clone(self) -> DomainSkew:
        """Return a copy for a dry run."""
        copy = object.__new__(DomainSkew)
        copy.constraint = self.constraint
        copy.table = self.table.clone()
        copy._row_ids = self._row_ids
        copy._is_domain = self._is_domain
        copy._is_own_match = self._is_own_match
        copy._codes = self._codes
        return copy

    @property
    def minimum(self) -> int:
        """Number of matching pods in the domain with the fewest; 0 with fewer domains than ``minDomains``."""
        counts = self.table.counts[self._is_domain]
        return int(counts.min()) if len(counts) >= max(1, self.constraint.min_domains) else 0

    @property
    def is_own_match(self) -> bool:
        """Whether the constraint counts the pod itself."""
        return self._is_own_match

    def domains(self) -> list[int]:
        """Return the domains that count, ascending."""
        return np.flatnonzero(self._is_domain).tolist()

    def count(self, row: int, sign: int) -> None:
        """Add (1) or subtract (-1) a matching pod on a row."""
        if self.table.add(row, sign):
            self._codes = None

    def codes(self, rows: Rows) -> Codes:
        """Filter rows by this constraint alone, int16 each."""
        if self._codes is None:
            most = self.constraint.max_skew + self.minimum - int(self._is_own_match)
            self._codes = (self.table.counts > most).astype(np.int16)
            self._codes[-1] = UNLABELED
        return self._codes.take(self._row_ids[rows])


class RequiredSpread:
    """State from PreFilter to Filter: all required constraints, in the pod's order."""

    __slots__ = ("skews",)

    def __init__(self, skews: tuple[DomainSkew, ...]) -> None:
        self.skews = skews

    @classmethod
    def of(cls, pod: PodInfo, nodes: NodeColumns, constraints: Constraints, inclusion: NodeInclusion) -> RequiredSpread:
        """Count the pods for the constraints of a pod."""
        ids = inclusion.counted_ids(pod, nodes, constraints, all_keys=True)
        pairs = zip(constraints, ids, strict=True)
        return cls(tuple(DomainSkew(constraint, pod, nodes, counted) for constraint, counted in pairs))

    def clone(self) -> RequiredSpread:
        """Return a copy for a dry run."""
        return RequiredSpread(tuple(skew.clone() for skew in self.skews))

    def count(self, pod: PodInfo, other: PodInfo, row: int, sign: int) -> None:
        """Add or subtract another pod in the constraints of ``pod`` that count it."""
        meta = other.pod.metadata
        if meta.namespace != pod.pod.metadata.namespace:
            return
        for skew in self.skews:
            if skew.constraint.selector.matches(meta.labels):
                skew.count(row, sign)

    def codes(self, rows: Rows) -> Codes:
        """Filter rows: int16 each, by the first constraint that rejects a row."""
        codes = self.skews[0].codes(rows)
        for skew in self.skews[1:]:
            np.copyto(codes, skew.codes(rows), where=codes == 0)
        return codes


REQUIRED: StateKey[RequiredSpread] = StateKey("PodTopologySpread/required")
