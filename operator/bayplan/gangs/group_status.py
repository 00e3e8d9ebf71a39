"""The status of a PodGroup in each of the four APIs, and how urgently each difference is written.

A changed phase is written immediately; counts change with every pod, and the time of the last attempt with every
backoff, so both are rate limited.

Sources: bayplan.dev/v1alpha1, :mod:`bayplan.resources.pod_group`; scheduler-plugins v0.34.7,
``apis/scheduling/v1alpha1/types.go`` and ``pkg/controllers/podgroup_controller.go``; Kubernetes v1.37.1 and v1.36.3,
``pkg/scheduler/schedule_one_podgroup.go`` (``updatePodGroupCondition``); volcano.sh/apis v1.14.0,
``pkg/apis/scheduling/v1beta1/types.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any

import msgspec
from msgspec import Struct

from bayplan.gangs.group_phase import Phase, Tally, Verdict, evaluate_gang
from bayplan.gangs.group_translation import NATIVE_VERSIONS, NativeVersion
from bayplan.kube.custom_resources import ObjectPath, replace_status
from bayplan.kube.http.connection import MERGE_PATCH, METADATA_ONLY, STRATEGIC_MERGE_PATCH, ApiConnection, ApiRequest
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, Rank, Write
from bayplan.resources.conditions import (
    WITH_WARNINGS,
    Condition,
    ConditionStatus,
    ConditionUpdate,
    find_condition,
    problems_message,
    read_conditions,
    set_condition,
)
from bayplan.resources.pod_group import (
    MAX_LOST_MEMBERS,
    MAX_NEW_NODES,
    MAX_RUN_CONTROLLERS,
    GroupRunStatus,
    HelpfulNodes,
    LostMemberStatus,
    PodGroupStatus,
    PodReference,
)
from bayplan.resources.resource_model import format_time
from bayplan.texts.document_formats import capitalized
from scheduler_core.errors import Problem
from scheduler_core.explain.findings import HelpfulNode, NewNodes
from scheduler_core.model.pod_group import NEWEST_VERSIONS, GroupKey, GroupSource
from scheduler_core.ports import Event, ObjectReference
from scheduler_core.queueing.gang_members import QUORUM_BEGINNINGS, Gang, HealingOutcome, LostMember

MAX_VICTIMS = 256
_MAX_DOMAIN_LENGTH = 1024
_MAX_OWNERS = 16
_NAMED = 5
NATIVE_CONDITIONS = frozenset(version.condition for version in NATIVE_VERSIONS.values())
"""Types of the conditions of native groups that are written, of all versions."""

INVALID_SPEC = "InvalidSpec"
_SCHEDULER_ERROR = "SchedulerError"
_UNKNOWN = "Unknown"
_UNSCHEDULABLE = "Unschedulable"
_QUORUM_ENDS = "; "
_NO_MEMBERS = Tally({}, 0, 0, 0, 0, 0, 0)
_FIELDS: Mapping[GroupSource, frozenset[str]] = {
    GroupSource.BAYPLAN: frozenset(field.alias or name for name, field in PodGroupStatus.model_fields.items()),
    GroupSource.SCHEDULER_PLUGINS: frozenset(
        {"phase", "occupiedBy", "running", "succeeded", "failed", "scheduleStartTime", "scheduled"}
    ),
    GroupSource.NATIVE: frozenset({"conditions"}),
    GroupSource.VOLCANO: frozenset({"phase", "running", "succeeded", "failed", "conditions"}),
}
_IMMEDIATE = frozenset({"phase", "observedGeneration", "nominatedDomain", "victims", "victimsOfOtherNamespaces", "run"})
_CONDITIONS = "conditions"
_LAST_ATTEMPT = "lastAttemptTime"


class SeenGroup(Struct, frozen=True):
    """State of a PodGroup object that its status is computed from.

    Attributes:
        keeps_start: Whether ``scheduleStartTime`` stays as written, because it was attempted before this process began.
        new_nodes: New nodes that would help the gang; None if they were not searched.
        taken: UIDs of lost members whose held room pods of a higher priority have taken.
    """

    key: GroupKey
    generation: int
    written: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()
    keeps_start: bool = False
    version: str = ""
    warnings: tuple[Problem, ...] = ()
    new_nodes: NewNodes | None = None
    taken: Collection[str] = ()


class GroupStatus(Struct, frozen=True):
    """Desired status of a group, in plain JSON types."""

    verdict: Verdict
    fields: dict[str, Any]


class Urgency(IntEnum):
    """Urgency with which a difference is written."""

    NEVER = 0
    """There is no difference."""
    LATER = 1
    """Only the time of the last attempt differs."""
    SOON = 2
    """Counts or messages differ."""
    IMMEDIATE = 3
    """The phase, a condition or its reason differs."""


class StatusDifference(Struct, frozen=True):
    """Difference between the desired and the current status.

    Attributes:
        patch: Merge patch of the status (a strategic one for the native API); empty if nothing differs.
    """

    patch: dict[str, Any]
    urgency: Urgency


def group_status(seen: SeenGroup, gang: Gang | None, now: datetime) -> GroupStatus:
    """Return the desired status of a PodGroup.

    Args:
        gang: The gang in the scheduler; None if the scheduler has none.

    Returns:
        The status, without fields that other controllers own.
    """
    tally = _NO_MEMBERS if gang is None else Tally.of(gang)
    verdict = _verdict(seen, gang, tally)
    match seen.key.source:
        case GroupSource.BAYPLAN:
            fields = _bayplan_status(seen, gang, (tally, verdict), now)
        case GroupSource.SCHEDULER_PLUGINS:
            fields = _scheduler_plugins_status(seen, gang, (tally, verdict))
        case GroupSource.NATIVE:
            fields = _native_status(seen, gang, verdict, now)
        case GroupSource.VOLCANO:
            fields = _volcano_status(seen, tally, verdict, now)
    return GroupStatus(verdict, fields)


def status_difference(source: GroupSource, written: Mapping[str, Any], wanted: Mapping[str, Any]) -> StatusDifference:
    """Compare the desired status with the current one.

    Args:
        written: Current status; fields that other controllers own are ignored.

    Returns:
        The difference; fields to remove are None in its patch.
    """
    patch: dict[str, Any] = {name: value for name, value in wanted.items() if written.get(name) != value}
    patch |= {name: None for name in written if name in _FIELDS[source] and name not in wanted}
    if not patch:
        urgency = Urgency.NEVER
    elif any(name in _IMMEDIATE for name in patch) or _verdicts(written) != _verdicts(wanted):
        urgency = Urgency.IMMEDIATE
    elif patch.keys() == {_LAST_ATTEMPT}:
        urgency = Urgency.LATER
    else:
        urgency = Urgency.SOON
    if source is GroupSource.NATIVE and patch:
        # A strategic merge patch leaves conditions of other types, such as DisruptionTarget, unchanged.
        patch = {_CONDITIONS: [each for each in wanted[_CONDITIONS] if each["type"] in NATIVE_CONDITIONS]}
    return StatusDifference(patch, urgency)


def _verdicts(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    conditions = status.get(_CONDITIONS) or ()
    return [tuple(each.get(name) for name in ("type", "status", "reason", "observedGeneration")) for each in conditions]


def _verdict(seen: SeenGroup, gang: Gang | None, tally: Tally) -> Verdict:
    if gang is not None and gang.group is not None:
        last_phase = seen.written.get("phase") or ""
        return evaluate_gang(gang, tally, gang.group.min_member, last_phase)
    if seen.problems:
        return Verdict(Phase.PENDING, INVALID_SPEC, problems_message(seen.problems))
    return Verdict(Phase.PENDING, "Waiting", "The PodGroup has not been read yet.")


def _bayplan_status(
    seen: SeenGroup, gang: Gang | None, counted: tuple[Tally, Verdict], now: datetime
) -> dict[str, Any]:
    tally, verdict = counted
    status = PodGroupStatus(
        observed_generation=seen.generation,
        phase=verdict.phase.value,
        members=tally.members,
        gated=tally.gated,
        scheduled=tally.bound,
        running=tally.running,
        succeeded=tally.succeeded,
        failed=tally.failed,
        run=None if gang is None else _run(gang),
        lost=() if gang is None else tuple(_lost(gang, seen.taken)),
        conditions=tuple(_bayplan_conditions(seen, gang, verdict, now)),
        nominated_domain=_cut(gang.reservation) or None if gang is not None else None,
        new_nodes=tuple(HelpfulNodes(node=each.node, count=each.count) for each in _helpful(seen)),
        victims=() if gang is None else tuple(_victims(gang)),
        victims_of_other_namespaces=None if gang is None else _other_victims(gang) or None,
    )
    fields = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields |= _start(seen, gang)
    attempt = seen.written.get(_LAST_ATTEMPT)
    if gang is not None and gang.last_attempt is not None:
        attempt = format_time(gang.last_attempt)
    if attempt:
        fields[_LAST_ATTEMPT] = attempt
    return fields


def _bayplan_conditions(seen: SeenGroup, gang: Gang | None, verdict: Verdict, now: datetime) -> Sequence[Condition]:
    accepted = ConditionUpdate("Accepted", "True", "Valid", "The spec is valid.")
    if seen.warnings:
        warnings = problems_message(seen.warnings, "warnings")
        accepted = ConditionUpdate("Accepted", "True", WITH_WARNINGS, f"The spec is valid, but: {warnings}.")
    if seen.problems:
        accepted = ConditionUpdate("Accepted", "False", INVALID_SPEC, problems_message(seen.problems))
    is_scheduled: ConditionStatus = "True" if verdict.is_scheduled else "False"
    message = verdict.message
    if _helpful(seen) and seen.new_nodes is not None:
        message = f"{message.rstrip('.')}. {seen.new_nodes.text}."
    conditions: Sequence[Condition] = read_conditions(seen.written)
    updates = [accepted, ConditionUpdate("Scheduled", is_scheduled, verdict.reason, message)]
    healing = healing_condition(gang, conditions, seen.taken)
    for update in (*updates, healing) if healing is not None else updates:
        conditions = set_condition(conditions, update, seen.generation, now)
    return conditions


def _helpful(seen: SeenGroup) -> Sequence[HelpfulNode]:
    return () if seen.new_nodes is None else seen.new_nodes.helpful[:MAX_NEW_NODES]


def _scheduler_plugins_status(seen: SeenGroup, gang: Gang | None, counted: tuple[Tally, Verdict]) -> dict[str, Any]:
    tally, verdict = counted
    fields: dict[str, Any] = {
        "phase": _scheduler_plugins_phase(verdict),
        "running": tally.running,
        "succeeded": tally.succeeded,
        "failed": tally.failed,
    }
    if "scheduled" in seen.written:
        # Older definitions have this field.
        fields["scheduled"] = tally.bound
    occupied_by = _owners(gang)
    if not occupied_by and verdict.phase is Phase.FINISHED:
        occupied_by = seen.written.get("occupiedBy") or ""
    if occupied_by:
        fields["occupiedBy"] = occupied_by
    return fields | _start(seen, gang)


def _scheduler_plugins_phase(verdict: Verdict) -> str:
    """Return one of that API's six phases, which lack ``Scheduled`` and have ``Unknown`` for a partial gang."""
    if verdict.phase is Phase.SCHEDULED:
        return Phase.SCHEDULING.value
    if verdict.phase is Phase.SCHEDULING and verdict.is_partial and verdict.is_failure:
        return _UNKNOWN
    return verdict.phase.value


