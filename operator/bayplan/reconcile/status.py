"""Status of the custom resources: what was found, in the words of the API.

Owns the conditions, their reasons and messages, and which differences are worth a write. It must not know how a status
is written. Why two sorts of difference: a condition must be seen at once, while counts change with every pod and may
cost one write in ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bayplan.extending.http_extender import ExtenderState
from bayplan.reconcile.plugin_configs import DesiredPluginConfig
from bayplan.resources.conditions import Condition, ConditionUpdate, set_condition
from bayplan.resources.plugin_config import PluginConfigStatus
from bayplan.resources.scheduler_profile import (
    ExtenderStatus,
    QueueCounts,
    ResolvedPlugin,
    ResolvedPoint,
    SchedulerProfileStatus,
)
from scheduler_core.errors import Problem
from scheduler_core.framework.plugin_sets import ResolvedPlugins

COUNT_INTERVAL_SECONDS = 10.0
"""Counts of one object are written at most this often."""

_COUNTS = frozenset({"queue", "pending", "scheduledTotal", "lastScheduledTime", "lastError"})
_EXTENDERS = "extenders"
_MAX_PROBLEMS_LENGTH = 4096
_MAX_PROBLEM_LENGTH = 1024
_MAX_ERROR_LENGTH = 4096
_CONDITIONS = TypeAdapter(tuple[Condition, ...])


@dataclass(frozen=True, slots=True)
class Progress:
    """What a profile has done and what waits for it, as its status counts it."""

    active: int = 0
    backoff: int = 0
    unschedulable: int = 0
    gated: int = 0
    scheduled: int = 0
    last_scheduled: datetime | None = None
    last_error: str = ""
    extenders: tuple[ExtenderState, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileFindings:
    """What was found about a profile.

    Attributes:
        generation: Of the object that was judged.
        scheduler_name: The name that it claims.
        holds_name: Whether the claim is granted.
        problems: Everything that is wrong with its spec.
        live_revision: The revision that runs, "" if none does.
        resolved: The plugins of that revision.
        waiting_for: Profiles that stand against its QueueSort; None when it does not wait.
    """

    generation: int
    scheduler_name: str
    holds_name: bool
    problems: tuple[Problem, ...] = ()
    live_revision: str = ""
    resolved: ResolvedPlugins = field(default_factory=dict)
    waiting_for: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class StatusChange:
    """How a status differs from what is written.

    Attributes:
        patch: A merge patch over the status; empty when nothing differs.
        at_once: Whether more than counts differs.
        counts: Whether counts differ that were written before.
    """

    patch: dict[str, Any]
    at_once: bool
    counts: bool


def profile_status(
    findings: ProfileFindings, progress: Progress, written: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Give the status of a SchedulerProfile.

    Args:
        findings: What was found.
        progress: What it has done.
        written: The status as it is, for its conditions.
        now: The present time, with its zone.

    Returns:
        The status in plain JSON types.
    """
    conditions: Sequence[Condition] = read_conditions(written)
    for update in (_accepted(findings), _ready(findings)):
        conditions = set_condition(conditions, update, findings.generation, now)
    status = SchedulerProfileStatus(
        observed_generation=findings.generation,
        scheduler_name=findings.scheduler_name,
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
        extenders=tuple(_extender(state) for state in progress.extenders),
    )
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def plugin_config_status(judged: DesiredPluginConfig, written: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Give the status of a PluginConfig.

    Args:
        judged: What was found.
        written: The status as it is, for its conditions.
        now: The present time, with its zone.

    Returns:
        The status in plain JSON types.
    """
    if judged.problems:
        update = ConditionUpdate("Valid", "False", "InvalidSpec", problems_message(judged.problems))
    else:
        update = ConditionUpdate("Valid", "True", "Valid", "")
    generation = judged.meta.generation
    status = PluginConfigStatus(
        observed_generation=generation,
        conditions=tuple(set_condition(read_conditions(written), update, generation, now)),
        referenced_by=judged.referenced_by,
    )
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def status_change(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> StatusChange:
    """Compare a status with what is written.

    Args:
        written: The status as it is.
        wanted: The status as it should be.

    Returns:
        The difference; fields that are to go are None in its patch.
    """
    patch: dict[str, Any] = {name: value for name, value in wanted.items() if written.get(name) != value}
    patch |= dict.fromkeys(name for name in written if name not in wanted)
    counts = set(_COUNTS)
    if _circuits(written) == _circuits(wanted):
        # An error that changes nothing may wait: one that repeats in other words must not cost a write each time.
        counts.add(_EXTENDERS)
    return StatusChange(
        patch,
        at_once=any(name not in counts for name in patch),
        counts=any(name in counts and name in written for name in patch),
    )


def _circuits(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(entry.get(name) for name in ("urlPrefix", "state")) for entry in status.get(_EXTENDERS) or ()]


def problems_message(problems: Iterable[Problem]) -> str:
    """Write problems on one line, since ``kubectl get`` shows no second one; those beyond 4,096 characters are counted.

    Args:
        problems: At least one.

    Returns:
        Each problem with its path; several are counted and numbered.
    """
    texts = [" ".join(str(problem).split()) for problem in problems]
    if len(texts) == 1:
        return _cut(texts[0], _MAX_PROBLEMS_LENGTH)
    message = f"{len(texts)} problems:"
    for number, text in enumerate(texts, start=1):
        longer = f"{message} ({number}) {_cut(text, _MAX_PROBLEM_LENGTH)}"
        if len(longer) > _MAX_PROBLEMS_LENGTH:
            return f"{message} and {len(texts) - number + 1} more"
        message = longer
    return message


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 4] + " ..."


def read_conditions(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The conditions of a status as it came; none where they cannot be read."""
    try:
        return _CONDITIONS.validate_python(status.get("conditions") or ())
    except ValidationError:
        return ()


def _extender(state: ExtenderState) -> ExtenderStatus:
    return ExtenderStatus(
        url_prefix=state.url_prefix,
        state=state.state.value,
        since=state.since,
        last_error=_cut(state.last_error, _MAX_ERROR_LENGTH) or None,
    )


def _accepted(findings: ProfileFindings) -> ConditionUpdate:
    if not findings.problems:
        return ConditionUpdate("Accepted", "True", "Valid", "")
    only_the_name = not findings.holds_name and len(findings.problems) == 1
    reason = "SchedulerNameTaken" if only_the_name else "InvalidSpec"
    return ConditionUpdate("Accepted", "False", reason, problems_message(findings.problems))


def _ready(findings: ProfileFindings) -> ConditionUpdate:
    live = findings.live_revision
    if findings.waiting_for is not None:
        others = ", ".join(findings.waiting_for)
        goes_on = f"revision {live} goes on" if live else "no revision is live"
        return ConditionUpdate(
            "Ready",
            "True" if live else "False",
            "WaitingForQueueSort",
            f"All live profiles must ask for the same queueSort plugin and args, and {others} do not; until they do, "
            f"{goes_on}.",
        )
    if not live:
        told = "the name is not granted" if not findings.holds_name else "the spec is not valid"
        return ConditionUpdate(
            "Ready", "False", "NotLive", f"No revision is live, since {told}; see the condition Accepted."
        )
    if findings.problems:
        return ConditionUpdate(
            "Ready",
            "True",
            "LastGoodRevision",
            f"Revision {live}, the last good one, goes on; see the condition Accepted.",
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
