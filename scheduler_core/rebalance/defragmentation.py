"""Moves that free amounts of a resource in pieces on single nodes, such as eight GPUs on one node.

A node is tried if moving some of its pods frees one more piece there; first is the node that lacks the least. The pods
go where their room is not part of a whole free piece, so that each step frees a piece. The nodes are tried again until
no step does.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from scheduler_core.rebalance.movable_pods import MovablePods
from scheduler_core.rebalance.mover import Mover, MoveSearch, Rows, cost_of, largest_first
from scheduler_core.rebalance.requests import Defragment, RebalancePlan
from scheduler_core.snapshot.pod_info import PodInfo

_PODS_PER_STEP = 20
_NONE = -1


class Defragmentation(MoveSearch):
    """Frees pieces of a resource."""

    def __init__(self, mover: Mover, movable: MovablePods, objective: Defragment) -> None:
        super().__init__(mover, movable)
        self._amount = objective.amount
        column = mover.nodes.resources.find(objective.resource)
        self._column = _NONE if column is None else column

    def run(self, plan: RebalancePlan) -> None:
        """Free as many pieces as possible."""
        if self._column == _NONE:
            plan.gain.pieces, plan.reason = (0, 0), "no node offers the resource"
            return
        before = self._free_pieces()
        try:
            self._mover.move_once(self._free_all)
        finally:
            plan.gain.pieces = before, self._free_pieces()

    def _free_all(self, moves_twice: bool) -> None:
        self._free_rows(self._candidates, partial(self._is_freed, moves_twice=moves_twice))

    def _free_pieces(self) -> int:
        return int((self._free() // self._amount).sum())

    def _free(self) -> NDArray[np.int64]:
        """Return the free amounts, int64 per row; 0 for free rows and cordoned nodes."""
        nodes, column = self._nodes, self._column
        free = np.maximum(nodes.allocatable[column] - nodes.requested[column], 0)
        usable = np.array([node is not None and not node.spec.unschedulable for node in nodes.nodes], dtype=np.bool_)
        return np.where(nodes.alive & usable, free, 0).astype(np.int64)

    def _candidates(self) -> list[int]:
        """Return the nodes that may have one more piece, those that lack the least of it first."""
        nodes, column = self._nodes, self._column
        free, found = self._free(), list[tuple[int, str, int]]()
        for row in np.flatnonzero(nodes.alive & (nodes.allocatable[column] >= self._amount)).tolist():
            node = nodes.nodes[row]
            if node is None or node.spec.unschedulable or not self._movable.may_leave(row):
                continue
            missing = self._amount - free.item(row) % self._amount
            if free.item(row) + missing <= nodes.allocatable.item(column, row):
                found.append((missing, nodes.node_name(row), row))
        return [row for *_, row in sorted(found)]

    def _is_freed(self, row: int, *, moves_twice: bool) -> bool:
        """Move pods off a node so that it has one more free piece; return whether it has, else nothing is changed."""
        mover = self._mover
        pods = self._to_be_moved(row, moves_twice=moves_twice)
        if not pods or not mover.allows([info for info in pods if not mover.is_moved(info)]):
            return False
        before = self._free_pieces()
        with mover.all_or_nothing() as group:
            moved = all(mover.move(info, self._destinations(info, row), self._tightest) for info in largest_first(pods))
            if moved and self._free_pieces() > before:
                group.commit()
        return group.is_committed

    def _to_be_moved(self, row: int, *, moves_twice: bool) -> list[PodInfo]:
        """Return pods that free what is missing for one more piece, few and cheap ones; empty if there are none."""
        missing = self._amount - self._free().item(row) % self._amount
        here = self._nodes.pods[row].values()
        pods = [info for info in here if self._uses(info) and self._may_move(info, moves_twice)]
        self._nodes.steps.spend(1 + len(pods) // _PODS_PER_STEP)
        single = [info for info in pods if self._uses(info) >= missing]
        if single:
            return [min(single, key=lambda info: (cost_of(info), self._uses(info), info.key))]
        chosen: list[PodInfo] = []
        for info in sorted(pods, key=lambda info: (cost_of(info), -self._uses(info), info.key)):
            if missing <= 0:
                break
            chosen.append(info)
            missing -= self._uses(info)
        return chosen if missing <= 0 else []

    def _uses(self, info: PodInfo) -> int:
        return dict(info.accounted).get(self._column, 0)

    def _destinations(self, info: PodInfo, row: int) -> NDArray[np.bool_]:
        """Return the nodes where a pod takes no whole free piece, bool per row."""
        mask: NDArray[np.bool_] = self._free() % self._amount >= self._uses(info)
        mask[row] = False
        return mask

    def _tightest(self, rows: Rows) -> int:
        """Return the row with the least left beside whole pieces."""
        return self._least(rows, (self._free() % self._amount)[rows])
