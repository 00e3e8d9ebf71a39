"""Cache of the free amounts of nodes.

It stores differences of columns for requested resources, and a lower bound of each: while no node has less than a pod
requests, no row need be compared. A few selected rows are computed from the columns instead, which is cheaper than
updating the cache.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.row_cache import RowCache

PLACES = -1
"""Stands for pod slots among the numbers of resource columns."""

_MOST_COLUMNS = 16
_WORTH_CACHING = 16
"""The cache is used if the requested rows are at least one in this many."""


class FreeColumns(RowCache):
    """Free pod slots, and free amounts by resource column."""

    __slots__ = ("_free", "_least")

    def __init__(self, nodes: NodeColumns) -> None:
        """Create an empty cache.

        Args:
            nodes: The columns.
        """
        super().__init__(nodes)
        self._free: dict[int, NDArray[np.int64]] = {}
        self._least: dict[int, int] = {}

    def short(self, column: int, amount: int, rows: Rows) -> NDArray[np.bool_] | None:
        """Compare free amounts with a request.

        Args:
            column: Column of the resource, or ``PLACES``.
            amount: The request.
            rows: The rows to compare.

        Returns:
            bool per row, True where too little is free; None if every row has enough.
        """
        if not isinstance(rows, slice) and len(rows) * _WORTH_CACHING < self.nodes.size:
            free = self._difference(column, rows)
        else:
            self.refresh()
            free_amounts = self._column(column)
            if self._least[column] >= amount:
                return None
            free = free_amounts[rows]
        short: NDArray[np.bool_] = free < amount
        if short.any():
            return short
        if isinstance(rows, slice):
            self._least[column] = _least(free)
        return None

    def _column(self, column: int) -> NDArray[np.int64]:
        free = self._free.get(column)
        if free is None:
            if len(self._free) == _MOST_COLUMNS:
                del self._free[next(iter(self._free))]
            free = self._rebuild_column(column)
        return free

    def _rebuild_column(self, column: int) -> NDArray[np.int64]:
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
            self._rebuild_column(column)

    def _refresh_rows(self, rows: Iterable[int]) -> None:
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
