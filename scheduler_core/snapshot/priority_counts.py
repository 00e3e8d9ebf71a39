"""How many pods of each priority run on each row.

Owns one column per priority in use; there are few, since priorities come from PriorityClasses. Why: a pod that fits
nowhere asks of every node whether anybody there is less important, and most often the answer is no everywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class _Column:
    """One priority: pods per row, and in all."""

    __slots__ = ("rows", "total")

    def __init__(self, capacity: int) -> None:
        self.rows: NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        self.total = 0


class PriorityCounts:
    """Counts by priority and row."""

    __slots__ = ("_capacity", "_columns")

    def __init__(self) -> None:
        self._capacity = 0
        self._columns: dict[int, _Column] = {}

    def resize(self, capacity: int) -> None:
        """Follow the columns' capacity."""
        self._capacity = capacity
        for column in self._columns.values():
            grown = np.zeros(capacity, dtype=np.int32)
            grown[: len(column.rows)] = column.rows
            column.rows = grown

    def add(self, row: int, priority: int) -> None:
        """A pod of this priority has been put on ``row``."""
        column = self._columns.get(priority)
        if column is None:
            column = self._columns[priority] = _Column(self._capacity)
        column.rows[row] += 1
        column.total += 1

    def remove(self, row: int, priority: int) -> None:
        """A pod of this priority has been taken off ``row``."""
        column = self._columns[priority]
        column.rows[row] -= 1
        column.total -= 1
        if column.total == 0:
            del self._columns[priority]

    def below(self, priority: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether any pod of a lower priority runs on each of ``rows``, bool per row asked about."""
        found = np.zeros(len(rows), dtype=np.bool_)
        for other, column in self._columns.items():
            if other < priority:
                found |= column.rows[rows] != 0
        return found
