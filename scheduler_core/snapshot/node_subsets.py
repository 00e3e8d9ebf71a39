"""Subsets of the nodes as numbers per row, so that thousands of subsets take no more memory than one column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NO_SUBSET = -1


class NodeSubsets:
    """Disjoint subsets of the nodes.

    Args:
        numbers: int32 per row: the number of its subset, :data:`NO_SUBSET` for none.
    """

    __slots__ = ("_ordered", "_starts", "count", "numbers")

    def __init__(self, numbers: NDArray[np.int32], count: int) -> None:
        self.numbers = numbers
        self.count = count
        self._ordered = numbers.argsort(kind="stable")
        self._starts = np.searchsorted(numbers[self._ordered], np.arange(count + 1))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> NodeSubset:
        return NodeSubset(self, number)

    def rows(self, number: int) -> NDArray[np.intp]:
        """Return the rows of a subset, ascending."""
        return self._ordered[self._starts[number] : self._starts[number + 1]]

    def sums(self, amounts: NDArray[np.int64]) -> list[int]:
        """Return the sum of each subset of an int64 per row; the sum must fit into an int64."""
        found = np.zeros(self.count, dtype=np.int64)
        member = self.numbers != NO_SUBSET
        np.add.at(found, self.numbers[member], amounts[member])
        totals: list[int] = found.tolist()
        return totals

    def touched(self, mask: NDArray[np.bool_]) -> set[int]:
        """Return the subsets that have a row in a mask, bool per row."""
        return set(np.unique(self.numbers[mask]).tolist()) - {NO_SUBSET}


@dataclass(frozen=True, slots=True, eq=False)
class NodeSubset:
    """One of some disjoint subsets of the nodes."""

    of: NodeSubsets
    number: int

    @property
    def rows(self) -> NDArray[np.intp]:
        """The rows, ascending."""
        return self.of.rows(self.number)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Bool per row; a new array."""
        found = np.zeros(len(self.of.numbers), dtype=np.bool_)
        found[self.rows] = True
        return found
