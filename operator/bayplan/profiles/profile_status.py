"""Statuses of the custom resources: conditions, their reasons and messages, and which differences to write at once.

A change of a condition is written at once, while counts change with every pod and are written every ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from bayplan.extenders.http_extender import ExtenderReading
from bayplan.profiles.desired_profiles import DesiredPluginConfig, DesiredProfile
from bayplan.profiles.revision_store import StoredRevision
from bayplan.resources.conditions import (
    WITH_WARNINGS,
    Condition,
    ConditionUpdate,
    cut_text,
    find_condition,
    problems_message,
    read_conditions,
    set_condition,
)
from bayplan.resources.plugin_config import PluginConfigStatus
from bayplan.resources.scheduler_profile import (
    MAX_REASON_LENGTH,
    SHOWN_DIFFERENCES,
    CarriedForward,
    Difference,
    ExtenderStatus,
    NotCompared,
    PlacementFigures,
    QueueCounts,
    ResourceFigures,
    SchedulerProfileStatus,
    ScoreDifference,
    ShadowStatus,
)
from scheduler_core.config.profile_config import ProfileConfig, ShadowSettings
from scheduler_core.cycle.contested_nodes import ContestedNode
from scheduler_core.errors import Problem
from scheduler_core.framework.registry import ResolvedPlugins
from scheduler_core.metrics.scheduler_metrics import LostBind, ProfileRecord
from scheduler_core.queueing import sub_queues
from scheduler_core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class ProfileFindings:
    """What validation and activation found about a profile.

    Attributes:
        warnings: Entries that do not do what they seem to do.
        live_revision: The revision that runs, "" if none does.
        waiting_for: Profiles with another QueueSort; None if it does not wait.
    """

    generation: int
    scheduler_name: str
    holds_name: bool
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    live_revision: str = ""
    resolved: ResolvedPlugins = field(default_factory=dict)
    waiting_for: tuple[str, ...] | None = None
    name_is_reserved: bool = False
    shadow: ShadowSettings | None = None


@dataclass(frozen=True, slots=True)
class AppliedProfile:
    """A profile after its desired state was applied, with the revision to store if one of its spec went live."""

    desired: DesiredProfile
    findings: ProfileFindings
    activated: ProfileConfig | None = None


CONTESTED = "Contested"
CONTESTED_SECONDS = 600.0
"""Duration for which a profile counts as contested after a lost bind."""

_REMEDY = (
    "The pod's event Scheduled, if it has one, names the rival. Use this schedulerName in this profile only: stop the "
    "other scheduler or rename one of the two, and do not bind pods of this name by other means."
)


def last_lost_time(lost: LostBind | None, written: Mapping[str, Any]) -> datetime | None:
    """Return when a bind was last lost, as recorded by this process or in the status."""
    if lost is not None:
        return lost.when
    text = written.get("lastLostBindTime")
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


_PARTITION = (
    "Give each scheduler nodes of its own, for example by addedAffinity in the args of NodeAffinity. `bayplan status` "
    "lists the nodes."
)


@dataclass(frozen=True, slots=True)
class ContestedPods:
    """Contested nodes with pods of one profile.

    Attributes:
        nodes: Number of these nodes.
        node_name: The one that was overcommitted last.
        rival: schedulerName of the pod that overcommitted it.
        pod: That pod, as ``namespace/name``.
    """

    nodes: int
    node_name: str
    rival: str
    pod: str


def contested_pods(nodes: Iterable[ContestedNode], profile: str) -> ContestedPods | None:
    """Return the contested nodes, the last overcommitted first, with pods of a profile; None for none."""
    found = [node for node in nodes if profile in node.profiles]
    return ContestedPods(len(found), found[0].name, found[0].rivals[-1], found[0].pods[-1]) if found else None


def rivalry(of_binds: ConditionUpdate, nodes: ContestedPods | None) -> ConditionUpdate:
    """Return the condition Contested from its part about lost binds, and from the contested nodes."""
    if nodes is None:
        return of_binds
    many = "a node that has" if nodes.nodes == 1 else f"{nodes.nodes} nodes that have"
    message = (
        f"Scheduler {nodes.rival} has overcommitted {many} pods of this profile, the last was node "
        f"{nodes.node_name} by pod {nodes.pod}. {_PARTITION}"
    )
    if of_binds.status == "True":
        return ConditionUpdate(CONTESTED, "True", of_binds.reason, f"{of_binds.message} {message}")
    return ConditionUpdate(CONTESTED, "True", "NodesOvercommitted", message)


def contested(
    lost_binds: int, lost: LostBind | None, last_time: datetime | None, conditions: tuple[Condition, ...], now: datetime
) -> ConditionUpdate:
    """Make the condition Contested; the message of the current one stays if this process has lost no bind."""
    if last_time is None or now - last_time >= timedelta(seconds=CONTESTED_SECONDS):
        minutes = round(CONTESTED_SECONDS / 60)
        return ConditionUpdate(
            CONTESTED,
            "False",
            "Uncontested",
            f"No other client has bound a pod of this profile, or overcommitted a node with its pods, in the last "
            f"{minutes} min.",
        )
    old = find_condition(conditions, CONTESTED)
    if lost is None:
        message = old.message if old is not None and old.status == "True" else f"A bind was lost to a rival. {_REMEDY}"
    else:
        last = f"pod {lost.pod} to node {lost.rival_node_name}, while this profile was binding it to {lost.node_name}"
        prefix = (
            "" if lost_binds == 1 else f"{lost_binds} pods of this profile since the operator started, the last was "
        )
        message = f"Another client has bound {prefix}{last}. {_REMEDY}"
    return ConditionUpdate(CONTESTED, "True", "BindsLostToRival", message)


DEGRADED = "Degraded"
DEGRADED_SECONDS = 300.0
"""Duration for which a profile counts as degraded after an error."""


def degraded(faults: int, last_fault: str, last_fault_at: datetime | None, now: datetime) -> Iterator[ConditionUpdate]:
    """Yield the condition Degraded, which is present only while attempts fail with errors of the profile's plugins."""
    if last_fault_at is None or now - last_fault_at >= timedelta(seconds=DEGRADED_SECONDS):
        return
    many = "An attempt has failed with an error" if faults == 1 else f"{faults} attempts have failed with an error"
    minutes = round(DEGRADED_SECONDS / 60)
    message = (
        f"{many} since the operator started, the last one within {minutes} min: {cut_text(last_fault, _SHOWN_ERROR)}. "
        "The pods are tried again. Correct or disable the plugin or extender that the error names; the operator's log "
        "has the traceback."
    )
    yield ConditionUpdate(DEGRADED, "True", "AttemptsFail", message)


