"""What nodes have free, kept from pod to pod.

Owns differences of columns, for the resources that pods have asked for, and a bound of each: while no node has less
than a pod asks for, none need be looked at. Must not know what a pod is. A few chosen rows are looked up in the columns
themselves, which is cheaper than to bring all rows up to date.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.row_keeper import RowKeeper

PLACES = -1
"""Stands for places for pods among the numbers of resource columns."""

_MOST_COLUMNS = 16
_WORTH_KEEPING = 16
"""What is kept is used for at least one row in so many."""


class FreeColumns(RowKeeper):
    """Places for pods, and resources by column."""

    __slots__ = ("_free", "_least")

    def __init__(self, nodes: NodeColumns) -> None:
        """Keep nothing yet.

        Args:
            nodes: The columns.
        """
        super().__init__(nodes)
        self._free: dict[int, NDArray[np.int64]] = {}
        self._least: dict[int, int] = {}

    def short(self, column: int, amount: int, rows: Rows) -> NDArray[np.bool_] | None:
        """Compare what is free with what is asked for.

        Args:
            column: Of the resource, or ``PLACES``.
            amount: How much is asked for.
            rows: The rows to compare.

        Returns:
            bool per row, where too little is free; None if it is nowhere.
        """
        if not isinstance(rows, slice) and len(rows) * _WORTH_KEEPING < self.nodes.size:
            free = self._difference(column, rows)
        else:
            self.refresh()
            kept = self._kept(column)
            if self._least[column] >= amount:
                return None
            free = kept[rows]
        short: NDArray[np.bool_] = free < amount
        if short.any():
            return short
        if isinstance(rows, slice):
            self._least[column] = _least(free)
        return None

    def _kept(self, column: int) -> NDArray[np.int64]:
        free = self._free.get(column)
        if free is None:
            if len(self._free) == _MOST_COLUMNS:
                del self._free[next(iter(self._free))]
            free = self._keep(column)
        return free

    def _keep(self, column: int) -> NDArray[np.int64]:
        free = self._free[column] = self._difference(column, slice(None))
        self._least[column] = _least(free)
        return free

    def _difference(self, column: int, rows: Rows) -> NDArray[np.int64]:
        nodes = self.nodes
        if column == PLACES:
            return nodes.allowed_pods[rows] - nodes.pod_count[rows]
        return nodes.allocatable[column, rows] - nodes.requested[column, rows]

    def _rebuild(self) -> None:
        for column in self._free:
            self._keep(column)

    def _renew(self, rows: Iterable[int]) -> None:
        nodes, least = self.nodes, self._least
        for row in rows:
            for column, free in self._free.items():
                if column == PLACES:
                    left = nodes.allowed_pods.item(row) - nodes.pod_count.item(row)
                else:
                    left = nodes.allocatable.item(column, row) - nodes.requested.item(column, row)
                free[row] = left
                least[column] = min(least[column], left)


def _least(free: NDArray[np.int64]) -> int:
    return int(free.min()) if len(free) else 0
