"""Exact sums of requests that exceed the range of a column, which stores the clamped sum.

kube-scheduler lets int64 overflow, so that an overcommitted node may seem to have free resources.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scheduler_core.model.pod_requests import LARGEST_REQUEST


class ExactSums:
    """Exact sums.

    Attributes:
        sums: By column and row, only for clamped sums.
    """

    __slots__ = ("sums",)

    def __init__(self) -> None:
        self.sums: dict[tuple[int, int], int] = {}

    def get(self, column: int, row: int) -> int | None:
        """Return a sum; None if it is not clamped."""
        return self.sums.get((column, row))

    def put_into(self, sums: Sequence[list[int]], rows: Sequence[int]) -> None:
        """Replace clamped sums, given by column and position in ``rows``."""
        positions = {row: position for position, row in enumerate(rows)} if self.sums else {}
        for (column, row), exact in self.sums.items():
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
        exact = self.sums.pop((column, row), total - amount) + amount
        if exact <= LARGEST_REQUEST:
            return exact
        self.sums[column, row] = exact
        return LARGEST_REQUEST

    def drop(self, columns: Collection[int]) -> None:
        """Drop the sums of columns that are reused for another resource."""
        if self.sums and columns:
            self.sums = {place: exact for place, exact in self.sums.items() if place[0] not in columns}
