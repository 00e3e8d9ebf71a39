"""Numbers that follow from rows alone, kept in step with them.

Owns when they are found anew and for which rows, by the change log. Must not know what they are. What does not depend
on a pod would otherwise be computed for every pod and all nodes, though a pod that is placed changes one row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from scheduler_core.snapshot.node_columns import NodeColumns

_FEW = 8
_WORTH_RENEWING = 256
"""Rows are renewed one by one, in Python's numbers, while they are few, or at most one in so many; else all are."""


class RowKeeper(ABC):
    """Arrays over all rows; call :meth:`refresh` before they are read."""

    __slots__ = ("_position", "_resources", "_size", "nodes")

    def __init__(self, nodes: NodeColumns) -> None:
        """Keep nothing yet.

        Args:
            nodes: The columns that are followed.
        """
        self.nodes = nodes
        self._position = 0
        self._size = -1
        self._resources = -1

    def refresh(self) -> None:
        """Take in what has changed since the last time."""
        nodes = self.nodes
        position, resources = nodes.changes.position, nodes.resources.version
        behind = position - self._position
        if (
            nodes.size != self._size
            or resources != self._resources
            or behind > max(_FEW, self._size // _WORTH_RENEWING)
        ):
            self._rebuild()
        elif behind:
            changed = nodes.changes.since(self._position)
            if changed is None:
                self._rebuild()
            else:
                self._renew(set(changed))
        self._position, self._size, self._resources = position, nodes.size, resources

    @abstractmethod
    def _rebuild(self) -> None:
        """Find everything anew, for ``nodes.size`` rows."""

    @abstractmethod
    def _renew(self, rows: Iterable[int]) -> None:
        """Find anew what is kept of some rows; there are as many rows as before."""
