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
    """

    __slots__ = ("_changes", "_limit", "_start")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[T] = []
        self._start = 0

    @property
    def position(self) -> int:
        """Position of the next change."""
        return self._start + len(self._changes)

    def append(self, changed: T) -> None:
        """Record a change."""
        changes = self._changes
        changes.append(changed)
        if len(changes) >= 2 * self._limit:
            cut = len(changes) - self._limit
            del changes[:cut]
            self._start += cut

    def append_all(self) -> None:
        """Record a change that may concern everything."""
        self._start = self.position + 1
        self._changes.clear()

    def since(self, position: int) -> list[T] | None:
        """Return what changed from ``position`` on, possibly with duplicates; None if it may be anything."""
        offset = position - self._start
        return None if offset < 0 else self._changes[offset:]
