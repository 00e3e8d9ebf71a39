"""What CSINodes say of their nodes, as columns.

Owns their reading into one array per driver and per in-tree plugin. Must not know pods. Read anew as a whole after any
change of a CSINode or a node: both are rare beside pods, and only pods with volumes ask.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.node_columns import NodeColumns

NO_LIMIT = -1

_Mask = NDArray[np.bool_]


class CsiNodeColumns:
    """CSINodes by row; arrays are good until the next change and not the caller's."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self._version = (-1, -1)
        self._present: _Mask = np.zeros(0, dtype=np.bool_)
        self._limits: dict[str, NDArray[np.int64]] = {}
        self._migrated: dict[str, _Mask] = {}

    def present(self) -> _Mask:
        """Whether the node of each row has a CSINode, bool[row]."""
        self._refresh()
        return self._present

    def limits(self, driver: str) -> NDArray[np.int64] | None:
        """How many volumes of a driver each row can attach, int64[row], -1 for no limit; None where no row has one."""
        self._refresh()
        return self._limits.get(driver)

    def migrated(self, plugin: str) -> _Mask | None:
        """Whether a CSI driver serves the in-tree plugin's volumes on each row, bool[row]; None where on no row."""
        self._refresh()
        return self._migrated.get(plugin)

    def _refresh(self) -> None:
        nodes, csi_nodes = self.nodes, self.nodes.storage.csi_nodes
        version = (nodes.version, csi_nodes.version)
        if version == self._version:
            return
        self._version = version
        self._present = np.zeros(nodes.size, dtype=np.bool_)
        self._limits = {}
        self._migrated = {}
        for csi_node in csi_nodes:
            row = nodes.row_of(csi_node.metadata.name)
            if row < 0:
                continue
            self._present[row] = True
            for driver in csi_node.spec.drivers:
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
