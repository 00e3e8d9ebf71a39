"""Statuses of the custom resources: conditions, their reasons and messages, and which differences to write at once.

A change of a condition is written at once, while counts change with every pod and are written every ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from bayplan.extenders.http_extender import ExtenderState
from bayplan.profiles.applied_profile import ProfileFindings
from bayplan.profiles.contested_condition import CONTESTED, contested, last_lost_time
from bayplan.profiles.plugin_config_validation import DesiredPluginConfig
from bayplan.profiles.shadow_status import RunningShadow, shadow_conditions, shadow_status
from bayplan.resources.conditions import (
    Condition,
    ConditionUpdate,
    cut_text,
    problems_message,
    read_conditions,
    set_condition,
)
from bayplan.resources.plugin_config import PluginConfigStatus
from bayplan.resources.scheduler_profile import (
    ExtenderStatus,
    QueueCounts,
    ResolvedPlugin,
    ResolvedPoint,
    SchedulerProfileStatus,
)
from scheduler_core.framework.registry import ResolvedPlugins
from scheduler_core.metrics.profile_metrics import LostBind

COUNT_INTERVAL_SECONDS = 10.0
"""Minimum interval between writes of one object's counts."""

_COUNTS = frozenset(
    {
        "shadow",
        "queue",
        "pending",
        "scheduledTotal",
        "lastScheduledTime",
        "lastError",
        "lastErrorTime",
        "lostBinds",
        "lastLostBindTime",
    }
)
_CONDITIONS_FIELD = "conditions"
_UNDER_WAY = frozenset({"Reconciling", "Stalled"})
"""Conditions of kstatus (cli-utils ``pkg/kstatus``), which are present only while they are true."""
_EXTENDERS = "extenders"
_MAX_ERROR_LENGTH = 4096


class Progress(Struct, frozen=True):
    """What a profile has scheduled and what waits for it, for its status."""

    active: int = 0
    backoff: int = 0
    unschedulable: int = 0
    gated: int = 0
    scheduled: int = 0
    last_scheduled: datetime | None = None
    last_error: str = ""
    last_error_at: datetime | None = None
    lost_binds: int = 0
    last_lost_bind: LostBind | None = None
    extenders: tuple[ExtenderState, ...] = ()
    shadow: RunningShadow | None = None


class StatusChange(Struct, frozen=True):
    """Difference between a status and the written one.

    Attributes:
        patch: Merge patch of the status; empty if nothing differs.
        at_once: Whether more than counts differs.
        counts: Whether counts differ that were written before.
    """

    patch: dict[str, Any]
    at_once: bool
    counts: bool


def profile_status(
    findings: ProfileFindings, progress: Progress, written: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Make the status of a SchedulerProfile.

    Args:
        findings: What was found.
        progress: What it has scheduled.
        written: The current status, for its conditions.
        now: The current time, with its zone.

    Returns:
        The status in plain JSON types.
    """
    known = read_conditions(written)
    lost_time = last_lost_time(progress.last_lost_bind, written)
    rivalry = contested(progress.lost_binds, progress.last_lost_bind, lost_time, known, now)
    accepted, ready = _accepted(findings), _ready(findings)
    updates = [accepted, ready, rivalry, *_under_way(accepted, ready, findings)]
    if findings.shadow is not None:
        updates = [accepted, *shadow_conditions(findings, progress.shadow), *_under_way(accepted, ready, findings)]
    types = {update.type for update in updates}
    conditions: Sequence[Condition] = [one for one in known if one.type in types or one.type not in _UNDER_WAY]
    for update in updates:
        conditions = set_condition(conditions, update, findings.generation, now)
    status = SchedulerProfileStatus(
        observed_generation=findings.generation,
        scheduler_name=None if findings.shadow else findings.scheduler_name,
        active_revision=findings.live_revision or None,
        conditions=tuple(conditions),
        plugins=_points(findings.resolved),
        queue=QueueCounts(
            active=progress.active,
            backoff=progress.backoff,
            unschedulable=progress.unschedulable,
            gated=progress.gated,
        ),
        pending=progress.active + progress.backoff + progress.unschedulable + progress.gated,
        scheduled_total=progress.scheduled,
        last_scheduled_time=progress.last_scheduled,
        last_error=progress.last_error[:_MAX_ERROR_LENGTH] or None,
        last_error_time=progress.last_error_at,
        lost_binds=progress.lost_binds,
        last_lost_bind_time=lost_time,
        extenders=tuple(_extender(state) for state in progress.extenders),
        shadow=shadow_status(progress.shadow),
    )
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def plugin_config_status(validated: DesiredPluginConfig, written: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Make the status of a PluginConfig.

    Args:
        validated: The validated PluginConfig.
        written: The current status, for its conditions.
        now: The current time, with its zone.

    Returns:
        The status in plain JSON types.
    """
    if validated.problems:
        message = f"{_sentence(problems_message(validated.problems))} Correct the spec and apply it again."
        update = ConditionUpdate("Valid", "False", "InvalidSpec", message)
    else:
        update = ConditionUpdate("Valid", "True", "Valid", "The plugin exists and accepts these args.")
    generation = validated.meta.generation
    status = PluginConfigStatus(
        observed_generation=generation,
        conditions=tuple(set_condition(read_conditions(written), update, generation, now)),
        referenced_by=validated.referenced_by,
        reference_count=validated.reference_count,
    )
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def status_change(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> StatusChange:
    """Compare a status with the written one.

    Args:
        written: The current status.
        wanted: The desired status.

    Returns:
        The difference; fields to remove are None in its patch.
    """
    patch: dict[str, Any] = {name: value for name, value in wanted.items() if written.get(name) != value}
    patch |= dict.fromkeys(name for name in written if name not in wanted)
    counts = set(_COUNTS)
    if _circuits(written) == _circuits(wanted):
        # An extender's error without a change of its circuit may wait: its text may differ with each call.
        counts.add(_EXTENDERS)
    if _stable_conditions(written) == _stable_conditions(wanted):
        # The number of lost binds is part of the message, and must not cause more writes than any other count.
        counts.add(_CONDITIONS_FIELD)
    return StatusChange(
        patch,
        at_once=any(name not in counts for name in patch),
        counts=any(name in counts and name in written for name in patch),
    )


def _circuits(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(entry.get(name) for name in ("urlPrefix", "state")) for entry in status.get(_EXTENDERS) or ()]


def _stable_conditions(status: Mapping[str, Any]) -> list[object]:
    """Return the conditions without the message that changes with counts."""
    return [
        {name: value for name, value in one.items() if name != "message"}
        if isinstance(one, Mapping) and one.get("type") == CONTESTED
        else one
        for one in status.get(_CONDITIONS_FIELD) or ()
    ]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "...", "more")) else f"{text}."


