"""The order in which rows changed, so that what was computed once can be refreshed where it is old.

Owns a bounded log of row numbers. A reader remembers a position; what was appended since is what it must look at
again. The log is cut from its front, and a reader whose position fell off starts anew: cheaper than keeping it whole
for one that may never come back.
"""

from __future__ import annotations

from scheduler_core.snapshot.bounds import DEFAULT_BOUNDS


class ChangeLog:
    """Rows in the order of their changes; positions are absolute and never reused."""

    __slots__ = ("_rows", "_start", "limit")

    def __init__(self, limit: int = DEFAULT_BOUNDS.changes) -> None:
        self.limit = limit
        self._rows: list[int] = []
        self._start = 0

    @property
    def position(self) -> int:
        """Where the next change will stand."""
        return self._start + len(self._rows)

    def append(self, row: int) -> None:
        """Note that ``row`` changed."""
        rows = self._rows
        rows.append(row)
        if len(rows) >= 2 * self.limit:
            cut = len(rows) - self.limit
            del rows[:cut]
            self._start += cut

    def since(self, position: int) -> list[int] | None:
        """Rows changed from ``position`` on, perhaps more than once; None when that far back is cut off."""
        offset = position - self._start
        return None if offset < 0 else self._rows[offset:]
