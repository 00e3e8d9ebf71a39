"""Node columns with the nodes and pods of a test."""

from collections.abc import Iterable

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.interning import DEFAULT_BOUNDS, SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns


def columns(nodes: Iterable[Node], pods: Iterable[Pod] = (), bounds: SnapshotBounds = DEFAULT_BOUNDS) -> NodeColumns:
    """Return node columns.

    Args:
        nodes: Nodes; their rows are 0, 1, 2 and so on, in this order.
        pods: Bound pods; pods on nodes that are not in ``nodes`` are left out.
        bounds: Maximum sizes of the tables.
    """
    filled = NodeColumns(bounds)
    for node in nodes:
        filled.add_node(node)
    for pod in pods:
        row = filled.row_of(pod.spec.node_name)
        if row >= 0:
            filled.add_pod(filled.compile_pod(pod), row)
    return filled
