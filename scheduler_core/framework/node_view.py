"""One node, for plugins that look at one at a time.

Owns a read-only view of a row. It costs an object per node and per pod; vectorised plugins read the columns instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.model.node import Node
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class NodeView:
    """A node and what runs on it."""

    __slots__ = ("_columns", "node", "row")

    def __init__(self, columns: NodeColumns, row: int, node: Node) -> None:
        self._columns = columns
        self.row = row
        self.node = node

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        return self.node.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """The node's annotations; empty unless a plugin declares that it reads them."""
        return annotations_of(self.node)

    @property
    def pods(self) -> Iterable[PodInfo]:
        """The pods that run or are assumed to run here."""
        return self._columns.pods[self.row].values()

    def allocatable(self, resource: str) -> int:
        """How much of a resource pods may take (cpu in milli, the rest in whole units); 0 if the node has none."""
        column = self._columns.resources.find(resource)
        return 0 if column is None else self._columns.allocatable.item(column, self.row)

    def requested(self, resource: str) -> int:
        """How much of a resource the pods here have taken."""
        return self._columns.requested_amount(resource, self.row)