if TYPE_CHECKING:
    from scheduler_core.shadows.ledger import LedgerFigures, StateFigures
    from scheduler_core.shadows.shadow_profiles import Shadow, ShadowDifference

_MAX_ERROR_LENGTH = 4096
_SHOWN_ERROR = 512
_MAX_RESOURCES = 32


@dataclass(frozen=True, slots=True)
class RunningShadow:
    """A shadow that runs, and whether it pauses after repeated errors."""

    shadow: Shadow
    has_live_profile: bool
    is_paused: bool


def running_shadow(scheduler: Scheduler, name: str) -> RunningShadow | None:
    """Return the shadow of a name with its results; None if it does not run."""
    shadow = scheduler.shadows.get(name)
    if shadow is None:
        return None
    context = scheduler.context
    return RunningShadow(
        shadow, shadow.settings.shadow_of in context.profiles, shadow.paused_until > context.clock.now()
    )


def shadow_conditions(findings: ProfileFindings, running: RunningShadow | None) -> Iterator[ConditionUpdate]:
    """Yield the conditions Ready and Comparing."""
    assert findings.shadow is not None
    live, of = findings.live_revision, findings.shadow.shadow_of
    if running is None:
        message = "No revision runs because the spec is invalid; see condition Accepted."
        yield ConditionUpdate("Ready", "False", "NotLive", message)
        yield ConditionUpdate("Comparing", "False", "NotRunning", message)
        return
    if findings.problems:
        message = f"Revision {live}, the last good one, keeps running as a shadow; see condition Accepted."
        yield ConditionUpdate("Ready", "True", "LastGoodRevision", message)
    else:
        yield ConditionUpdate("Ready", "True", "Shadow", f"Revision {live} is a shadow of {of} and binds no pods.")
    if not running.has_live_profile:
        message = f"No live profile of this process has the scheduler name {of}; correct shadowOf, or create it."
        yield ConditionUpdate("Comparing", "False", "NoLiveProfile", message)
    elif running.is_paused:
        message = "The shadow failed several times in a row and pauses for a minute; see status.shadow.lastError."
        yield ConditionUpdate("Comparing", "False", "Paused", message)
    else:
        settings = running.shadow.settings
        sample = f"{settings.sample_percent} % of the decisions of {of} are made again"
        message = f"{sample}, within {settings.budget_percent} % of the scheduler's time."
        yield ConditionUpdate("Comparing", "True", "Comparing", message)