def _extender(state: ExtenderState) -> ExtenderStatus:
    return ExtenderStatus(
        url_prefix=state.url_prefix,
        state=state.state.value,
        since=state.since,
        last_error=cut_text(state.last_error, _MAX_ERROR_LENGTH) or None,
    )


def _accepted(findings: ProfileFindings) -> ConditionUpdate:
    if not findings.problems:
        return ConditionUpdate("Accepted", "True", "Valid", "The spec is valid.")
    message = _sentence(problems_message(findings.problems))
    if findings.shadow is None and not findings.holds_name and len(findings.problems) == 1:
        reason = "SchedulerNameReserved" if findings.name_is_reserved else "SchedulerNameTaken"
        return ConditionUpdate("Accepted", "False", reason, message)
    live = findings.live_revision
    continues = f"; until then revision {live} keeps running" if live else ""
    return ConditionUpdate(
        "Accepted", "False", "InvalidSpec", f"{message} Correct the spec and apply it again{continues}."
    )


def _under_way(
    accepted: ConditionUpdate, ready: ConditionUpdate, findings: ProfileFindings
) -> Iterator[ConditionUpdate]:
    """Yield the kstatus conditions: failure or work in progress, even if an earlier revision is Ready."""
    if findings.problems:
        message = "Spec rejected; see condition Accepted."
        yield ConditionUpdate("Stalled", "True", accepted.reason, message)
    elif findings.waiting_for is not None:
        yield ConditionUpdate("Reconciling", "True", ready.reason, ready.message)


def _ready(findings: ProfileFindings) -> ConditionUpdate:
    live = findings.live_revision
    if findings.waiting_for is not None:
        others = ", ".join(findings.waiting_for)
        continues = f"revision {live} keeps running" if live else "no revision is live"
        return ConditionUpdate(
            "Ready",
            "True" if live else "False",
            "WaitingForQueueSort",
            f"All live profiles must have the same queueSort plugin and args, and {others} differ; until they agree, "
            f"{continues}. Set the same queueSort in all of them, or delete those that differ.",
        )
    if not live:
        reason = "the scheduler name is not granted" if not findings.holds_name else "the spec is invalid"
        return ConditionUpdate(
            "Ready",
            "False",
            "NotLive",
            f"No revision is live because {reason}; see condition Accepted. Pods of {findings.scheduler_name} are not "
            "scheduled by this profile until then.",
        )
    if findings.problems:
        return ConditionUpdate(
            "Ready",
            "True",
            "LastGoodRevision",
            f"Revision {live}, the last good one, keeps running; see condition Accepted.",
        )
    return ConditionUpdate("Ready", "True", "Live", f"Revision {live} schedules the pods of {findings.scheduler_name}.")


def _points(resolved: ResolvedPlugins) -> tuple[ResolvedPoint, ...]:
    return tuple(
        ResolvedPoint(
            point=point,
            plugins=tuple(
                ResolvedPlugin(name=plugin.name, weight=plugin.weight if point == "score" else None)
                for plugin in plugins
            ),
        )
        for point, plugins in resolved.items()
        if plugins
    )
