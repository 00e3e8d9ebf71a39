"""Settles assumed pods whose confirmation is late, by reading them.

Owns the question what became of a bind that was answered and never seen again. A timer alone never decides: guessing
"not bound" overcommits the node, guessing "bound" leaks it.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.cluster_feed import ClusterFeed
from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.departure import tell_departure
from scheduler_core.errors import ClusterWriteError

log = logging.getLogger(__name__)


async def settle_overdue(context: CycleContext, feed: ClusterFeed, after_seconds: float) -> None:
    """Read every pod that was bound more than ``after_seconds`` ago and is not confirmed."""
    for info in context.cache.overdue(context.clock.now() - after_seconds):
        meta, fields = info.pod.metadata, {"pod": info.key, "node": info.node_name}
        try:
            pod = await context.writer.read_pod(meta.namespace, meta.name)
        except ClusterWriteError as error:
            text = "pod %s is not confirmed on node %s and cannot be read: %s"
            log.warning(text, info.key, info.node_name, error, extra=fields)
            continue
        await context.suspension.over()
        placed = context.cache.get(info.uid)
        if placed is None or placed.info is not info:
            continue
        if pod is None or pod.metadata.uid != info.uid:
            log.warning("pod %s is gone; its place on node %s is free", info.key, info.node_name, extra=fields)
            feed.pod_deleted(info.pod)
        elif pod.spec.node_name:
            feed.pod_updated(info.pod, pod)
        else:
            text = "pod %s was never bound to node %s; it is scheduled again"
            log.warning(text, info.key, info.node_name, extra=fields)
            node_name = info.node_name
            context.cache.forget(info)
            tell_departure(context, info.pod, node_name)
            feed.pod_added(pod)
