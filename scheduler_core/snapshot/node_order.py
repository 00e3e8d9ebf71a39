"""Order in which nodes are visited when not all of them are scored: zones alternate.

Only profiles that score a percentage of the nodes need it, because the order decides which nodes are found. Follows
kube-scheduler v1.36.3 (``backend/cache/node_tree.go``): nodes are grouped by region and zone in the order of their
creation, and the groups are visited in turns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.node_columns import NodeColumns

ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
_OLD_ZONE_LABEL = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION_LABEL = "failure-domain.beta.kubernetes.io/region"


class NodeOrder:
    """Rows with alternating zones; recomputed after nodes changed.

    Attributes:
        next_start: Position at which the next search begins.
    """

    __slots__ = ("_nodes", "_rows", "_version", "next_start")

    def __init__(self, nodes: NodeColumns) -> None:
        self.next_start = 0
        self._nodes = nodes
        self._version = -1
        self._rows: NDArray[np.intp] = np.empty(0, dtype=np.intp)

    def rows(self) -> NDArray[np.intp]:
        """Return the rows of all nodes, intp[count]."""
        if self._version != self._nodes.version:
            self._rows = self._interleave()
            self._version = self._nodes.version
        return self._rows

    def _interleave(self) -> NDArray[np.intp]:
        zones: dict[tuple[str, str], list[int]] = {}
        for row, node in enumerate(self._nodes.nodes):
            if node is None:
                continue
            labels = node.metadata.labels
            region = labels.get(REGION_LABEL) or labels.get(_OLD_REGION_LABEL, "")
            zone = labels.get(ZONE_LABEL) or labels.get(_OLD_ZONE_LABEL, "")
            zones.setdefault((region, zone), []).append(row)
        order: list[int] = []
        turn = 0
        waiting = list(zones.values())
        while waiting:
            order += [rows[turn] for rows in waiting]
            turn += 1
            waiting = [rows for rows in waiting if len(rows) > turn]
        return np.array(order, dtype=np.intp)
