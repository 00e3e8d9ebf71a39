"""Moves that empty nodes: as many nodes as possible (Consolidate), or given ones (Drain).

Consolidate empties one node after the other, into the fullest nodes that have room. First is the node with the fewest
pods for what it offers of the scarcest resource, so that few evictions free much. A node is emptied completely or not
at all. The nodes are tried again until none can be emptied, so that a second plan after these moves has no moves. Nodes
that are empty already never get pods.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_core.rebalance.movable_pods import MovablePods, counts_for_node
from scheduler_core.rebalance.mover import Mover, Rows
from scheduler_core.rebalance.requests import Drain
from scheduler_core.snapshot.pod_info import PodInfo

_PODS_PER_STEP = 20
_LEAST_VALUE = 1e-9


class Emptying:
    """Empties nodes.

    Attributes:
        emptied: Names of the nodes that had pods and have none now.
        missing: Names of nodes to drain that do not exist.
        is_selecting: Whether a node to drain exists.
    """

    def __init__(self, mover: Mover, movable: MovablePods) -> None:
        self.emptied: list[str] = []
        self.missing: list[str] = []
        self.is_selecting = True
        self._mover = mover
        self._movable = movable
        self._nodes = mover.nodes
        self._occupied = np.zeros(0, dtype=np.bool_)

    # -- Consolidate --------------------------------------------------------------------------------------------

    def consolidate(self) -> None:
        """Empty as many nodes as possible."""
        # Nodes that are emptied get no pods, so that the order of the moves rarely matters.
        self._mover.move_once(self._empty_all)

    def _empty_all(self, moves_twice: bool) -> None:
        self.emptied.clear()
        self._occupied = self._with_pods()
        is_progress = True
        while is_progress:
            before = self._nodes.pod_count.copy()
            is_progress = False
            for row in self._candidates():
                # A node that got pods is tried in the next round; otherwise these pods would be moved on and on.
                if self._nodes.pod_count[row] <= before[row] and self._is_emptied(row, moves_twice=moves_twice):
                    is_progress = True

    def _candidates(self) -> list[int]:
        """Return the nodes all of whose pods may be moved, those with the least pods for what they offer first."""
        nodes, scope = self._nodes, self._movable.scope
        found: list[tuple[float, float, str, int]] = []
        shares, values = self._shares(), self._values()
        for row in np.flatnonzero(self._occupied).tolist():
            if scope.nodes is not None and not scope.nodes.matches(self._labels(row)):
                continue
            pods = self._counted(row)
            nodes.steps.spend(1 + len(pods) // _PODS_PER_STEP)
            # All reasons are recorded, and not only the first one.
            if not [info for info in pods if not self._may_move(info)]:
                found.append((len(pods) / float(values[row]), float(shares[row]), nodes.node_name(row), row))
        return [row for *_, row in sorted(found)]

    def _may_move(self, info: PodInfo) -> bool:
        return self._mover.is_moved(info) or not self._movable.why_not(info)

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
                self.emptied.append(self._nodes.node_name(row))
                return True
        return False

    def _fullest(self, rows: Rows) -> int:
        """Return the row of which the largest share is requested, the first by name of equal ones."""
        shares = self._shares()[rows]
        tied: list[int] = rows[np.flatnonzero(shares == shares.max())].tolist()
        return min(tied, key=self._nodes.node_name)

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

    def drain(self, objective: Drain) -> None:
        """Move what may be moved off the nodes."""
        nodes = self._nodes
        drained = np.zeros(nodes.size, dtype=np.bool_)
        for row in np.flatnonzero(nodes.alive).tolist():
            is_selected = objective.selector is not None and objective.selector.matches(self._labels(row))
            drained[row] = is_selected or nodes.node_name(row) in objective.nodes
        self.missing = sorted(objective.nodes.difference(map(nodes.node_name, np.flatnonzero(drained).tolist())))
        self.is_selecting = bool(drained.any())
        destinations = nodes.alive & ~drained
        for row in sorted(np.flatnonzero(drained).tolist(), key=nodes.node_name):
            pods = self._counted(row)
            for info in largest_first(pods):
                if not self._movable.why_not(info) and self._mover.allows([info]):
                    self._mover.move(info, destinations)
            if pods and not self._counted(row):
                self.emptied.append(nodes.node_name(row))

    # -- both ---------------------------------------------------------------------------------------------------

    def _counted(self, row: int) -> list[PodInfo]:
        return [info for info in self._nodes.pods[row].values() if counts_for_node(info)]

    def _labels(self, row: int) -> dict[str, str]:
        node = self._nodes.nodes[row]
        return {} if node is None else node.metadata.labels


def largest_first(pods: Sequence[PodInfo]) -> list[PodInfo]:
    """Return pods in the order in which they are moved: those that request more are harder to place."""
    return sorted(pods, key=lambda info: (sorted(info.fit, reverse=True), info.key), reverse=True)
