"""CSINodes as columns: one array per driver and per in-tree plugin.

All arrays are rebuilt after any change of a CSINode or node, because such changes are rare and only pods with volumes
need the arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.node_columns import NodeColumns

NO_LIMIT = -1

_Mask = NDArray[np.bool_]


class CsiNodeColumns:
    """CSINodes by row; the arrays are valid until the next change and must not be modified."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self._version = (-1, -1)
        self._present: _Mask = np.zeros(0, dtype=np.bool_)
        self._installed: dict[str, _Mask] = {}
        self._limits: dict[str, NDArray[np.int64]] = {}
        self._migrated: dict[str, _Mask] = {}

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
        self._present = np.zeros(nodes.size, dtype=np.bool_)
        self._installed = {}
        self._limits = {}
        self._migrated = {}
        for csi_node in csi_nodes:
            row = nodes.row_of(csi_node.metadata.name)
            if row < 0:
                continue
            self._present[row] = True
            for driver in csi_node.spec.drivers:
                installed = self._installed.get(driver.name)
                if installed is None:
                    installed = self._installed[driver.name] = np.zeros(nodes.size, dtype=np.bool_)
                installed[row] = True
                if driver.limit is not None:
                    limits = self._limits.get(driver.name)
                    if limits is None:
                        limits = self._limits[driver.name] = np.full(nodes.size, NO_LIMIT, dtype=np.int64)
                    limits[row] = driver.limit
            for plugin in csi_node.migrated_plugins:
                migrated = self._migrated.get(plugin)
                if migrated is None:
                    migrated = self._migrated[plugin] = np.zeros(nodes.size, dtype=np.bool_)
                migrated[row] = True
        # Last, so that a refresh that raised is repeated.
        self._version = version
