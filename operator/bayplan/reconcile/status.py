"""Status of the custom resources: what was found, in the words of the API.

Owns the conditions, their reasons and messages, and which differences are worth a write. It must not know how a status
is written. Why two sorts of difference: a condition must be seen at once, while counts change with every pod and may
cost one write in ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from pydantic import TypeAdapter, ValidationError

from bayplan.extending.http_extender import ExtenderState
from bayplan.reconcile.contested import CONTESTED, contested, last_lost_time
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
from scheduler_core.cycle.context import LostBind
from scheduler_core.errors import Problem
from scheduler_core.framework.plugin_sets import ResolvedPlugins

COUNT_INTERVAL_SECONDS = 10.0
"""Counts of one object are written at most this often."""

_COUNTS = frozenset(
    {"queue", "pending", "scheduledTotal", "lastScheduledTime", "lastError", "lostBinds", "lastLostBindTime"}
)
_CONDITIONS_FIELD = "conditions"
_UNDER_WAY = frozenset({"Reconciling", "Stalled"})
"""Conditions of kstatus (cli-utils ``pkg/kstatus``), which are left out where they do not hold."""
_EXTENDERS = "extenders"
_MAX_PROBLEMS_LENGTH = 4096
_MAX_PROBLEM_LENGTH = 1024
_MAX_ERROR_LENGTH = 4096
_CONDITIONS = TypeAdapter(tuple[Condition, ...])


class Progress(Struct, frozen=True):
    """What a profile has done and what waits for it, as its status counts it."""

    active: int = 0
    backoff: int = 0
    unschedulable: int = 0
    gated: int = 0
    scheduled: int = 0
    last_scheduled: datetime | None = None
    last_error: str = ""
    lost_binds: int = 0
    last_lost_bind: LostBind | None = None
    extenders: tuple[ExtenderState, ...] = ()


class ProfileFindings(Struct, frozen=True):
    """What was found about a profile.

    Attributes:
        generation: Of the object that was judged.
        scheduler_name: The name that it claims.
        holds_name: Whether the claim is granted.
        problems: Everything that is wrong with its spec.
        live_revision: The revision that runs, "" if none does.
        resolved: The plugins of that revision.
        waiting_for: Profiles that stand against its QueueSort; None when it does not wait.
        name_is_reserved: Whether the claim is refused since the name is kube-scheduler's.
    """

    generation: int
    scheduler_name: str
    holds_name: bool
    problems: tuple[Problem, ...] = ()
    live_revision: str = ""
    resolved: ResolvedPlugins = field(default_factory=dict)
    waiting_for: tuple[str, ...] | None = None
    name_is_reserved: bool = False


class StatusChange(Struct, frozen=True):
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
    known = read_conditions(written)
    lost_time = last_lost_time(progress.last_lost_bind, written)
    rivalry = contested(progress.lost_binds, progress.last_lost_bind, lost_time, known, now)
    accepted, ready = _accepted(findings), _ready(findings)
    updates = [accepted, ready, rivalry, *_under_way(accepted, ready, findings)]
    told = {update.type for update in updates}
    conditions: Sequence[Condition] = [one for one in known if one.type in told or one.type not in _UNDER_WAY]
    for update in updates:
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
        lost_binds=progress.lost_binds,
        last_lost_bind_time=lost_time,
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
        words = f"{_sentence(problems_message(judged.problems))} Correct the spec and apply it again."
        update = ConditionUpdate("Valid", "False", "InvalidSpec", words)
    else:
        update = ConditionUpdate("Valid", "True", "Valid", "The plugin exists and takes these args.")
    generation = judged.meta.generation
    status = PluginConfigStatus(
        observed_generation=generation,
        conditions=tuple(set_condition(read_conditions(written), update, generation, now)),
        referenced_by=judged.referenced_by,
        reference_count=judged.reference_count,
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
    if _steady(written) == _steady(wanted):
        # How many binds were lost stands in the words, and may cost no more writes than any other count.
        counts.add(_CONDITIONS_FIELD)
    return StatusChange(
        patch,
        at_once=any(name not in counts for name in patch),
        counts=any(name in counts and name in written for name in patch),
    )


def _circuits(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(entry.get(name) for name in ("urlPrefix", "state")) for entry in status.get(_EXTENDERS) or ()]


def _steady(status: Mapping[str, Any]) -> list[object]:
    """The conditions without the words that change with counts."""
    return [
        {name: value for name, value in one.items() if name != "message"}
        if isinstance(one, Mapping) and one.get("type") == CONTESTED
        else one
        for one in status.get(_CONDITIONS_FIELD) or ()
    ]


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


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "...", "more")) else f"{text}."


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
        return ConditionUpdate("Accepted", "True", "Valid", "The spec is valid.")
    words = _sentence(problems_message(findings.problems))
    if not findings.holds_name and len(findings.problems) == 1:
        reason = "SchedulerNameReserved" if findings.name_is_reserved else "SchedulerNameTaken"
        return ConditionUpdate("Accepted", "False", reason, words)
    live = findings.live_revision
    goes_on = f"; until then revision {live} goes on" if live else ""
    return ConditionUpdate("Accepted", "False", "InvalidSpec", f"{words} Correct the spec and apply it again{goes_on}.")


def _under_way(
    accepted: ConditionUpdate, ready: ConditionUpdate, findings: ProfileFindings
) -> Iterator[ConditionUpdate]:
    """What tools that follow kstatus take for a failure or for work that goes on, though a good revision is Ready."""
    if findings.problems:
        words = "The spec as written is not taken; the condition Accepted tells why, and what to do."
        yield ConditionUpdate("Stalled", "True", accepted.reason, words)
    elif findings.waiting_for is not None:
        yield ConditionUpdate("Reconciling", "True", ready.reason, ready.message)


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
            f"{goes_on}. Give all of them the same queueSort, or delete those that disagree.",
        )
    if not live:
        told = "the name is not granted" if not findings.holds_name else "the spec is not valid"
        return ConditionUpdate(
            "Ready",
            "False",
            "NotLive",
            f"No revision is live, since {told}. Do what the condition Accepted tells; pods of "
            f"{findings.scheduler_name} are not scheduled by this profile until then.",
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
