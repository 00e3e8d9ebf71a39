"""The status of a PodGroup in each of the three APIs, and which of its differences are worth a write.

Owns the fields. Must not know how a status is written, nor how a gang is judged. Why three kinds of difference: that a
group is placed must be seen at once, counts change with every pod, and the time of an attempt alone with every backoff.

Sources: bayplan.dev/v1alpha1, :mod:`bayplan.resources.pod_group`; scheduler-plugins v0.34.7,
``apis/scheduling/v1alpha1/types.go`` and ``pkg/controllers/podgroup_controller.go``; Kubernetes v1.36.3,
``pkg/scheduler/schedule_one_podgroup.go`` (``updatePodGroupCondition``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any

from msgspec import Struct

from bayplan.gangs.group_verdict import Phase, Tally, Verdict, judge
from bayplan.reconcile.status import problems_message, read_conditions
from bayplan.resources.conditions import Condition, ConditionStatus, ConditionUpdate, find_condition, set_condition
from bayplan.resources.pod_group import PodGroupStatus, PodReference
from bayplan.resources.resource_model import format_time
from scheduler_core.errors import Problem
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.queueing.gang import Gang

MAX_VICTIMS = 256
_MAX_DOMAIN_LENGTH = 1024
_MAX_OWNERS = 16
NATIVE_CONDITION = "PodGroupScheduled"

_UNKNOWN = "Unknown"
_NO_MEMBERS = Tally({}, 0, 0, 0, 0, 0, 0)
_FIELDS: Mapping[GroupSource, frozenset[str]] = {
    GroupSource.BAYPLAN: frozenset(field.alias or name for name, field in PodGroupStatus.model_fields.items()),
    GroupSource.SCHEDULER_PLUGINS: frozenset(
        {"phase", "occupiedBy", "running", "succeeded", "failed", "scheduleStartTime", "scheduled"}
    ),
    GroupSource.NATIVE: frozenset({"conditions"}),
}
_AT_ONCE = frozenset({"phase", "observedGeneration", "nominatedDomain", "victims"})
_CONDITIONS = "conditions"
_LAST_ATTEMPT = "lastAttemptTime"


class SeenGroup(Struct, frozen=True):
    """A PodGroup object, as far as its status is concerned.

    Attributes:
        key: Which one.
        generation: Its ``metadata.generation``.
        written: Its status as it is.
        problems: What is wrong with its spec.
        keeps_start: Whether the start of its scheduling stays as it is written: it was tried before this process began.
    """

    key: GroupKey
    generation: int
    written: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()
    keeps_start: bool = False


class GroupStatus(Struct, frozen=True):
    """What is to be told of a group.

    Attributes:
        verdict: How it was judged.
        fields: The status in plain JSON types.
    """

    verdict: Verdict
    fields: dict[str, Any]


class Urgency(IntEnum):
    """When a difference is written."""

    NEVER = 0
    """There is none."""
    AT_LEISURE = 1
    """Only the time of the last attempt differs."""
    SOON = 2
    """Counts or words differ."""
    AT_ONCE = 3
    """The phase, a condition or its reason differs."""


class StatusDifference(Struct, frozen=True):
    """How a status differs from what is written.

    Attributes:
        patch: A merge patch over the status (a strategic one for the native API); empty when nothing differs.
        urgency: When it is written.
    """

    patch: dict[str, Any]
    urgency: Urgency


def group_status(seen: SeenGroup, gang: Gang | None, now: datetime) -> GroupStatus:
    """Give the status of a PodGroup.

    Args:
        seen: The object.
        gang: What the scheduler knows of it; None when it knows nothing.
        now: The present time, with its zone.

    Returns:
        The status. Fields of others are left out of it.
    """
    tally = _NO_MEMBERS if gang is None else Tally.of(gang)
    verdict = _verdict(seen, gang, tally)
    match seen.key.source:
        case GroupSource.BAYPLAN:
            fields = _bayplan_status(seen, gang, (tally, verdict), now)
        case GroupSource.SCHEDULER_PLUGINS:
            fields = _scheduler_plugins_status(seen, gang, (tally, verdict))
        case GroupSource.NATIVE:
            fields = _native_status(seen, verdict, now)
    return GroupStatus(verdict, fields)


def status_difference(source: GroupSource, written: Mapping[str, Any], wanted: Mapping[str, Any]) -> StatusDifference:
    """Compare a status with what is written.

    Args:
        source: The API of the group.
        written: The status as it is; fields of others are left alone.
        wanted: The status as it should be.

    Returns:
        The difference; fields that are to go are None in its patch.
    """
    patch: dict[str, Any] = {name: value for name, value in wanted.items() if written.get(name) != value}
    patch |= {name: None for name in written if name in _FIELDS[source] and name not in wanted}
    if not patch:
        urgency = Urgency.NEVER
    elif any(name in _AT_ONCE for name in patch) or _verdicts(written) != _verdicts(wanted):
        urgency = Urgency.AT_ONCE
    elif patch.keys() == {_LAST_ATTEMPT}:
        urgency = Urgency.AT_LEISURE
    else:
        urgency = Urgency.SOON
    if source is GroupSource.NATIVE and patch:
        # A strategic merge keeps conditions of other types, such as DisruptionTarget.
        patch = {_CONDITIONS: [each for each in wanted[_CONDITIONS] if each["type"] == NATIVE_CONDITION]}
    return StatusDifference(patch, urgency)


def _verdicts(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    conditions = status.get(_CONDITIONS) or ()
    return [tuple(each.get(name) for name in ("type", "status", "reason", "observedGeneration")) for each in conditions]


def _verdict(seen: SeenGroup, gang: Gang | None, tally: Tally) -> Verdict:
    if gang is not None and gang.group is not None:
        last_phase = seen.written.get("phase") or ""
        return judge(gang, tally, gang.group.min_member, last_phase)
    if seen.problems:
        return Verdict(Phase.PENDING, "InvalidSpec", problems_message(seen.problems))
    return Verdict(Phase.PENDING, "Waiting", "The group has not been read yet.")


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
        conditions=tuple(_bayplan_conditions(seen, verdict, now)),
        nominated_domain=_cut(gang.reservation) or None if gang is not None else None,
        victims=() if gang is None else tuple(_victims(gang)),
    )
    fields = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields |= _start(seen, gang)
    attempt = seen.written.get(_LAST_ATTEMPT)
    if gang is not None and gang.last_attempt is not None:
        attempt = format_time(gang.last_attempt)
    if attempt:
        fields[_LAST_ATTEMPT] = attempt
    return fields


def _bayplan_conditions(seen: SeenGroup, verdict: Verdict, now: datetime) -> Sequence[Condition]:
    accepted = ConditionUpdate("Accepted", "True", "Valid", "The spec is valid.")
    if seen.problems:
        accepted = ConditionUpdate("Accepted", "False", "InvalidSpec", problems_message(seen.problems))
    is_scheduled: ConditionStatus = "True" if verdict.is_scheduled else "False"
    conditions: Sequence[Condition] = read_conditions(seen.written)
    for update in (accepted, ConditionUpdate("Scheduled", is_scheduled, verdict.reason, verdict.message)):
        conditions = set_condition(conditions, update, seen.generation, now)
    return conditions


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
    """One of that API's six phases: it has no ``Scheduled``, and ``Unknown`` for a gang that is placed in part."""
    if verdict.phase is Phase.SCHEDULED:
        return Phase.SCHEDULING.value
    if verdict.phase is Phase.SCHEDULING and verdict.is_partial and verdict.is_failure:
        return _UNKNOWN
    return verdict.phase.value


