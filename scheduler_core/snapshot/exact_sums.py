"""Exact sums of requests that exceed the range of a column, which stores the clamped sum.

kube-scheduler lets int64 overflow, so that an overcommitted node may seem to have free resources.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scheduler_core.model.pod_requests import LARGEST_REQUEST


class ExactSums:
    """Exact sums by column and row, only for clamped sums."""

    __slots__ = ("_exact",)

    def __init__(self) -> None:
        self._exact: dict[tuple[int, int], int] = {}

    def get(self, column: int, row: int) -> int | None:
        """Return a sum; None if it is not clamped."""
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
            total: The column's value plus ``amount``.
            amount: The added amount, negative for a removal.

        Returns:
            The column's new value.
        """
        if not self._exact and total <= LARGEST_REQUEST:
            return total
        exact = self._exact.pop((column, row), total - amount) + amount
        if exact <= LARGEST_REQUEST:
            return exact
        self._exact[column, row] = exact
        return LARGEST_REQUEST

    def drop(self, columns: Collection[int]) -> None:
        """Drop the sums of columns that are reused for another resource."""
        if self._exact and columns:
            self._exact = {place: exact for place, exact in self._exact.items() if place[0] not in columns}
