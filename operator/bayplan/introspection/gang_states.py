"""The waiting gangs in the operator's status."""

from __future__ import annotations

from bayplan.gangs.group_verdict import Tally, judge
from bayplan.introspection.status_model import GangState
from scheduler_core.cycle.context import CycleContext
from scheduler_core.queueing.gang import Gang

_NO_GROUP = "NoGroup"
_NO_GROUP_MESSAGE = "The PodGroup does not exist; its members wait for it."


def waiting_gangs(context: CycleContext, now: float) -> list[GangState]:
    """Return the waiting gangs, highest priority first, then oldest first.

    Args:
        context: The scheduler's context, between two cycles.
        now: Time of the clock in seconds.
    """
    waiting = [gang for gang in context.queue.gangs if _waits(gang)]
    waiting.sort(key=lambda gang: (-gang.priority, gang.since, gang.key))
    return [_state(gang, now) for gang in waiting]


def _waits(gang: Gang) -> bool:
    if gang.group is not None and not gang.needed:
        return False
    return _without_node(gang) > 0


def _without_node(gang: Gang) -> int:
    return sum(
        uid not in gang.placed and not pod.is_terminal and pod.metadata.deletion_timestamp is None
        for uid, pod in gang.pods.items()
    )


def _state(gang: Gang, now: float) -> GangState:
    group, reason, message = gang.group, _NO_GROUP, _NO_GROUP_MESSAGE
    if group is not None:
        verdict = judge(gang, Tally.of(gang), group.min_member)
        reason, message = verdict.reason, verdict.message
    entry = gang.entry
    return GangState(
        gang=str(gang.key),
        api=gang.key.source.value,
        place="" if entry is None or not gang.has_quorum else entry.place.label,
        priority=gang.priority,
        min_member=0 if group is None else group.min_member,
        needed=0 if group is None else gang.needed,
        # The members of an unknown group are held at their gate, not with the gang.
        waiting=_without_node(gang) if group is None else len(gang.waiting),
        placed=len(gang.placed),
        seconds=round(max(0.0, now - gang.since), 1),
        reservation=gang.reservation,
        reason=reason,
        message=message,
    )
