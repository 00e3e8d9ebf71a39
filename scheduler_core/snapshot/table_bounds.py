"""Bounds of the snapshot's tables, in one place so that tests can set them to small values.

A bound decides how often something is recomputed, never a scheduling decision. The exception is ``resources``:
resources of nodes beyond it are not available to any pod.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SnapshotBounds(Struct, frozen=True):
    """Maximum size of each table.

    Attributes:
        changes: Rows in the change log.
        resources: Columns of resources that nodes offer, besides CPU, memory and ephemeral storage.
        label_columns: Columns of node label keys.
        taint_lists: Entries in the log of new taint lists.
        queries: Queries whose pods are counted.
        query_bytes: Memory for these counts.
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
        """Store the table of a key, which lists ``items``."""
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
        """Drop all tables."""
        self._tables.clear()
        self._listed = 0
