"""Constraints that gangs put on the scheduling cycle of one pod: reserved nodes, and the domain of a gang's members.

The package :mod:`scheduler_core.gangs` implements them; a cycle imports nothing of it. Domains are subsets of the nodes
as numbers per row, so that thousands of them take no more memory than one column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.pod_group import GroupKey
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

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


class NodeReservations(Protocol):
    """Nodes reserved for gangs, and held room."""

    @property
    def by_gang(self) -> Mapping[GroupKey, object]:
        """The live reservations; a copy is a state, because one that ends and begins again is another object."""

    def blocking(self, group: GroupKey | None, pod: PodInfo) -> Sequence[tuple[GroupKey, NDArray[np.intp]]]:
        """Return other gangs whose reservations block a pod, each with the blocked rows, intp[k] ascending, k > 0."""

    def preferred_rows(self, pod: PodInfo) -> NDArray[np.intp]:
        """Return the rows that a pod tries first, because room is held for it there, intp[k] ascending."""

    def room_freed(self, node_name: str) -> None:
        """Activate the gang for which a node is reserved where room was freed, if the gang fits now."""

    def node_changed(self, node_name: str) -> None:
        """Activate the gang for which a changed or deleted node is reserved; its next cycle checks the reservation."""

    def note_rejected(self, uid: str, by: Iterable[GroupKey]) -> None:
        """Activate a pod that the reservations of these gangs made unschedulable, when one of them ends.

        Only live attempts call it.
        """


@dataclass(frozen=True, slots=True)
class Where:
    """The nodes on which members may be scheduled.

    Attributes:
        subset: A subset of the nodes, or bool per row; None for all nodes.
        reason: Rejection reason of the other nodes.
        name: The domain, such as ``zone=a``; "" for all nodes.
    """

    subset: NodeSubset | NDArray[np.bool_] | None = None
    reason: str = ""
    name: str = ""

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """Bool per row; None for all nodes."""
        return self.subset.mask if isinstance(self.subset, NodeSubset) else self.subset

    @property
    def rows(self) -> NDArray[np.intp] | None:
        """The rows, ascending; None for all nodes."""
        if self.subset is None:
            return None
        return self.subset.rows if isinstance(self.subset, NodeSubset) else np.flatnonzero(self.subset)


ANYWHERE = Where()


def only(nodes: NodeColumns, name: str) -> NDArray[np.bool_]:
    """Return a mask with only the named node, bool per row; empty if it does not exist."""
    mask = np.zeros(nodes.size, dtype=np.bool_)
    row = nodes.row_of(name)
    if row != NO_ROW:
        mask[row] = True
    return mask


class MemberDomains(Protocol):
    """Domains of gangs that require one."""

    def of_member(self, uid: str) -> Where | None:
        """Return the domain of the scheduled members of a pod's gang; None for none, or if the gang requires none."""