def _volcano_status(seen: SeenGroup, tally: Tally, verdict: Verdict, now: datetime) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "phase": _volcano_phase(verdict),
        "running": tally.running,
        "succeeded": tally.succeeded,
        "failed": tally.failed,
    }
    written = seen.written.get(_CONDITIONS) or []
    if verdict.is_scheduled:
        fields[_CONDITIONS] = _volcano_conditions(written, "Scheduled", "Scheduled", verdict.message, now)
    elif verdict.is_failure or verdict.reason == INVALID_SPEC:
        fields[_CONDITIONS] = _volcano_conditions(written, _UNSCHEDULABLE, verdict.reason, verdict.message, now)
    elif written:
        fields[_CONDITIONS] = written
    return fields


def _volcano_phase(verdict: Verdict) -> str:
    """Return one of that API's five phases.

    A group that can be scheduled is ``Inqueue``, for which Volcano's controllers wait before they create pods; its
    scheduler writes ``Pending`` until there are resources, which here is a matter of the gang's attempts.
    """
    if verdict.reason == INVALID_SPEC:
        return Phase.PENDING.value
    match verdict.phase:
        case Phase.SCHEDULED | Phase.RUNNING:
            return Phase.RUNNING.value
        case Phase.FINISHED | Phase.FAILED:
            return "Completed" if verdict.phase is Phase.FINISHED else _UNKNOWN
        case _:
            return _UNKNOWN if verdict.is_partial and verdict.is_failure else "Inqueue"


