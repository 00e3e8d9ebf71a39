"""Interners: map names to small integers, so that columns contain only integers.

An :class:`Interner` only grows and is used for a short time. The others count the users of a number and reuse it,
because label values, taints and resources change continually in a long-running cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from scheduler_core.change_log import ChangeLog
from scheduler_core.model.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler_core.snapshot.table_bounds import DEFAULT_BOUNDS

K = TypeVar("K", bound=Hashable)

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
    """Counting interner that records which numbers get a new key, for tables by number.

    Attributes:
        assigned: The numbers in the order in which they got a key.
    """

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
        """Release all numbers."""
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
        version: Raised when a resource gets or loses its column.
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
        """Count one more node that offers a resource that has no fixed column.

        Returns:
            Whether the resource got a column now.
        """
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
        """Count one node less that offers a resource.

        Returns:
            The column that is free now; None if there is none.
        """
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
        """Give a free column to a resource that waits for one.

        Returns:
            The resource; None if no resource waits or no column is free.
        """
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
