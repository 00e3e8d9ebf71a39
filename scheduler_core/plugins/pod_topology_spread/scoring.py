"""How PodTopologySpread ranks nodes: the fewer matching pods in a node's domains, the better.

Owns the weighted counts by domain, their rounding and their normalisation. Must not know filters. A count weighs the
more the more domains its key has, by the logarithm, so that few pods over many nodes are seen beside many in few zones.

Nodes that lack a key score 0 where the pod or the profile names the constraints. The system's defaults are lenient:
there a node without a zone is still ranked by its own pods.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/podtopologyspread/scoring.go``; float64 operations in
its order.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, Scores
from scheduler_core.kernels.domains import DomainIds, domain_sums, domains_present
from scheduler_core.kernels.natural_logarithm import natural_logarithm
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
    """The state from PreScore to NormalizeScore.

    Attributes:
        parts: Per constraint float64 per row asked about.
        ignored: bool per row asked about: lacks a key that it should have; None if no row does.
    """

    parts: tuple[NDArray[np.float64], ...]
    ignored: Mask | None

    def raw(self) -> Scores:
        """The sum of the parts, rounded half away from zero; int64 per row, 0 where ignored."""
        total = self.parts[0]
        for part in self.parts[1:]:
            total = total + part
        whole = np.floor(total)
        scores = whole.astype(np.int64)
        # Adding a half and flooring would round the largest number below a half up.
        scores += total - whole >= 0.5
        if self.ignored is not None:
            scores[self.ignored] = 0
        return scores

    def normalized(self, raw: Scores) -> Scores:
        """Turn round between lowest and highest, where the highest counts as 0 at least; 0 where ignored."""
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


class SpreadScoring(Struct, frozen=True):
    """What is scored: a pod on rows.

    Attributes:
        rows: The feasible rows.
        needs_all_keys: Whether nodes without the key of any constraint are left out.
    """

    pod: PodInfo
    nodes: NodeColumns
    rows: Rows
    needs_all_keys: bool

    def preferred(self, constraints: Constraints, inclusion: NodeInclusion) -> PreferredSpread:
        """Weigh the domains of each constraint."""
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
        """Host names are taken to be nodes: each node's own pods, whatever policies say."""
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
            self._join_unlabeled(constraint, column, (present, sums, pods), inclusion)
        weights = _weighted(sums, constraint, int(np.count_nonzero(present)))
        weights[-1] = 0.0
        return weights.take(ids)

    def _join_unlabeled(
        self,
        constraint: SpreadConstraint,
        column: LabelColumn,
        tables: tuple[Mask, NDArray[np.int64], NDArray[np.int32]],
        inclusion: NodeInclusion,
    ) -> None:
        """Nodes without the key are one more domain, which the reference cannot tell from that of an empty value.

        Whichever of the two has a feasible node, the pods of both are counted there, those on other nodes as well.
        """
        present, sums, pods = tables
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
