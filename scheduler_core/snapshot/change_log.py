"""Bounded log of changed rows, so that cached results can be refreshed where they are stale.

A reader stores its position and reads the rows that were appended since. The log is truncated at its front; a reader
whose position was cut off must rebuild, which is cheaper than a full log for a reader that may never return.
"""

from __future__ import annotations

from scheduler_core.snapshot.table_bounds import DEFAULT_BOUNDS


class ChangeLog:
    """Rows in the order of their changes; positions are absolute and never reused."""

    __slots__ = ("_rows", "_start", "limit")

    def __init__(self, limit: int = DEFAULT_BOUNDS.changes) -> None:
        self.limit = limit
        self._rows: list[int] = []
        self._start = 0

    @property
    def position(self) -> int:
        """Position of the next change."""
        return self._start + len(self._rows)

    def append(self, row: int) -> None:
        """Record a change of ``row``."""
        rows = self._rows
        rows.append(row)
        if len(rows) >= 2 * self.limit:
            cut = len(rows) - self.limit
            del rows[:cut]
            self._start += cut

    def since(self, position: int) -> list[int] | None:
        """Return the rows that changed from ``position`` on, possibly with duplicates; None if they were truncated."""
        offset = position - self._start
        return None if offset < 0 else self._rows[offset:]