def shadow_status(running: RunningShadow | None) -> ShadowStatus | None:
    if running is None:
        return None
    shadow, record = running.shadow, running.shadow.record
    kinds = {kind.value: count for kind, count in record.kinds.items()}
    return ShadowStatus(
        live_revision=shadow.live_revision or None,
        since=record.since,
        decided=record.decided,
        compared=record.compared,
        agreed=record.agreed,
        differed=record.differed,
        other_node=kinds.get("OtherNode", 0),
        would_reject=kinds.get("WouldReject", 0),
        would_place=kinds.get("WouldPlace", 0),
        not_compared=tuple(NotCompared(reason=each, count=count) for each, count in sorted(record.skipped.items())),
        errors=record.errors,
        last_error=cut_text(record.last_error, _MAX_ERROR_LENGTH) or None,
        seconds=f"{shadow.budget.spent:.3f}",
        score_difference=ScoreDifference(
            live=_decimal(record.live_points.average), shadow=_decimal(record.shadow_points.average)
        ),
        carried_forward=None if record.figures is None else _carried(record.figures),
        differences=tuple(_difference(each) for each in reversed(record.differences)),
    )


def _short(shadow: ShadowStatus | None) -> ShadowStatus | None:
    """Leave out all but the last differences, which would hide the events in ``kubectl describe``."""
    return None if shadow is None else shadow.model_copy(update={"differences": shadow.differences[:SHOWN_DIFFERENCES]})


