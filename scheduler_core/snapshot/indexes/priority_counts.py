"""Number of pods of each priority per row.

There is one column per priority in use; there are few, because priorities come from PriorityClasses. An infeasible pod
checks for every node whether a pod of lower priority runs there, and usually there is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class _Column:
    """One priority: pods per row, and the total."""

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
        """Set the capacity of the columns."""
        self._capacity = capacity
        for column in self._columns.values():
            grown = np.zeros(capacity, dtype=np.int32)
            grown[: len(column.rows)] = column.rows
            column.rows = grown

    def add(self, row: int, priority: int) -> None:
        """Count a pod of this priority that was added to ``row``."""
        column = self._columns.get(priority)
        if column is None:
            column = self._columns[priority] = _Column(self._capacity)
        column.rows[row] += 1
        column.total += 1

    def remove(self, row: int, priority: int) -> None:
        """Count a pod of this priority that was removed from ``row``."""
        column = self._columns[priority]
        column.rows[row] -= 1
        column.total -= 1
        if column.total == 0:
            del self._columns[priority]

    def clear_pods(self) -> None:
        """Remove all pods."""
        self._columns.clear()

    def below(self, priority: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether a pod of a lower priority runs on each of ``rows``, bool per row."""
        found = np.zeros(len(rows), dtype=np.bool_)
        for other, column in self._columns.items():
            if other < priority:
                found |= column.rows[rows] != 0
        return found
