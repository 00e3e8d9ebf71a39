"""Node labels as columns of interned values, one column per key that anything has asked for.

Owns the mapping from a label's value on each node to a small number. A key is turned into a column when a selector or
a topology first names it, since nodes carry many labels that nobody selects by; when pods name ever new keys the oldest
goes, since who may create a pod must not decide how much memory the scheduler takes. The number of a value serves as
the topology domain of that key too: tables by domain have one slot more than there are values, and the last slot, which
-1 reaches, stands for nodes without the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.bounds import DEFAULT_BOUNDS
from scheduler_core.snapshot.interning import CountingInterner

NO_VALUE = -1


class LabelColumn:
    """The values of one label key.

    Attributes:
        key: The label key.
        values: Interned values in use.
        version: Raised whenever a node's value changes, so that masks by this key know that they are old.
    """

    __slots__ = ("_ids", "ids", "key", "values", "version")

    def __init__(self, key: str, capacity: int, version: int = 0) -> None:
        self.key = key
        self.values: CountingInterner[str] = CountingInterner()
        self.version = version
        self._ids: NDArray[np.int32] = np.full(capacity, NO_VALUE, dtype=np.int32)
        self.ids: NDArray[np.int32] = self._ids[:0]

    def resize(self, capacity: int, size: int) -> None:
        """Make room for ``capacity`` rows and show the first ``size``."""
        if capacity > len(self._ids):
            grown = np.full(capacity, NO_VALUE, dtype=np.int32)
            grown[: len(self._ids)] = self._ids
            self._ids = grown
        self.ids = self._ids[:size]
        self.ids.flags.writeable = False

    def assign(self, row: int, value: str | None) -> bool:
        """Set the value of a row (None: the node lacks the key); tells whether it changed."""
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
        """Ask ``predicate`` once per distinct value.

        Returns:
            bool[values + 1], to be indexed with :attr:`ids`; the last slot answers for nodes without the key.
        """
        keys = self.values.keys
        table = np.zeros(len(keys) + 1, dtype=np.bool_)
        for number, value in enumerate(keys):
            if value is not None:
                table[number] = predicate(value)
        table[-1] = predicate(None)
        return table


class LabelColumns:
    """The label columns that were asked for last, made on first use from the labels of all nodes.

    A column that went is not kept up any more: it holds until the next change of a node and not longer.

    Args:
        labels: The labels of the node of a row; None for a free row.
        limit: How many are kept.
    """

    __slots__ = ("_capacity", "_columns", "_labels", "_limit", "_made", "_size")

    def __init__(
        self, labels: Callable[[int], Mapping[str, str] | None], limit: int = DEFAULT_BOUNDS.label_columns
    ) -> None:
        self._labels = labels
        self._limit = limit
        self._made = 0
        self._columns: dict[str, LabelColumn] = {}
        self._capacity = 0
        self._size = 0

    def resize(self, capacity: int, size: int) -> None:
        """Follow the node columns' capacity and size."""
        self._capacity, self._size = capacity, size
        for column in self._columns.values():
            column.resize(capacity, size)

    def assign(self, row: int, labels: Mapping[str, str]) -> None:
        """Take over the labels of a row in all columns that exist."""
        for key, column in self._columns.items():
            column.assign(row, labels.get(key))

    def column(self, key: str) -> LabelColumn:
        """The column of ``key``."""
        column = self._columns.get(key)
        if column is None:
            while len(self._columns) >= self._limit:
                del self._columns[next(iter(self._columns))]
            # What was made from a column of this key that went must not be taken for what is made from this one.
            self._made += 1
            column = LabelColumn(key, self._capacity, self._made << 32)
            column.resize(self._capacity, self._size)
            for row in range(self._size):
                labels = self._labels(row)
                if labels is not None and key in labels:
                    column.assign(row, labels[key])
            self._columns[key] = column
        return column
