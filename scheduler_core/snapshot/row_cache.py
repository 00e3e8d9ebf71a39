"""Base class of arrays that depend on rows alone and are updated by the change log.

Without such a cache, values that do not depend on the pod would be computed for every pod and all nodes, although a
scheduled pod changes only one row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from scheduler_core.snapshot.node_columns import NodeColumns

_FEW = 8
_WORTH_REFRESHING = 256
"""Rows are updated one by one, without NumPy, if they are few or at most one in this many; else all are rebuilt."""


class RowCache(ABC):
    """Arrays over all rows; call :meth:`refresh` before reading them."""

    __slots__ = ("_position", "_resources", "_size", "nodes")

    def __init__(self, nodes: NodeColumns) -> None:
        """Create an empty cache.

        Args:
            nodes: The columns.
        """
        self.nodes = nodes
        self._position = 0
        self._size = -1
        self._resources = -1

    def refresh(self) -> None:
        """Apply the changes since the last call."""
        nodes = self.nodes
        position, resources = nodes.changes.position, nodes.resources.version
        behind = position - self._position
        if (
            nodes.size != self._size
            or resources != self._resources
            or behind > max(_FEW, self._size // _WORTH_REFRESHING)
        ):
            self._rebuild()
        elif behind:
            changed = nodes.changes.since(self._position)
            if changed is None:
                self._rebuild()
            else:
                self._refresh_rows(set(changed))
        self._position, self._size, self._resources = position, nodes.size, resources

    @abstractmethod
    def _rebuild(self) -> None:
        """Rebuild the arrays for ``nodes.size`` rows."""

    @abstractmethod
    def _refresh_rows(self, rows: Iterable[int]) -> None:
        """Update some rows; the number of rows is unchanged."""
