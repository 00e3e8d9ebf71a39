"""Order of the nodes in the map: zones, racks, and the state of each node that changes rarely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bayplan.page.page_sources import Turns
from scheduler_core.cycle.percentage_of_nodes import ZONE_LABEL
from scheduler_core.model.node import Node
from scheduler_core.snapshot.node_columns import NodeColumns

_NOT_READY = frozenset(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"))
_RACK = "rack"
_NODES_PER_LOOK = 256


class Rack(Struct, frozen=True, rename="camel"):
    """Nodes of a rack by their index; the name is "" for nodes without the label."""

    name: str
    nodes: tuple[int, ...]


class Zone(Struct, frozen=True, rename="camel"):
    """Racks of a zone; the name is "" for nodes without the label."""

    name: str
    racks: tuple[Rack, ...]


class NodeLayout(Struct, frozen=True):
    """Order of the nodes.

    Attributes:
        names: Names of the nodes in alphabetical order; the index of a node is its position.
        zones: Zones and racks in alphabetical order.
        unschedulable: Indexes of cordoned nodes.
        not_ready: Indexes of nodes that are not ready, by their taints.
        rack_label: Node label of racks, "" for none.
    """

    names: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()
    unschedulable: tuple[int, ...] = ()
    not_ready: tuple[int, ...] = ()
    rack_label: str = ""


class NodeRows:
    """Layout of the nodes, read again when a Node object has changed.

    Args:
        columns: The nodes.

    Attributes:
        layout: The layout.
        version: Incremented when the layout changes.
    """

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._read_at = -1
        self._rows_at = -1
        self._rows: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.layout = NodeLayout()
        self.version = 0

    async def update(self, turns: Turns) -> None:
        """Read the nodes if one has changed."""
        columns = self._columns
        if self._read_at == columns.version:
            return
        # Nodes are immutable, so the list stays consistent during the pauses.
        version, nodes = columns.version, [node for node in columns.nodes if node is not None]
        nodes.sort(key=lambda node: node.metadata.name)
        await turns.pause_if_due()
        layout = await _layout_of(nodes, turns)
        self._read_at = version
        if layout != self.layout:
            self.layout, self.version, self._rows_at = layout, self.version + 1, -1

    def rows(self) -> NDArray[np.intp]:
        """Return the row of each node of the layout; -1 for a node that was removed meanwhile."""
        if self._rows_at != self._columns.version:
            self._rows_at = self._columns.version
            names = self.layout.names
            self._rows = np.fromiter(map(self._columns.row_of, names), dtype=np.intp, count=len(names))
        return self._rows


async def _layout_of(nodes: Sequence[Node], turns: Turns) -> NodeLayout:
    keys: Counter[str] = Counter()
    for position, node in enumerate(nodes):
        keys.update(key for key in node.metadata.labels if key.rpartition("/")[2] == _RACK)
        if position % _NODES_PER_LOOK == 0:
            await turns.pause_if_due()
    rack_label = min(keys, key=lambda key: (-keys[key], key), default="")
    zones: dict[str, dict[str, list[int]]] = {}
    unschedulable, not_ready = [], []
    for index, node in enumerate(nodes):
        labels = node.metadata.labels
        racks = zones.setdefault(labels.get(ZONE_LABEL, ""), {})
        racks.setdefault(labels.get(rack_label, ""), []).append(index)
        if node.spec.unschedulable:
            unschedulable.append(index)
        if node.spec.taints and any(taint.key in _NOT_READY for taint in node.spec.taints):
            not_ready.append(index)
        if index % _NODES_PER_LOOK == 0:
            await turns.pause_if_due()
    return NodeLayout(
        names=tuple(node.metadata.name for node in nodes),
        zones=tuple(
            Zone(zone, tuple(Rack(rack, tuple(found)) for rack, found in sorted(racks.items())))
            for zone, racks in sorted(zones.items())
        ),
        unschedulable=tuple(unschedulable),
        not_ready=tuple(not_ready),
        rack_label=rack_label,
    )
