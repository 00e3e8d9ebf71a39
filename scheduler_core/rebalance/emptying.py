"""Moves that empty nodes: as many nodes as possible (Consolidate), or given ones (Drain).

Consolidate empties one node after the other, into the fullest nodes that have room. First is the node with the fewest
pods for what it offers of the scarcest resource, so that few evictions free much. A node is emptied completely or not
at all. The nodes are tried again until none can be emptied, so that a second plan after these moves has no moves. Nodes
that are empty already never get pods.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from scheduler_core.rebalance.movable_pods import MovablePods, counts_for_node
from scheduler_core.rebalance.mover import Mover, MoveSearch, Rows, largest_first
from scheduler_core.rebalance.requests import Consolidate, Drain, RebalancePlan
from scheduler_core.snapshot.pod_info import PodInfo

_PODS_PER_STEP = 20
_LEAST_VALUE = 1e-9


class Emptying(MoveSearch):
    """Empties nodes."""

    def __init__(self, mover: Mover, movable: MovablePods, objective: Consolidate | Drain) -> None:
        super().__init__(mover, movable)
        self._objective = objective
        self._emptied: list[str] = []
        """Names of the nodes that had pods and have none now."""
        self._occupied = np.zeros(0, dtype=np.bool_)

    def run(self, plan: RebalancePlan) -> None:
        """Empty as many nodes as possible, or move what may be moved off the given ones."""
        try:
            if isinstance(self._objective, Drain):
                self._drain(self._objective, plan)
            else:
                # Nodes that are emptied get no pods, so that the order of the moves rarely matters.
                self._mover.move_once(self._empty_all)
        finally:
            plan.gain.emptied = tuple(self._emptied)

    # -- Consolidate --------------------------------------------------------------------------------------------

    def _empty_all(self, moves_twice: bool) -> None:
        self._emptied.clear()
        self._occupied = self._with_pods()
        self._free_rows(self._candidates, partial(self._is_emptied, moves_twice=moves_twice))

    def _candidates(self) -> list[int]:
        """Return the nodes all of whose pods may be moved, those with the least pods for what they offer first."""
        nodes, found = self._nodes, list[tuple[float, float, str, int]]()
        shares, values = self._shares(), self._values()
        for row in np.flatnonzero(self._occupied).tolist():
            if not self._movable.may_leave(row):
                continue
            pods = self._counted(row)
            nodes.steps.spend(1 + len(pods) // _PODS_PER_STEP)
            # All reasons are recorded, and not only the first one.
            if not [info for info in pods if not self._may_move(info, moves_twice=True)]:
                found.append((len(pods) / float(values[row]), float(shares[row]), nodes.node_name(row), row))
        return [row for *_, row in sorted(found)]

    def _is_emptied(self, row: int, *, moves_twice: bool) -> bool:
        """Move all pods off a node, or none; return whether it is empty now."""
        mover = self._mover
        pods = largest_first(self._counted(row))
        if not mover.allows([info for info in pods if not mover.is_moved(info)]):
            return False
        if not moves_twice and any(map(mover.is_moved, pods)):
            return False
        destinations = self._occupied.copy()
        destinations[row] = False
        with mover.all_or_nothing() as group:
            if destinations.any() and all(mover.move(info, destinations, self._fullest) for info in pods):
                group.commit()
                self._occupied[row] = False
                self._emptied.append(self._nodes.node_name(row))
                return True
        return False

    def _fullest(self, rows: Rows) -> int:
        return self._least(rows, -self._shares()[rows])

    def _shares(self) -> NDArray[np.float64]:
        """Return the largest requested share of a resource, per row."""
        nodes = self._nodes
        shares: NDArray[np.float64] = (nodes.requested / np.maximum(nodes.allocatable, 1)).max(axis=0)
        return shares

    def _values(self) -> NDArray[np.float64]:
        """Return what the nodes offer of the resource of which the largest share is requested in all, per row."""
        nodes = self._nodes
        requested, offered = nodes.requested.sum(axis=1), nodes.allocatable.sum(axis=1)
        scarcest = int((requested / np.maximum(offered, 1)).argmax())
        values: NDArray[np.float64] = nodes.allocatable[scarcest] / max(1, offered.item(scarcest))
        return np.maximum(values, _LEAST_VALUE)

    def _with_pods(self) -> NDArray[np.bool_]:
        """Return the nodes with pods that count, bool per row."""
        mask = np.zeros(self._nodes.size, dtype=np.bool_)
        for row in np.flatnonzero(self._nodes.alive & (self._nodes.pod_count > 0)).tolist():
            mask[row] = any(map(counts_for_node, self._nodes.pods[row].values()))
        return mask

    # -- Drain --------------------------------------------------------------------------------------------------

    def _drain(self, objective: Drain, plan: RebalancePlan) -> None:
        nodes = self._nodes
        drained = np.zeros(nodes.size, dtype=np.bool_)
        for row in np.flatnonzero(nodes.alive).tolist():
            node = nodes.nodes[row]
            labels = {} if node is None else node.metadata.labels
            is_selected = objective.selector is not None and objective.selector.matches(labels)
            drained[row] = is_selected or nodes.node_name(row) in objective.nodes
        found = map(nodes.node_name, np.flatnonzero(drained).tolist())
        plan.missing = tuple(sorted(objective.nodes.difference(found)))
        if not drained.any():
            plan.reason = "no node is selected"
        destinations = nodes.alive & ~drained
        for row in sorted(np.flatnonzero(drained).tolist(), key=nodes.node_name):
            pods = self._counted(row)
            for info in largest_first(pods):
                if not self._movable.why_not(info) and self._mover.allows([info]):
                    self._mover.move(info, destinations)
            if pods and not self._counted(row):
                self._emptied.append(nodes.node_name(row))

    # -- both ---------------------------------------------------------------------------------------------------

    def _counted(self, row: int) -> list[PodInfo]:
        return [info for info in self._nodes.pods[row].values() if counts_for_node(info)]