def _native_status(seen: SeenGroup, verdict: Verdict, now: datetime) -> dict[str, Any]:
    """The condition; True stays when members are lost, as in kube-scheduler, until an attempt to place others fails."""
    conditions = read_conditions(seen.written)
    told = find_condition(conditions, NATIVE_CONDITION)
    if told is not None and told.status == "True" and not (verdict.is_scheduled or verdict.is_failure):
        return {_CONDITIONS: list(seen.written[_CONDITIONS])}
    if verdict.is_scheduled:
        update = ConditionUpdate(NATIVE_CONDITION, "True", "Scheduled", verdict.message)
    else:
        reason = "SchedulerError" if verdict.reason == "SchedulerError" else "Unschedulable"
        update = ConditionUpdate(NATIVE_CONDITION, "False", reason, verdict.message)
    new = set_condition(conditions, update, seen.generation, now)
    return {_CONDITIONS: [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in new]}


def _start(seen: SeenGroup, gang: Gang | None) -> dict[str, str]:
    """When scheduling began; what is written stays until it begins anew."""
    written = seen.written.get("scheduleStartTime")
    if gang is not None and gang.first_attempt is not None and not (seen.keeps_start and written):
        written = format_time(gang.first_attempt)
    return {"scheduleStartTime": written} if written else {}


def _victims(gang: Gang) -> list[PodReference]:
    return [PodReference(namespace=namespace, name=name) for namespace, name in gang.victims[:MAX_VICTIMS]]


def _owners(gang: Gang | None) -> str:
    """Who made the members, as ``namespace/name``; of all members and not only of one, which may change."""
    if gang is None:
        return ""
    names = {owner.name for pod in gang.pods.values() for owner in pod.metadata.owner_references}
    return ",".join(f"{gang.key.namespace}/{name}" for name in sorted(names)[:_MAX_OWNERS])


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_DOMAIN_LENGTH else text[: _MAX_DOMAIN_LENGTH - 4] + " ..."