def _decimal(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _difference(each: ShadowDifference) -> Difference:
    return Difference(
        time=each.when,
        pod=each.pod,
        kind=each.kind.value,
        live_node=each.live_node or None,
        shadow_node=each.shadow_node or None,
        reason=cut_text(each.reason, MAX_REASON_LENGTH),
    )


def _carried(figures: LedgerFigures) -> CarriedForward:
    return CarriedForward(
        since=figures.since,
        pods=figures.pods,
        moved=figures.moved,
        live=_placement(figures.live),
        shadow=_placement(figures.shadow),
    )


def _placement(state: StateFigures) -> PlacementFigures:
    names = sorted(state.imbalance.keys() | state.unusable.keys())[:_MAX_RESOURCES]
    return PlacementFigures(
        empty_nodes=state.empty_nodes,
        placed=state.placed,
        zone_skew=state.zone_skew,
        resources=tuple(
            ResourceFigures(
                name=name, imbalance=_percent(state.imbalance.get(name)), unusable=_percent(state.unusable.get(name))
            )
            for name in names
        ),
    )


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"


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
_WHILE_TRUE = frozenset({"Reconciling", "Stalled", DEGRADED})
"""Conditions that are present only while they are true, as those of kstatus (cli-utils ``pkg/kstatus``) must be."""
_EXTENDERS = "extenders"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a profile has scheduled and what waits for it, for its status."""

    record: ProfileRecord = field(default_factory=ProfileRecord)
    waiting: sub_queues.QueueCounts = field(default_factory=sub_queues.QueueCounts)
    contested_pods: ContestedPods | None = None
    extenders: tuple[ExtenderReading, ...] = ()
    shadow: RunningShadow | None = None


class StatusChange(Struct, frozen=True):
    """The fields of a status that differ from the written one, None for those to remove, and whether counts do."""

    patch: dict[str, Any]
    at_once: bool
    counts: bool


def profile_status(
    findings: ProfileFindings, progress: Progress, written: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    known, record = read_conditions(written), progress.record
    lost_time = last_lost_time(record.last_lost_bind, written)
    of_binds = contested(record.lost_binds, record.last_lost_bind, lost_time, known, now)
    accepted, ready = _accepted(findings), _ready(findings)
    failing = degraded(record.faults, record.last_fault, record.last_fault_at, now)
    updates = [
        accepted,
        ready,
        rivalry(of_binds, progress.contested_pods),
        *failing,
        *_under_way(accepted, ready, findings),
    ]
    if findings.shadow is not None:
        updates = [accepted, *shadow_conditions(findings, progress.shadow), *_under_way(accepted, ready, findings)]
    types = {update.type for update in updates}
    conditions: Sequence[Condition] = [one for one in known if one.type in types or one.type not in _WHILE_TRUE]
    for update in updates:
        conditions = set_condition(conditions, update, findings.generation, now)
    status = SchedulerProfileStatus(
        observed_generation=findings.generation,
        scheduler_name=None if findings.shadow else findings.scheduler_name,
        active_revision=findings.live_revision or None,
        conditions=tuple(conditions),
        resolved_plugins=_plugins(findings.resolved),
        queue=QueueCounts(**structs.asdict(progress.waiting)),
        pending=progress.waiting.pending,
        scheduled_total=record.scheduled,
        last_scheduled_time=record.last_scheduled,
        last_error=record.last_error[:_MAX_ERROR_LENGTH] or None,
        last_error_time=record.last_error_at,
        lost_binds=record.lost_binds,
        last_lost_bind_time=lost_time,
        extenders=tuple(_extender(state) for state in progress.extenders),
        shadow=_short(shadow_status(progress.shadow)),
    )
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def plugin_config_status(validated: DesiredPluginConfig, written: Mapping[str, Any], now: datetime) -> dict[str, Any]:
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
    """Compare a status with the written one; fields to remove are None in the patch."""
    patch: dict[str, Any] = {name: value for name, value in wanted.items() if written.get(name) != value}
    patch |= dict.fromkeys(name for name in written if name not in wanted)
    counts = set(_COUNTS)
    if _circuits(written) == _circuits(wanted):
        # An extender's error without a change of its circuit may wait: its text may differ with each call.
        counts.add(_EXTENDERS)
    if _stable_conditions(written) == _stable_conditions(wanted):
        # Numbers of lost binds and errors are part of the messages, and must not cause more writes than other counts.
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
        if isinstance(one, Mapping) and one.get("type") in (CONTESTED, DEGRADED)
        else one
        for one in status.get(_CONDITIONS_FIELD) or ()
    ]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "...", "more")) else f"{text}."


def _extender(state: ExtenderReading) -> ExtenderStatus:
    return ExtenderStatus(
        url_prefix=state.url_prefix,
        state=state.state.value,
        since=state.since,
        last_error=cut_text(state.last_error, _MAX_ERROR_LENGTH) or None,
    )


def _accepted(findings: ProfileFindings) -> ConditionUpdate:
    if not findings.problems and findings.warnings:
        warnings = problems_message(findings.warnings, "warnings")
        return ConditionUpdate("Accepted", "True", WITH_WARNINGS, f"The spec is valid, but: {_sentence(warnings)}")
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
        differ = "differ" if len(findings.waiting_for) > 1 else "differs"
        continues = f"revision {live} keeps running" if live else "no revision is live"
        return ConditionUpdate(
            "Ready",
            "True" if live else "False",
            "WaitingForQueueSort",
            f"All live profiles must have the same queueSort plugin and args, and {others} {differ}; until they agree, "
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


def _plugins(resolved: ResolvedPlugins) -> dict[str, str]:
    return {
        point: ", ".join(f"{each.name}={each.weight}" if point == "score" else each.name for each in plugins)
        for point, plugins in resolved.items()
        if plugins
    }


@dataclass(frozen=True, slots=True)
class ProfileReading:
    """A SchedulerProfile of this process.

    Attributes:
        shadow_of: Scheduler name of the live profile of a shadow; "" for other profiles.
        conditions: Conditions of its status, as last written.
        revisions: Its stored revisions, newest first.
    """

    name: str
    scheduler_name: str
    live_revision: str
    shadow_of: str
    conditions: tuple[Mapping[str, Any], ...]
    revisions: tuple[StoredRevision, ...]


def reading_of(
    applied: AppliedProfile, status: Mapping[str, Any], revisions: Iterable[StoredRevision]
) -> ProfileReading:
    findings = applied.findings
    return ProfileReading(
        name=applied.desired.meta.name,
        scheduler_name=findings.scheduler_name,
        live_revision=findings.live_revision,
        shadow_of="" if findings.shadow is None else findings.shadow.shadow_of,
        conditions=tuple(status.get("conditions") or ()),
        revisions=tuple(sorted(revisions, key=lambda each: -each.number)),
    )
