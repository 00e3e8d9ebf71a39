"""Node labels as columns of interned values, one column per label key in use.

A column is created when a selector or topology first uses its key, because nodes have many labels that nothing
selects. The oldest column is dropped beyond the limit, because users who can create pods must not control the
scheduler's memory. The number of a value is also the topology domain of the key: tables by domain have one slot more
than there are values, and the last slot, index -1, is for nodes without the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.interning import CountingInterner
from scheduler_core.snapshot.table_bounds import DEFAULT_BOUNDS
from scheduler_core.step_counter import StepCounter

NO_VALUE = -1
_ROWS_OF_STEP = 5


class LabelColumn:
    """Values of one label key.

    Attributes:
        values: Interned values in use.
        version: Incremented when the value of a node changes, to detect stale masks.
    """

    __slots__ = ("_ids", "ids", "key", "values", "version")

    def __init__(self, key: str, capacity: int, version: int = 0) -> None:
        self.key = key
        self.values: CountingInterner[str] = CountingInterner()
        self.version = version
        self._ids: NDArray[np.int32] = np.full(capacity, NO_VALUE, dtype=np.int32)
        self.ids: NDArray[np.int32] = self._ids[:0]

    def resize(self, capacity: int, size: int) -> None:
        """Allocate ``capacity`` rows and expose the first ``size``."""
        if capacity > len(self._ids):
            grown = np.full(capacity, NO_VALUE, dtype=np.int32)
            grown[: len(self._ids)] = self._ids
            self._ids = grown
        self.ids = self._ids[:size]
        self.ids.flags.writeable = False

    def assign(self, row: int, value: str | None) -> bool:
        """Set the value of a row (None: the node does not have the key); return whether it changed."""
        old = int(self._ids[row])
        if old != NO_VALUE:
            if self.values.keys[old] == value:
                return False
            self.values.release(old)
        elif value is None:
            return False
        self._ids[row] = NO_VALUE if value is None else self.values.acquire(value)
        self.version += 1
        return True

    def table(self, predicate: Callable[[str | None], bool]) -> NDArray[np.bool_]:
        """Call ``predicate`` once per distinct value.

        Returns:
            bool[values + 1], to index with :attr:`ids`; the last slot is for nodes without the key.
        """
        keys = self.values.keys
        table = np.zeros(len(keys) + 1, dtype=np.bool_)
        for number, value in enumerate(keys):
            if value is not None:
                table[number] = predicate(value)
        table[-1] = predicate(None)
        return table


class LabelColumns:
    """The most recently created label columns, built on first use from the labels of all nodes.

    A dropped column is no longer updated: it is valid until the next change of a node.

    Args:
        labels: Returns the labels of the node of a row; None for an unused row.
    """

    __slots__ = ("_capacity", "_columns", "_labels", "_limit", "_made", "_size", "_steps")

    def __init__(
        self,
        labels: Callable[[int], Mapping[str, str] | None],
        limit: int = DEFAULT_BOUNDS.label_columns,
        steps: StepCounter | None = None,
    ) -> None:
        self._labels = labels
        self._steps = StepCounter() if steps is None else steps
        self._limit = limit
        self._made = 0
        self._columns: dict[str, LabelColumn] = {}
        self._capacity = 0
        self._size = 0

    def resize(self, capacity: int, size: int) -> None:
        """Set the capacity and size of the node columns."""
        self._capacity, self._size = capacity, size
        for column in self._columns.values():
            column.resize(capacity, size)

    def clear(self) -> None:
        """Drop all columns; they are created again when they are used."""
        self._columns.clear()

    def assign(self, row: int, labels: Mapping[str, str]) -> None:
        """Set the labels of a row in all columns."""
        for key, column in self._columns.items():
            column.assign(row, labels.get(key))

    def column(self, key: str) -> LabelColumn:
        """Return the column of ``key``; create it on first use."""
        column = self._columns.get(key)
        if column is None:
            while len(self._columns) >= self._limit:
                del self._columns[next(iter(self._columns))]
            self._steps.upkeep(1 + self._size // _ROWS_OF_STEP)
            # Versions must differ from those of an earlier, dropped column of this key.
            self._made += 1
            column = LabelColumn(key, self._capacity, self._made << 32)
            column.resize(self._capacity, self._size)
            for row in range(self._size):
                labels = self._labels(row)
                if labels is not None and key in labels:
                    column.assign(row, labels[key])
            self._columns[key] = column
        return column
