"""From informers to the scheduler's feed.

Owns the one-to-one translation of calls. It must not look into objects.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.cycle.cluster_feed import ClusterFeed
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod


class PodSink:
    """Pods, delivered to the scheduler.

    Args:
        feed: The scheduler's.
        synced: Called when the first list is complete.
    """

    def __init__(self, feed: ClusterFeed, synced: Callable[[], None]) -> None:
        self.on_add: Callable[[Pod], None] = feed.pod_added
        self.on_update: Callable[[Pod, Pod], None] = feed.pod_updated
        self.on_delete: Callable[[Pod], None] = feed.pod_deleted
        self.on_synced = synced


class NodeSink:
    """Nodes, delivered to the scheduler.

    Args:
        feed: The scheduler's.
        synced: Called when the first list is complete.
    """

    def __init__(self, feed: ClusterFeed, synced: Callable[[], None]) -> None:
        self.on_add: Callable[[Node], None] = feed.node_added
        self.on_update: Callable[[Node, Node], None] = feed.node_updated
        self.on_delete: Callable[[Node], None] = feed.node_deleted
        self.on_synced = synced
