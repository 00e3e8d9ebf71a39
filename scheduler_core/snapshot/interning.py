"""Interners: names to small integers, so that columns hold integers only.

Owns the two kinds there are: one that only grows (resource names, taint sets: few in any cluster) and one that counts
its users and gives numbers back (label values: as many as there are nodes, ever new where nodes come and go).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from scheduler_core.model.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY

K = TypeVar("K", bound=Hashable)

CPU_COLUMN = 0
MEMORY_COLUMN = 1
EPHEMERAL_STORAGE_COLUMN = 2


class Interner(Generic[K]):
    """Keys to numbers from 0 up, never given back."""

    __slots__ = ("_ids", "keys")

    def __init__(self) -> None:
        self._ids: dict[K, int] = {}
        self.keys: list[K] = []

    def __len__(self) -> int:
        return len(self.keys)

    def intern(self, key: K) -> int:
        """The number of ``key``, a new one if it has none."""
        number = self._ids.get(key)
        if number is None:
            number = self._ids[key] = len(self.keys)
            self.keys.append(key)
        return number

    def find(self, key: K) -> int | None:
        """The number of ``key``, None if it has none."""
        return self._ids.get(key)


class CountingInterner(Generic[K]):
    """Keys to numbers; a key that nobody holds any more gives its number back for the next one."""

    __slots__ = ("_counts", "_free", "_ids", "keys")

    def __init__(self) -> None:
        self._ids: dict[K, int] = {}
        self._counts: list[int] = []
        self._free: list[int] = []
        self.keys: list[K | None] = []

    def __len__(self) -> int:
        """How many numbers have ever been in use at once: the length that a table by number needs."""
        return len(self.keys)

    def acquire(self, key: K) -> int:
        """The number of ``key``, held once more."""
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
        """Hold ``number`` once less; at none it is free."""
        self._counts[number] -= 1
        if self._counts[number] == 0:
            key = self.keys[number]
            assert key is not None
            del self._ids[key]
            self.keys[number] = None
            self._free.append(number)

    def find(self, key: K) -> int | None:
        """The number of ``key``, None if nobody holds it."""
        return self._ids.get(key)


MAX_RESOURCES = 1024
OTHER_RESOURCES = "bayplan.dev/other-resources"
"""Stands for all names that came when there were :data:`MAX_RESOURCES`; no node offers any of it."""


class ResourceNames(Interner[str]):
    """Resource names to columns, of which there are at most :data:`MAX_RESOURCES` and one more.

    Each column costs memory for every node, and pods may ask for anything: what they name beyond the limit shares one
    column, in which nothing is to be had. Cpu, memory and ephemeral storage have their fixed columns.
    """

    __slots__ = ("_limit",)

    def __init__(self, limit: int = MAX_RESOURCES) -> None:
        super().__init__()
        self._limit = limit
        for name in (CPU, MEMORY, EPHEMERAL_STORAGE):
            self.intern(name)

    def intern(self, key: str) -> int:
        """The column of a resource, a new one if it has none; the shared one if no new one can be made."""
        number = self._ids.get(key)
        if number is not None:
            return number
        return super().intern(key if len(self) < self._limit else OTHER_RESOURCES)
