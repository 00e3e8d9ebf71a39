"""Bounded log of changed rows or nodes, so that cached results can be refreshed where they are stale.

A reader stores its position and reads what was appended since. The log is truncated at its front; a reader whose
position was cut off must rebuild, which is cheaper than a full log for a reader that may never return.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeLog(Generic[T]):
    """What changed, in the order of the changes; positions are absolute and never reused.

    Args:
        limit: Number of changes that are always available; at most twice as many are stored.

    Attributes:
        position: Position of the next change.
        entries: The last changes; only for reading.
    """

    __slots__ = ("_limit", "entries", "position")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.entries: list[T] = []
        self.position = 0

    def append(self, changed: T) -> None:
        changes = self.entries
        changes.append(changed)
        self.position += 1
        if len(changes) >= 2 * self._limit:
            del changes[: len(changes) - self._limit]

    def append_all(self) -> None:
        """Record a change that may concern everything."""
        self.position += 1
        self.entries.clear()

    def since(self, position: int) -> list[T] | None:
        """Return what changed from ``position`` on, possibly with duplicates; None if it may be anything."""
        offset = position - self.position + len(self.entries)
        return None if offset < 0 else self.entries[offset:]