def _volcano_conditions(
    written: list[dict[str, Any]], kind: str, reason: str, message: str, now: datetime
) -> list[dict[str, Any]]:
    """Return the only condition; its status is always True, and its type is that of success or failure."""
    old = next((each for each in written if each.get("type") == kind), {})
    since = old.get("lastTransitionTime") or format_time(now.replace(microsecond=0))
    return [{"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}]


def _native_status(seen: SeenGroup, gang: Gang | None, verdict: Verdict, now: datetime) -> dict[str, Any]:
    """Return the condition of the version that is read.

    As in kube-scheduler, True stays if members are lost. In the older version it becomes False when a later attempt
    fails; in the newer one it never does, and there is no condition before the first attempt.
    """
    rules = NATIVE_VERSIONS[seen.version or NEWEST_VERSIONS[GroupSource.NATIVE]]
    conditions = read_conditions(seen.written)
    current = find_condition(conditions, rules.condition)
    stays_true = current is not None and current.status == "True"
    if rules.keeps_scheduled:
        stays_true = stays_true or not (verdict.is_scheduled or verdict.is_failure or verdict.reason == INVALID_SPEC)
    else:
        stays_true = stays_true and not (verdict.is_scheduled or verdict.is_failure)
    if stays_true:
        return {_CONDITIONS: list(seen.written[_CONDITIONS])} if _CONDITIONS in seen.written else {}
    update = _native_update(rules, gang, verdict)
    new = set_condition(conditions, update, seen.generation, now)
    return {_CONDITIONS: [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in new]}


def _native_update(rules: NativeVersion[Any], gang: Gang | None, verdict: Verdict) -> ConditionUpdate:
    if verdict.is_scheduled:
        return ConditionUpdate(rules.condition, "True", "Scheduled", "" if rules.keeps_scheduled else verdict.message)
    is_error = verdict.reason == _SCHEDULER_ERROR or (rules.keeps_scheduled and verdict.reason == INVALID_SPEC)
    message = verdict.message
    if rules.keeps_scheduled and not is_error and gang is not None and gang.outcome is not None and gang.outcome.quorum:
        message = f"{gang.outcome.quorum}{_QUORUM_ENDS}{message}"
    return ConditionUpdate(rules.condition, "False", _SCHEDULER_ERROR if is_error else "Unschedulable", message)


def without_quorum(message: str) -> str:
    """Return the message of a condition without the part that is in kube-scheduler's words."""
    return message.partition(_QUORUM_ENDS)[2] if message.startswith(QUORUM_BEGINNINGS) else message


def _start(seen: SeenGroup, gang: Gang | None) -> dict[str, str]:
    """Return when scheduling started; a written time stays until scheduling starts again."""
    written = seen.written.get("scheduleStartTime")
    if gang is not None and gang.first_attempt is not None and not (seen.keeps_start and written):
        written = format_time(gang.first_attempt)
    return {"scheduleStartTime": written} if written else {}


def _run(gang: Gang) -> GroupRunStatus | None:
    record = gang.run_record
    if record is None:
        return None
    controllers = record.controllers[:MAX_RUN_CONTROLLERS]
    return GroupRunStatus(controllers=controllers, succeeded=record.succeeded, since=record.since)


def _lost(gang: Gang, taken: Collection[str]) -> list[LostMemberStatus]:
    found = []
    for lost in list(gang.lost_members.values())[:MAX_LOST_MEMBERS]:
        replacement = gang.pods.get(lost.replacement)
        found.append(
            LostMemberStatus(
                name=lost.pod.metadata.name,
                node=lost.node_name,
                held=lost.has_room and lost.pod.metadata.uid not in taken,
                until=lost.until,
                replacement=None if replacement is None else replacement.metadata.name,
                index=lost.index or None,
            )
        )
    return found


def healing_condition(
    gang: Gang | None, written: Sequence[Condition], taken: Collection[str] = ()
) -> ConditionUpdate | None:
    """Return the condition Healing; None if no member was ever lost, or if the last one stays as written."""
    if gang is not None and gang.lost_members:
        held = [lost for uid, lost in gang.lost_members.items() if lost.has_room and uid not in taken]
        others = [lost.pod.metadata.name for lost in gang.lost_members.values() if not lost.has_room]
        theirs = [lost.pod.metadata.name for uid, lost in gang.lost_members.items() if lost.has_room and uid in taken]
        words = [held_words(lost) for lost in held[:_NAMED]]
        if len(held) > _NAMED:
            words.append(f"room is held for {len(held) - _NAMED} more")
        if others:
            words.append(f"no room is held for {', '.join(others[:_NAMED])}")
        if theirs:
            words.append(f"pods of higher priority have taken the room of {', '.join(theirs[:_NAMED])}")
        message = f"Members were lost: {'; '.join(words)}."
        return ConditionUpdate("Healing", "True", "RoomHeld" if held else "MembersLost", message)
    if gang is not None and gang.healing is not None:
        return ConditionUpdate("Healing", "False", gang.healing.reason, f"{capitalized(gang.healing.message)}.")
    last = find_condition(written, "Healing")
    if last is not None and last.status == "True":
        return ConditionUpdate("Healing", "False", "HoldEnded", "The operator was restarted.")
    return None


def held_words(lost: LostMember) -> str:
    """Return for which pod room is held, where, and until when if that is known."""
    until = f" until {format_time(lost.until.replace(microsecond=0))}" if lost.until is not None else ""
    return f"room on {lost.node_name} is held for {lost.pod.key}{until}"


def _victims(gang: Gang) -> list[PodReference]:
    """Return the victims in the group's own namespace: the names of other users' pods are not shown to its users."""
    own = [each for each in gang.victims if each[0] == gang.key.namespace]
    return [PodReference(namespace=namespace, name=name) for namespace, name in own[:MAX_VICTIMS]]


def _other_victims(gang: Gang) -> int:
    return sum(namespace != gang.key.namespace for namespace, _ in gang.victims)


def _owners(gang: Gang | None) -> str:
    """Return the owners of all members as ``namespace/name``; the owner of one member alone would change over time."""
    if gang is None:
        return ""
    names = {owner.name for pod in gang.pods.values() for owner in pod.metadata.owner_references}
    return ",".join(f"{gang.key.namespace}/{name}" for name in sorted(names)[:_MAX_OWNERS])


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_DOMAIN_LENGTH else text[: _MAX_DOMAIN_LENGTH - 4] + " ..."


_SCHEDULED, _FAILED, _INVALID = "Scheduled", "FailedScheduling", "InvalidSpec"
_OWN_REASONS = frozenset({"TimedOut", "Preempting"})
_NORMAL = frozenset({_SCHEDULED, "Preempting"})
_SCHEDULED_PHASES = frozenset({Phase.SCHEDULED, Phase.RUNNING, Phase.FINISHED})


class RecordedEvent(Struct, frozen=True):
    """Reason and message of the last event of a group."""

    reason: str
    note: str


def recorded_event(status: Mapping[str, Any]) -> RecordedEvent | None:
    """Return the last event that a process has recorded according to the status; None for none."""
    for condition in read_conditions(status):
        if condition.type == "Scheduled" or condition.type in NATIVE_CONDITIONS:
            message = without_quorum(condition.message)
            if condition.status == "True":
                return RecordedEvent(_SCHEDULED, message)
            return _failure_event(condition.reason, message)
        if condition.type == _UNSCHEDULABLE:
            return _failure_event(condition.reason, condition.message)
    return RecordedEvent(_SCHEDULED, "") if status.get("phase") in _SCHEDULED_PHASES else None


def _failure_event(reason: str, message: str) -> RecordedEvent:
    return RecordedEvent(reason if reason in _OWN_REASONS or reason == _INVALID else _FAILED, message)


def current_event(verdict: Verdict, last: RecordedEvent | None) -> RecordedEvent | None:
    """Return the last event, or None if it is Scheduled and the group is not scheduled any more."""
    is_outdated = last is not None and last.reason == _SCHEDULED and not verdict.is_scheduled
    return None if is_outdated else last


def group_event(group: ObjectReference, verdict: Verdict, last: RecordedEvent | None) -> Event | None:
    """Return the event for a verdict; None if it equals the last one."""
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


def healing_event(group: ObjectReference, outcome: HealingOutcome) -> Event:
    kind = "Warning" if outcome.reason == "HoldExpired" else "Normal"
    return Event(group, kind, outcome.reason, "Healing", f"{capitalized(outcome.message)}.")


_PLURAL = "podgroups"


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """Other processes that write statuses of PodGroups; they communicate only through the objects.

    Only one process writes the status of a group if several processes serve different profiles, because only the
    process whose queue holds the members has their counts and the reasons why they wait.

    Attributes:
        status_of: Returns the status of an object as last received; None for an unknown object.
        serves: Returns whether this process serves a scheduler name; None if no process does.
    """

    status_of: Callable[[GroupKey], Mapping[str, Any] | None]
    serves: Callable[[str], bool | None]

    def write(self, gang: Gang | None) -> bool:
        """Return whether another process writes the status of a gang.

        The first schedulerName of its members, in alphabetical order, that any process serves decides. If there is
        none, every process writes the status, since all compute the same.
        """
        names = set() if gang is None else {pod.spec.scheduler_name for pod in gang.pods.values()}
        served = [self.serves(name) for name in sorted(names)]
        return next((not is_here for is_here in served if is_here is not None), False)


@dataclass(frozen=True, slots=True)
class GroupStatusWrite:
    """Write of a status.

    Attributes:
        make: Returns the patch; called for each attempt to send it. An empty patch is not sent.
        done: Called with the result: None for success, or the error after which the write was given up.
        written: Returns the status to which the patch applies.
    """

    key: GroupKey
    uid: str
    make: Callable[[], Mapping[str, Any]]
    done: Callable[[Exception | None], None]
    version: str = ""
    written: Callable[[], Mapping[str, Any]] = dict


class GroupStatusWrites:
    """Implementation of :class:`bayplan.gangs.group_status_controller.GroupStatusWriter`."""

    def __init__(self, connection: ApiConnection, dispatcher: ApiDispatcher, timeout: float = 10.0) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._timeout = timeout

    def write(self, write: GroupStatusWrite) -> None:
        """Queue a write; the dispatcher retries it while the API server is unavailable."""
        self._dispatcher.submit(_QueuedStatus(self._connection, write, self._timeout))


class _QueuedStatus(Write):
    """Status write in the dispatcher's queue."""

    __slots__ = ("_connection", "_timeout", "_write")

    def __init__(self, connection: ApiConnection, write: GroupStatusWrite, timeout: float) -> None:
        key = write.key
        super().__init__((f"PodGroup.{key.source}", key.namespace, key.name, write.uid), Rank.PATCH, None)
        self._connection = connection
        self._write = write
        self._timeout = timeout

    async def carry_out(self) -> None:
        """Send the patch unless it is empty.

        With the UID the API server rejects the patch if the object was recreated. Volcano's definition has no
        subresource, so its status is written to the object itself. In a patch of the status of other custom resources
        the UID has no effect, so the status, of which no other controller owns fields, is replaced.
        """
        patch = self._write.make()
        if not patch:
            return
        key = self._write.key
        resource = ObjectPath(
            key.source.value, self._write.version or NEWEST_VERSIONS[key.source], _PLURAL, key.name, key.namespace
        )
        is_native = key.source is GroupSource.NATIVE
        if not is_native and key.source is not GroupSource.VOLCANO:
            status = {**self._write.written(), **patch}
            present = {name: value for name, value in status.items() if value is not None}
            await replace_status(self._connection, resource, self._write.uid, present)
            return
        subresource = "/status" if is_native else ""
        await self._connection.request(
            ApiRequest(
                "PATCH",
                f"{resource.path}{subresource}",
                msgspec.json.encode({"metadata": {"uid": self._write.uid}, "status": patch}),
                content_type=STRATEGIC_MERGE_PATCH if is_native else MERGE_PATCH,
                timeout=self._timeout,
                accept=METADATA_ONLY,
            )
        )

    def ended(self, error: Exception | None) -> None:
        self._write.done(error)
