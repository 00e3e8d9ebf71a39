"""Events about PodGroups.

Owns their reasons and when there is something new to tell. Must not know how often they may be told. Why what a group
waits for makes none: members come one by one, and the condition says it; an event is for what the scheduler did.

    Scheduled         Normal   as many members as are needed have nodes
    FailedScheduling  Warning  an attempt failed, or left the group in part; again when the words change
    TimedOut          Warning  it was tried in vain for its scheduleTimeoutSeconds
    Preempting        Normal   pods are evicted for it
    InvalidSpec       Warning  its spec cannot be read
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bayplan.gangs.group_status import NATIVE_CONDITION
from bayplan.gangs.group_status_writes import VERSIONS
from bayplan.gangs.group_verdict import Phase, Verdict
from bayplan.reconcile.status import read_conditions
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import Event, ObjectReference

_SCHEDULED, _FAILED, _INVALID = "Scheduled", "FailedScheduling", "InvalidSpec"
_OWN_REASONS = frozenset({"TimedOut", "Preempting"})
_NORMAL = frozenset({_SCHEDULED, "Preempting"})
_PLACED_PHASES = frozenset({Phase.SCHEDULED, Phase.RUNNING, Phase.FINISHED})


class Told(Struct, frozen=True):
    """The last event of a group: its reason and its words."""

    reason: str
    note: str


def told_by(status: Mapping[str, Any]) -> Told | None:
    """What another process, or this one before, has told as far as the status says; None for nothing.

    Args:
        status: Of a PodGroup of any API.
    """
    for condition in read_conditions(status):
        if condition.type in ("Scheduled", NATIVE_CONDITION):
            if condition.status == "True":
                return Told(_SCHEDULED, condition.message)
            own = condition.reason in _OWN_REASONS or condition.reason == _INVALID
            return Told(condition.reason if own else _FAILED, condition.message)
    return Told(_SCHEDULED, "") if status.get("phase") in _PLACED_PHASES else None


def still_told(verdict: Verdict, told: Told | None) -> Told | None:
    """What needs no telling any more: that a group is scheduled is news again once it was not."""
    lost_it = told is not None and told.reason == _SCHEDULED and not verdict.is_scheduled
    return None if lost_it else told


def group_event(key: GroupKey, uid: str, verdict: Verdict, told: Told | None) -> Event | None:
    """Give the event that a verdict calls for.

    Args:
        key: The group.
        uid: Its object.
        verdict: How it was judged.
        told: Its last event.

    Returns:
        The event, None when there is nothing new.
    """
    if verdict.is_scheduled:
        if verdict.phase is Phase.FINISHED or (told is not None and told.reason == _SCHEDULED):
            return None
        reason = _SCHEDULED
    elif verdict.reason == _INVALID:
        reason = _INVALID
    elif verdict.is_failure:
        reason = verdict.reason if verdict.reason in _OWN_REASONS else _FAILED
    else:
        return None
    if told == Told(reason, verdict.message):
        return None
    source = key.source
    return Event(
        ObjectReference("PodGroup", key.name, key.namespace, uid, f"{source.value}/{VERSIONS[source]}"),
        "Normal" if reason in _NORMAL else "Warning",
        reason,
        "Preempting" if reason == "Preempting" else "Scheduling",
        verdict.message,
    )
