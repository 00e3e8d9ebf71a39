"""Nodes that accept no pods because an object on which they depend cannot be read.

The feeds of nodes, pods and storage objects hold nodes; see :mod:`scheduler_core.snapshot.held_nodes`.
"""

from __future__ import annotations

from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW


class NodeHolds:
    """Holds and releases nodes, and reports both to the pods and gangs that wait.

    Args:
        columns: The columns.
        queue: The queue.
        room: Reports changed nodes to the gangs for which they are reserved.
    """

    def __init__(self, columns: NodeColumns, queue: SchedulingQueue, room: FreedCapacity) -> None:
        self._columns = columns
        self._queue = queue
        self._room = room

    def hold(self, node_name: str, source: str, reason: str) -> None:
        """Let a node accept no pods for a source, which holds at most one."""
        self._columns.hold_node(node_name, source, reason)
        self._room.node_changed(node_name)

    def release(self, source: str) -> None:
        """End what a source holds; a node that is held no longer is like a new one for the pods that it rejected."""
        columns = self._columns
        if columns.held.is_empty:
            return
        node_name = columns.held.held_only_by(source)
        row = columns.row_of(node_name) if node_name else NO_ROW
        if row != NO_ROW:
            self._queue.on_event(NODE_ADD, None, columns.nodes[row])
            self._room.node_changed(node_name)
        # Last: a release that an exception interrupted is repeated.
        columns.release_node(source)
