"""Arrays that are derived from the columns: cached by row, copied for dry runs, or summed over all nodes.

Without the cache, values that do not depend on the pod would be computed for every pod and all nodes, although a
scheduled pod changes only one row. The arrays of CSINodes are rebuilt after any change of a CSINode or node, because
such changes are rare and only pods with volumes need them.

:class:`RowSums` stores lists, which cost a tenth of an array when pods change one by one; readers get arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.pod_requests import LARGEST_REQUEST, PODS
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_FEW = 8
_WORTH_REFRESHING = 256
"""Rows are updated one by one, without NumPy, if they are few or at most one in this many; else all are rebuilt."""


class RowCache(ABC):
    """Arrays over all rows; call :meth:`refresh` before reading them."""

    __slots__ = ("_position", "_resources", "_size", "nodes")

    def __init__(self, nodes: NodeColumns) -> None:
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


class RowSums:
    """Copy of the sums of some rows.

    Attributes:
        allocatable: int64[resource column, k], in the columns' units.
    """

    __slots__ = ("_numbering", "_pod_count", "_requested", "allocatable", "allowed_pods")

    def __init__(self, nodes: NodeColumns, rows: NDArray[np.intp]) -> None:
        self.allocatable: NDArray[np.int64] = nodes.allocatable[:, rows]
        self.allowed_pods: NDArray[np.integer] = nodes.allowed_pods[rows]
        self._requested: list[list[int]] = nodes.exact_requests(rows)
        self._pod_count: list[int] = nodes.pod_count[rows].tolist()
        self._numbering = nodes.resources.version

    def requested(self, column: int) -> NDArray[np.int64]:
        """Return the requests of one resource, int64[k], clamped as in :attr:`NodeColumns.requested`."""
        exact = self._requested[column]
        try:
            amounts = np.array(exact, dtype=np.int64)
        except OverflowError:
            amounts = np.array([min(amount, LARGEST_REQUEST) for amount in exact], dtype=np.int64)
        return np.minimum(amounts, LARGEST_REQUEST, out=amounts)

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """Number of pods, int64[k]."""
        return np.array(self._pod_count, dtype=np.int64)

    def add(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        requested, count, numbering = self._requested, self._pod_count, self._numbering
        for place, info in pods:
            # Without the call of the property, because a preemption adds and removes thousands of pods.
            for column, amount in info.numbered if info.numbering == numbering else info.accounted:
                requested[column][place] += amount
            count[place] += 1

    def remove(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        requested, count, numbering = self._requested, self._pod_count, self._numbering
        for place, info in pods:
            for column, amount in info.numbered if info.numbering == numbering else info.accounted:
                requested[column][place] -= amount
            count[place] -= 1


_HALF_BITS = 32
_HALF_MASK = 2**_HALF_BITS - 1


def free_amount(nodes: NodeColumns, name: str) -> int | None:
    """Return the free amount of a resource on all nodes together, each overcommitted node as 0.

    It may be spread over many nodes, so a sufficient sum proves little; an insufficient one proves that a group cannot
    be scheduled.

    Returns:
        Millicores for CPU, whole units for the rest; 0 for a resource that no node has. Exact for any number of nodes.
        None for an extended resource of a DeviceClass: which devices are free depends on the request.
    """
    if nodes.devices.class_of_resource(name) is not None:
        return None
    if name == PODS:
        free = nodes.allowed_pods.astype(np.int64) - nodes.pod_count
    else:
        column = nodes.resources.find(name)
        if column is None or column >= len(nodes.allocatable):
            return 0
        free = nodes.allocatable[column] - nodes.requested[column]
    free[~nodes.alive | (free < 0)] = 0
    # The sum of two nodes may exceed int64, that of the halves cannot.
    return (int((free >> _HALF_BITS).sum()) << _HALF_BITS) + int((free & _HALF_MASK).sum())


NO_LIMIT = -1

_Mask = NDArray[np.bool_]


class CsiNodeColumns:
    """CSINodes by row; the arrays are valid until the next change and must not be modified."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self._version = (-1, -1)
        self._refresh()

    def present(self) -> _Mask:
        """Return whether the node of each row has a CSINode, bool[row]."""
        self._refresh()
        return self._present

    def installed(self, driver: str) -> _Mask | None:
        """Return whether a driver is installed on the node of each row, bool[row]; None if on no row."""
        self._refresh()
        return self._installed.get(driver)

    def limits(self, driver: str) -> NDArray[np.int64] | None:
        """Return the volume limit of a driver, int64[row], -1 for no limit; None if no row has a limit."""
        self._refresh()
        return self._limits.get(driver)

    def migrated(self, plugin: str) -> _Mask | None:
        """Return whether a CSI driver serves the in-tree plugin's volumes, bool[row]; None if on no row."""
        self._refresh()
        return self._migrated.get(plugin)

    def _refresh(self) -> None:
        nodes, csi_nodes = self.nodes, self.nodes.storage.csi_nodes
        version = (nodes.version, csi_nodes.version)
        if version == self._version:
            return

        def nowhere() -> _Mask:
            return np.zeros(nodes.size, dtype=np.bool_)

        self._present = nowhere()
        self._installed: defaultdict[str, _Mask] = defaultdict(nowhere)
        self._migrated: defaultdict[str, _Mask] = defaultdict(nowhere)
        self._limits: defaultdict[str, NDArray[np.int64]] = defaultdict(
            lambda: np.full(nodes.size, NO_LIMIT, dtype=np.int64)
        )
        for csi_node in csi_nodes:
            row = nodes.row_of(csi_node.metadata.name)
            if row < 0:
                continue
            self._present[row] = True
            for driver in csi_node.spec.drivers:
                self._installed[driver.name][row] = True
                if driver.limit is not None:
                    self._limits[driver.name][row] = driver.limit
            for plugin in csi_node.migrated_plugins:
                self._migrated[plugin][row] = True
        # Last, so that a refresh that raised is repeated.
        self._version = version
