"""Pods that another scheduler bound while they were being bound here.

kube-scheduler v1.36.3 requeues such a pod until a watch shows it bound (``handleSchedulingFailure``). Here it is not
requeued: it is bound, so another bind would be rejected too, and PodScheduled=False or FailedScheduling would be false.
The pod is counted on the other scheduler's node at once, even if the watch is late.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import Attempt, CycleContext, LostBind
from scheduler_core.cycle.cycle_report import attempt_failed, binding_ended
from scheduler_core.cycle.freed_room import on_node, report_freed_room, report_unused_nomination
from scheduler_core.cycle.scheduling import release
from scheduler_core.metrics.profile_metrics import ERROR
from scheduler_core.snapshot.cluster_cache import ClusterCache, Placement

log = logging.getLogger(__name__)


def node_of_rival(cache: ClusterCache, attempt: Attempt) -> str:
    """Return the other node on which a watch has shown the attempt's pod; "" for none."""
    placed = cache.get(attempt.info.uid)
    if placed is None or placed.placement is not Placement.ADDED or placed.info.node_name == attempt.node_name:
        return ""
    return placed.info.node_name


def record_lost_bind(context: CycleContext, attempt: Attempt, rival_node_name: str) -> None:
    """Count a pod on the node to which another scheduler bound it, release it here and end its attempt.

    Args:
        context: The shared parts.
        attempt: The attempt whose bind was lost.
        rival_node_name: The node to which the pod is bound.
    """
    info, node_name, profile = attempt.info, attempt.node_name, attempt.instance.name
    placed = context.cache.get(info.uid)
    if placed is not None and placed.placement is not Placement.ADDED:
        # An unknown pod was deleted meanwhile; no later event would remove it from the cache.
        context.cache.add_pod(on_node(rival_node_name, placed.info.pod))
    release(context, attempt)
    binding_ended(context, attempt, ERROR)
    attempt_failed(context, attempt, is_error=True)
    record = context.record(profile)
    record.errors += 1
    record.lost_binds += 1
    record.last_lost_bind = LostBind(info.key, node_name, rival_node_name, context.clock.wall())
    log.warning(
        "another scheduler has bound pod %s of profile %s to node %s, while node %s was chosen here; make sure that "
        "only one scheduler serves each schedulerName",
        info.key,
        profile,
        rival_node_name,
        node_name,
    )
    attempt.instance.end()
    nominated = context.queue.nominator.node_of(info.uid)
    held = context.queue.find(info.uid)
    if held is attempt.queued:
        context.queue.remove(info.uid)
    if held is None or held is attempt.queued:
        # Otherwise it was removed and added again, and that entry does not belong to this attempt.
        context.queue.done(info.uid)
    report_freed_room(context.queue, context.reservations, info.pod, node_name)
    report_unused_nomination(context.queue, info.pod, nominated, rival_node_name)
