"""Searches of profiles that evaluate a percentage of the nodes: how many nodes, in which order, and from which one on.

The next search starts where the last one ended. Nodes are grouped by region and zone in the order of their creation,
and the groups are visited in turns. Follows kube-scheduler v1.37.1 (``numFeasibleNodesToFind``, ``nextStartNodeIndex``,
``backend/cache/node_tree.go``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.runtime.filtering import NARROWED
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns, Rows

MIN_FEASIBLE_NODES = 100
_MIN_PERCENTAGE = 5
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
_OLD_ZONE_LABEL = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION_LABEL = "failure-domain.beta.kubernetes.io/region"


class NodeOrder:
    """Rows with alternating zones; recomputed after nodes changed.

    Attributes:
        next_start: Position at which the next search begins.
    """

    __slots__ = ("_nodes", "_rows", "_version", "next_start")

    def __init__(self, nodes: NodeColumns) -> None:
        self.next_start = 0
        self._nodes = nodes
        self._version = -1
        self._rows: NDArray[np.intp] = np.empty(0, dtype=np.intp)

    def rows(self) -> NDArray[np.intp]:
        """Return the rows of all nodes, intp[count]."""
        if self._version != self._nodes.version:
            self._rows = self._interleave()
            self._version = self._nodes.version
        return self._rows

    def _interleave(self) -> NDArray[np.intp]:
        zones: dict[tuple[str, str], list[int]] = {}
        for row, node in enumerate(self._nodes.nodes):
            if node is None:
                continue
            labels = node.metadata.labels
            region = labels.get(REGION_LABEL) or labels.get(_OLD_REGION_LABEL, "")
            zone = labels.get(ZONE_LABEL) or labels.get(_OLD_ZONE_LABEL, "")
            zones.setdefault((region, zone), []).append(row)
        order: list[int] = []
        turn = 0
        waiting = list(zones.values())
        while waiting:
            order += [rows[turn] for rows in waiting]
            turn += 1
            waiting = [rows for rows in waiting if len(rows) > turn]
        return np.array(order, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class PartialSearch:
    """Limits of searches, and the position of the next one.

    Args:
        default_percentage: Percentage of profiles that set none; None evaluates all nodes.
    """

    nodes: NodeColumns
    order: NodeOrder
    default_percentage: int | None

    def percentage_of(self, instance: FrameworkInstance) -> int:
        """Return the percentage of nodes that a search must find feasible; 0 for kube-scheduler's adaptive formula."""
        for percentage in (instance.config.percentage_of_nodes_to_score, self.default_percentage):
            if percentage is not None:
                return percentage
        return 100

    def limit(self, instance: FrameworkInstance, candidates: int) -> int | None:
        """Return the number of feasible nodes after which a search ends; None to evaluate all nodes."""
        percentage = self.percentage_of(instance)
        if percentage >= 100:
            return None
        if not instance.scores and not instance.extenders_evaluate_nodes:
            return 1
        if candidates < MIN_FEASIBLE_NODES:
            return None
        if percentage == 0:
            percentage = max(_MIN_PERCENTAGE, 50 - candidates // 125)
        return max(MIN_FEASIBLE_NODES, candidates * percentage // 100)

    def first_feasible(self, diagnosis: Diagnosis, rows: Rows, limit: int) -> NDArray[np.intp]:
        """Return the first feasible rows from the end of the last search, intp[k] ascending; others are ignored."""
        nodes = self.nodes
        order = self.order.rows() if isinstance(rows, slice) else rows
        if not len(order):
            return order
        start = self.order.next_start
        first = start % len(order)
        order = np.concatenate((order[first:], order[:first]))
        fits = diagnosis.verdicts[order] == 0
        enough = np.flatnonzero(np.cumsum(fits) == limit)
        looked_at = len(order) if not len(enough) else int(enough[0]) + 1
        self.order.next_start = (start + looked_at) % max(1, nodes.count)
        # All rows were filtered at once, but kube-scheduler does not evaluate nodes after the last one that it needs.
        evaluated = np.zeros(len(diagnosis.verdicts), dtype=np.bool_)
        evaluated[order[:looked_at]] = True
        diagnosis.evaluated = evaluated | (diagnosis.verdicts == NARROWED) & nodes.alive
        return np.sort(order[:looked_at][fits[:looked_at]])
