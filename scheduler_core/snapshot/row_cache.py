"""Arrays that depend on rows, and are updated by the change logs of nodes and of devices.

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
        """Create an empty cache."""
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


class StaleDeviceRows:
    """The rows to compute again since the last call of :meth:`take`.

    The use of devices that several nodes reach does not make rows stale: it changes with every pod that gets one.
    ``shared_changed`` reports it.

    Attributes:
        shared_changed: Whether that use changed between the last two calls of :meth:`take`.
    """

    __slots__ = ("_devices_position", "_nodes", "_rows_position", "_shared", "_size", "shared_changed")

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._rows_position = self._devices_position = self._size = self._shared = -1
        self.shared_changed = True

    def invalidate(self) -> None:
        """Make all rows stale: those that were taken could not be computed."""
        self._size = -1

    def take(self) -> set[int] | None:
        """Return the stale rows; None for all."""
        nodes, inventory = self._nodes, self._nodes.devices.hardware.inventory
        found: set[int] | None = None
        if self._size == nodes.size:
            rows = nodes.changes.since(self._rows_position)
            names = inventory.changed.since(self._devices_position)
            if rows is not None and names is not None:
                found = {*rows, *(row for name in names if (row := nodes.row_of(name)) >= 0)}
        self.shared_changed = self._shared != inventory.shared_changes
        self._rows_position, self._devices_position = nodes.changes.position, inventory.changed.position
        self._size, self._shared = nodes.size, inventory.shared_changes
        if found is not None and 2 * len(found) > nodes.size:
            return None
        return found
