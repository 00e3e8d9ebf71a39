"""Pods that someone else has bound while they were being bound here.

Owns how such a pod is let go, and that it is counted. Must not know who the rival is: the API server tells on which
node a pod is, and not by whom.

Why the pod is not put back into the queue, as kube-scheduler v1.36.3 does (``handleSchedulingFailure`` requeues it
until a watch shows it bound): it is placed, so another attempt could only be refused again, and PodScheduled=False or
FailedScheduling would be untrue. The rival's node counts from now on, also where the watch is late to tell of it.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import Attempt, CycleContext, LostBind
from scheduler_core.cycle.cycle_report import attempt_failed, binding_ended
from scheduler_core.cycle.departure import on_node, tell_departure, tell_unused_promise
from scheduler_core.cycle.measures import ERROR
from scheduler_core.cycle.scheduling import release
from scheduler_core.snapshot.cluster_cache import Placement

log = logging.getLogger(__name__)


def node_of_rival(context: CycleContext, attempt: Attempt) -> str:
    """The other node on which a watch has shown the attempt's pod; "" for none."""
    placed = context.cache.get(attempt.info.uid)
    if placed is None or placed.placement is not Placement.ADDED or placed.info.node_name == attempt.node_name:
        return ""
    return placed.info.node_name


def let_go(context: CycleContext, attempt: Attempt, rival_node_name: str) -> None:
    """Account a pod where the rival has bound it, give back what is held for it, and try it no more.

    Args:
        context: The shared parts.
        attempt: The attempt that has lost.
        rival_node_name: The node that the pod is on.
    """
    info, node_name, profile = attempt.info, attempt.node_name, attempt.instance.name
    placed = context.cache.get(info.uid)
    if placed is not None and placed.placement is not Placement.ADDED:
        # Not where the pod is unknown by now: it was deleted since, and nothing would ever take it away again.
        context.cache.add_pod(on_node(rival_node_name, placed.info.pod))
    release(context, attempt)
    binding_ended(context, attempt, ERROR)
    attempt_failed(context, attempt, is_error=True)
    record = context.record(profile)
    record.errors += 1
    record.lost_binds += 1
    record.last_lost_bind = LostBind(info.key, node_name, rival_node_name, context.clock.wall())
    log.warning(
        "pod %s of profile %s is on node %s, where someone else has bound it, and is let go here, where node %s was "
        "chosen; see that one scheduler alone serves a schedulerName",
        info.key,
        profile,
        rival_node_name,
        node_name,
    )
    attempt.instance.end()
    promised = context.queue.nominator.node_of(info.uid)
    held = context.queue.find(info.uid)
    if held is attempt.queued:
        context.queue.remove(info.uid)
    if held is None or held is attempt.queued:
        # Otherwise it was removed and has come back, and what it does now is none of this attempt's business.
        context.queue.done(info.uid)
    tell_departure(context, info.pod, node_name)
    tell_unused_promise(context, info.pod, promised, rival_node_name)
