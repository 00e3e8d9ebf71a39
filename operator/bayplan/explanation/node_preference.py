"""Explains why a profile scheduled pods to their nodes and not to other ones, after a simulation.

A pod is examined in the state of its decision: the simulation's decisions from that pod on are hypothetically removed.
What else changed since (preempted pods, claims) stays as it is, so that a reason may be missing, but none is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

EXPLAINED = 1000
"""Maximum number of pods that are examined, because each takes a dry run on all nodes."""


def node_preferences(scheduler: Scheduler, decided: set[str], others: Mapping[str, str]) -> dict[str, str]:
    """Return why pods have their nodes and not the given ones.

    Args:
        scheduler: The scheduler at the end of a simulation.
        decided: The pods that the simulation decided, as ``namespace/name``.
        others: The node with which to compare a pod's own, by ``namespace/name``.

    Returns:
        The reasons by ``namespace/name``; without pods of gangs, which get their nodes together, and without those
        whose state cannot be restored.
    """
    context, found = scheduler.context, dict[str, str]()
    with context.steps.dry_run(), ColumnsOverlay(context.cache.columns) as overlay:
        # The cache returns pods in the order in which they were assumed, which is that of the decisions.
        for placed in reversed(context.cache.placed_pods()):
            info = placed.info
            if info.key not in decided:
                continue
            own = info.node_name
            overlay.remove((info,))
            other = others.get(info.key)
            if other is not None and len(found) < EXPLAINED:
                reason = _preference(scheduler, info, own, other)
                if reason:
                    found[info.key] = reason
    return found


def _preference(scheduler: Scheduler, info: PodInfo, own: str, other: str) -> str:
    context, examiner = scheduler.context, scheduler.cycles.examiner
    pod = info.pod
    instance = context.profiles.get(pod.spec.scheduler_name)
    if instance is None or context.queue.gangs.key_of(pod) is not None:
        return ""
    waiting = context.cache.columns.compile_pod(replace(pod, spec=replace(pod.spec, node_name="")))
    try:
        examination = examiner.examine_alone(instance, waiting)
    except Exception:  # noqa: BLE001 - a plugin's; the decision is compared without the reason
        return ""
    return _preference_of(examination, own, other)


def _preference_of(found: Examination, own: str, other: str) -> str:
    """Return why an examined attempt selects one node and not another; "" if it does not."""
    if found.error or own not in found.best:
        return ""
    if other not in found.feasible:
        status = found.rejected.get(other, found.pre_filter)
        reason = ", ".join(status.reasons)
        return f"{status.plugin or 'PreFilter'} rejects {other}: {reason}" if reason else ""
    if other in found.best:
        return f"{own} and {other} have equal scores"
    first, second = found.feasible.index(own), found.feasible.index(other)
    pairs = {name: (int(part.weighted[first]), int(part.weighted[second])) for name, part in found.scores.items()}
    name, (more, less) = max(pairs.items(), key=lambda pair: pair[1][0] - pair[1][1])
    return f"{name} scores {own} {more}, {other} {less}"
