"""Sums of requests that are larger than a column holds: the column has a clamped sum, the exact one is here.

The reference lets int64 overflow, so that an overcommitted node can seem to have room.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scheduler_core.model.pod_requests import LARGEST_REQUEST


class ExactSums:
    """Exact sums by column and row, for those sums alone that are clamped."""

    __slots__ = ("_exact",)

    def __init__(self) -> None:
        self._exact: dict[tuple[int, int], int] = {}

    def get(self, column: int, row: int) -> int | None:
        """Return a sum; None if its column holds it."""
        return self._exact.get((column, row))

    def put_into(self, sums: Sequence[list[int]], rows: Sequence[int]) -> None:
        """Replace clamped sums, given by column and position in ``rows``."""
        positions = {row: position for position, row in enumerate(rows)} if self._exact else {}
        for (column, row), exact in self._exact.items():
            if column >= 0 and row in positions:
                sums[column][positions[row]] = exact

    def clamp(self, column: int, row: int, total: int, amount: int) -> int:
        """Clamp a sum to ``LARGEST_REQUEST``; store the exact sum, so that removals restore it.

        Args:
            column: The column.
            row: The row.
            total: What the column holds, with ``amount`` added.
            amount: What is added, below 0 for a removal.

        Returns:
            What the column holds from now on.
        """
        if not self._exact and total <= LARGEST_REQUEST:
            return total
        exact = self._exact.pop((column, row), total - amount) + amount
        if exact <= LARGEST_REQUEST:
            return exact
        self._exact[column, row] = exact
        return LARGEST_REQUEST

    def drop(self, columns: Collection[int]) -> None:
        """Drop the sums of columns that another resource gets."""
        if self._exact and columns:
            self._exact = {place: exact for place, exact in self._exact.items() if place[0] not in columns}
