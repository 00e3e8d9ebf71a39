"""Read-only view of one node, for plugins that handle one node at a time.

A view costs an object per node and pod; vectorized plugins read the columns instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.model.node import Node
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class NodeView:
    """A node and the pods on it."""

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
        """The pods that are bound or assumed to this node."""
        return self._columns.pods[self.row].values()

    def allocatable(self, resource: str) -> int:
        """Return the allocatable amount of a resource (CPU in millicores, else whole units); 0 if there is none."""
        column = self._columns.resources.find(resource)
        return 0 if column is None else self._columns.allocatable.item(column, self.row)

    def requested(self, resource: str) -> int:
        """Return the sum of the requests for a resource by the pods on this node."""
        return self._columns.requested_amount(resource, self.row)
