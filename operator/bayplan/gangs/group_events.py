"""Events about PodGroups.

A group that only waits, for example for members, gets no event: its condition has the reason. An event reports what the
scheduler did.

    Scheduled         Normal   all required members are scheduled
    FailedScheduling  Warning  an attempt failed, or left the group partially scheduled; again when the message changes
    TimedOut          Warning  it was attempted without success for its scheduleTimeoutSeconds
    Preempting        Normal   pods are evicted for it
    InvalidSpec       Warning  its spec is invalid
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bayplan.gangs.group_phase import Phase, Verdict
from bayplan.gangs.group_status import NATIVE_CONDITIONS, without_quorum
from bayplan.resources.conditions import read_conditions
from scheduler_core.ports import Event, ObjectReference

_SCHEDULED, _FAILED, _INVALID = "Scheduled", "FailedScheduling", "InvalidSpec"
_OWN_REASONS = frozenset({"TimedOut", "Preempting"})
_NORMAL = frozenset({_SCHEDULED, "Preempting"})
_SCHEDULED_PHASES = frozenset({Phase.SCHEDULED, Phase.RUNNING, Phase.FINISHED})


class RecordedEvent(Struct, frozen=True):
    """Reason and message of the last event of a group."""

    reason: str
    note: str


def recorded_event(status: Mapping[str, Any]) -> RecordedEvent | None:
    """Return the last event that a process has recorded according to the status; None for none.

    Args:
        status: Status of a PodGroup of any API.
    """
    for condition in read_conditions(status):
        if condition.type == "Scheduled" or condition.type in NATIVE_CONDITIONS:
            message = without_quorum(condition.message)
            if condition.status == "True":
                return RecordedEvent(_SCHEDULED, message)
            own = condition.reason in _OWN_REASONS or condition.reason == _INVALID
            return RecordedEvent(condition.reason if own else _FAILED, message)
    return RecordedEvent(_SCHEDULED, "") if status.get("phase") in _SCHEDULED_PHASES else None


def current_event(verdict: Verdict, last: RecordedEvent | None) -> RecordedEvent | None:
    """Return the last event, or None if it is Scheduled and the group is not scheduled any more."""
    is_outdated = last is not None and last.reason == _SCHEDULED and not verdict.is_scheduled
    return None if is_outdated else last


def group_event(group: ObjectReference, verdict: Verdict, last: RecordedEvent | None) -> Event | None:
    """Return the event for a verdict.

    Args:
        last: Last event of the group, or None.

    Returns:
        The event; None if it equals the last one.
    """
    if verdict.is_scheduled:
        if verdict.phase is Phase.FINISHED or (last is not None and last.reason == _SCHEDULED):
            return None
        reason = _SCHEDULED
    elif verdict.reason == _INVALID:
        reason = _INVALID
    elif verdict.is_failure:
        reason = verdict.reason if verdict.reason in _OWN_REASONS else _FAILED
    else:
        return None
    if last == RecordedEvent(reason, verdict.message):
        return None
    return Event(
        group,
        "Normal" if reason in _NORMAL else "Warning",
        reason,
        "Preempting" if reason == "Preempting" else "Scheduling",
        verdict.message,
    )
