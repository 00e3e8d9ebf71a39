"""Score of PodTopologySpread: the fewer matching pods in a node's domains, the better.

A count is weighted by the logarithm of the number of domains of its key, so that few pods spread over many nodes
compare with many pods in few zones.

Nodes without a key score 0 if the pod or the profile defines the constraints. With the system defaults, a node without
a zone is still scored by its own pods.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/podtopologyspread/scoring.go``, with float64
operations in the same order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, Scores
from scheduler_core.kernels.domain_counts import DomainIds, domain_sums, domains_present
from scheduler_core.kernels.go_arithmetic import natural_logarithm
from scheduler_core.plugins.pod_topology_spread.constraints import (
    Constraints,
    Mask,
    NodeInclusion,
    SpreadConstraint,
    with_all_keys,
)
from scheduler_core.plugins.pod_topology_spread.default_constraints import HOSTNAME
from scheduler_core.plugins.pod_topology_spread.filtering import matching_pods
from scheduler_core.snapshot.label_columns import LabelColumn
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo


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
    """Arguments of the score: a pod on rows.

    Attributes:
        rows: The feasible rows.
        needs_all_keys: Whether nodes without the key of any constraint are ignored.
    """

    pod: PodInfo
    nodes: NodeColumns
    rows: Rows
    needs_all_keys: bool

    def preferred(self, constraints: Constraints, inclusion: NodeInclusion) -> PreferredSpread:
        """Compute the weights of the domains of each constraint."""
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
