"""Interners and label columns: names become small integers, so that columns contain only integers; and their bounds.

A bound decides how often something is recomputed, never a scheduling decision. The exception is ``resources``:
resources of nodes beyond it are not available to any pod.

An :class:`Interner` only grows and is used for a short time. The others count the users of a number and reuse it,
because label values, taints and resources change continually in a long-running cluster.

A label column is created when a selector or topology first uses its key, because nodes have many labels that nothing
selects. The oldest column is dropped beyond the limit, because users who can create pods must not control the
scheduler's memory. The number of a value is also the topology domain of the key: tables by domain have one slot more
than there are values, and the last slot, index -1, is for nodes without the key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.change_log import ChangeLog
from scheduler_core.model.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler_core.step_counter import StepCounter

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SnapshotBounds(Struct, frozen=True):
    """Maximum size of each table.

    Attributes:
        resources: Columns of resources that nodes offer, besides CPU, memory and ephemeral storage.
        taint_lists: Entries in the log of new taint lists.
        idle_checks: Pods that are compared with a query after its last use before its counts are dropped. If there are
            more pods on nodes, their number applies, because recounting costs as much.
        toleration_tables: Lists of tolerations, each compared with all taint lists.
        selector_tables: Conditions on node labels, each evaluated for all values.
        table_items: Tolerations or values that the keys of either of these tables list, together.
        volume_affinities: Node affinities of volumes, each with its rows.
    """

    changes: int = 65_536
    resources: int = 1024
    label_columns: int = 1024
    taint_lists: int = 4096
    queries: int = 4096
    query_bytes: int = 64 << 20
    idle_checks: int = 256
    default_selectors: int = 4096
    toleration_tables: int = 1024
    selector_tables: int = 512
    table_items: int = 100_000
    volume_affinities: int = 16_384


DEFAULT_BOUNDS = SnapshotBounds()


class BoundedTables(Generic[K, V]):
    """Tables by key, with bounds on their number and on what their keys list; the oldest ones are dropped first.

    A key may list a megabyte of values, so that a bound on the number of tables is none on memory.

    Args:
        items: Maximum number of items that all keys list; a table that exceeds it alone is not stored.
    """

    __slots__ = ("_items", "_limit", "_listed", "_tables")

    def __init__(self, limit: int, items: int) -> None:
        self._limit = limit
        self._items = items
        self._tables: dict[K, tuple[int, V]] = {}
        self._listed = 0

    def __len__(self) -> int:
        return len(self._tables)

    def get(self, key: K) -> V | None:
        """Return the table of a key; None if there is none."""
        found = self._tables.get(key)
        return None if found is None else found[1]

    def store(self, key: K, items: int, table: V) -> None:
        replaced = self._tables.get(key)
        if replaced is not None:
            self._tables[key] = (replaced[0], table)
            return
        if items > self._items:
            return
        while self._tables and (len(self._tables) >= self._limit or self._listed + items > self._items):
            self._listed -= self._tables.pop(next(iter(self._tables)))[0]
        self._tables[key] = (items, table)
        self._listed += items

    def clear(self) -> None:
        self._tables.clear()
        self._listed = 0


FIXED_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)
CPU_COLUMN = 0
MEMORY_COLUMN = 1
UNOFFERED_COLUMN = 3


class Interner(Generic[K]):
    """Maps keys to numbers from 0 up; numbers are never released."""

    __slots__ = ("_ids", "keys")

    def __init__(self) -> None:
        self._ids: dict[K, int] = {}
        self.keys: list[K] = []

    def __len__(self) -> int:
        return len(self.keys)

    def intern(self, key: K) -> int:
        """Return the number of ``key``; assign one if it has none."""
        number = self._ids.get(key)
        if number is None:
            number = self._ids[key] = len(self.keys)
            self.keys.append(key)
        return number


class CountingInterner(Generic[K]):
    """Maps keys to numbers; the number of a key without users is reused."""

    __slots__ = ("_counts", "_free", "_ids", "keys")

    def __init__(self) -> None:
        self._ids: dict[K, int] = {}
        self._counts: list[int] = []
        self._free: list[int] = []
        self.keys: list[K | None] = []

    def __len__(self) -> int:
        """Return the highest number of keys ever in use at once: the length that a table by number needs."""
        return len(self.keys)

    def acquire(self, key: K) -> int:
        """Return the number of ``key`` and count one more user."""
        number = self._ids.get(key)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.keys[number] = key
            else:
                number = len(self.keys)
                self.keys.append(key)
                self._counts.append(0)
            self._ids[key] = number
        self._counts[number] += 1
        return number

    def release(self, number: int) -> None:
        """Count one user less of ``number``; without users it is free."""
        self._counts[number] -= 1
        if self._counts[number] == 0:
            key = self.keys[number]
            assert key is not None
            del self._ids[key]
            self.keys[number] = None
            self._free.append(number)

    def find(self, key: K) -> int | None:
        """Return the number of ``key``, None if it has no users."""
        return self._ids.get(key)


class LoggedInterner(CountingInterner[K]):
    """Counting interner that records which numbers get a new key, in order, for tables by number."""

    __slots__ = ("assigned",)

    def __init__(self, limit: int = DEFAULT_BOUNDS.taint_lists) -> None:
        super().__init__()
        self.assigned: ChangeLog[int] = ChangeLog(limit)

    def acquire(self, key: K) -> int:
        """Return the number of ``key`` and count one more user."""
        is_new = key not in self._ids
        number = super().acquire(key)
        if is_new:
            self.assigned.append(number)
        return number

    def clear(self) -> None:
        self._ids, self._counts, self._free, self.keys = {}, [], [], []
        self.assigned.append_all()


class ResourceNames:
    """Columns of the resources that nodes offer.

    Cpu, memory and ephemeral storage have fixed columns. Any other resource has a column while a node offers it: pods
    may name any resource, and a column costs memory for every node. :data:`UNOFFERED_COLUMN` stands for every resource
    without a column; no node has any of it. The column of a resource that no node offers any more is reused.

    Args:
        limit: Most columns besides the fixed ones. Resources beyond the limit wait for a free column.

    Attributes:
        find: Returns the column of a resource, or None if it has none.
        keys: Resource of each column; "" for a free one and for :data:`UNOFFERED_COLUMN`.
    """

    __slots__ = ("_free", "_ids", "_limit", "_offers", "find", "keys", "version")

    def __init__(self, limit: int = DEFAULT_BOUNDS.resources) -> None:
        self.keys: list[str] = [*FIXED_RESOURCES, ""]
        self.version = 0
        self._limit = limit
        self._ids = {name: number for number, name in enumerate(FIXED_RESOURCES)}
        self.find: Callable[[str], int | None] = self._ids.get
        self._free: list[int] = []
        self._offers: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of columns, free ones included."""
        return len(self.keys)

    def offer(self, name: str) -> bool:
        """Count one more node that offers a resource without a fixed column; return whether it got a column now."""
        nodes = self._offers[name] = self._offers.get(name, 0) + 1
        return nodes == 1 and self._assign(name)

    def clear(self) -> None:
        """Remove all nodes and release all columns but the fixed ones."""
        self._offers.clear()
        for name in self.keys:
            if name not in FIXED_RESOURCES:
                self._ids.pop(name, None)
        self._free = []
        del self.keys[UNOFFERED_COLUMN + 1 :]
        self.version += 1

    def hold(self, name: str) -> bool:
        """Count one more node for a resource if any node offers it; return whether one does."""
        if name not in self._offers:
            return False
        self._offers[name] += 1
        return True

    def withdraw(self, name: str) -> int | None:
        """Count one node less that offers a resource; return the column that is free now, None for none."""
        self._offers[name] = self._offers.get(name, 1) - 1
        if self._offers[name]:
            return None
        del self._offers[name]
        column = self._ids.pop(name, None)
        if column is not None:
            self.keys[column] = ""
            self._free.append(column)
            self.version += 1
        return column

    def adopt(self) -> str | None:
        """Give a free column to a resource that waits for one, and return the resource; None for neither."""
        if len(self._offers) + len(FIXED_RESOURCES) == len(self._ids):
            return None
        name = next(name for name in self._offers if name not in self._ids)
        return name if self._assign(name) else None

    def _assign(self, name: str) -> bool:
        if self._free:
            column = self._free.pop()
            self.keys[column] = name
        elif len(self.keys) <= UNOFFERED_COLUMN + self._limit:
            column = len(self.keys)
            self.keys.append(name)
        else:
            return False
        self._ids[name] = column
        self.version += 1
        return True


NO_VALUE = -1
_ROWS_OF_STEP = 5


class LabelColumn:
    """Values of one label key.

    Attributes:
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
        """Call ``predicate`` once per distinct value; return bool[values + 1] for :attr:`ids`, the last for none."""
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
        self._capacity, self._size = capacity, size
        for column in self._columns.values():
            column.resize(capacity, size)

    def clear(self) -> None:
        """Drop all columns; they are created again when they are used."""
        self._columns.clear()

    def assign(self, row: int, labels: Mapping[str, str]) -> None:
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
