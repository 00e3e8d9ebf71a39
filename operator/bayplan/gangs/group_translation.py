"""Translates PodGroups of Bayplan and of scheduler-plugins to the core's model of a group.

A field that an API does not have gets the default of Bayplan's own API: members are disrupted one at a time, and
smaller pods may be scheduled first. :mod:`bayplan.gangs.native_group_translation` translates those of Kubernetes
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from bayplan.gangs.foreign_group_models import SchedulerPluginsGroup
from bayplan.resources import pod_group as resources
from scheduler_core.errors import ConfigError, Problem, QuantityError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupRun, GroupSource, GroupTopology, PodGroup
from scheduler_core.model.pod_requests import in_units
from scheduler_core.model.quantity import nano


def from_bayplan(
    resource: resources.PodGroup, priority: int | None, status: Mapping[str, Any] | None = None
) -> PodGroup:
    """Translate a ``bayplan.dev`` PodGroup.

    Args:
        resource: The validated object, whose own status is not read.
        priority: Value of its PriorityClass; None if it names none or the class does not exist.
        status: Its status as received; None for none.

    Raises:
        ConfigError: An amount cannot be parsed; the model rejects such amounts before.
    """
    meta, spec = resource.metadata, resource.spec
    topology = spec.topology
    timeout = spec.schedule_timeout_seconds
    return PodGroup(
        key=GroupKey(GroupSource.BAYPLAN, meta.namespace, meta.name),
        uid=meta.uid,
        min_member=spec.min_member,
        created=meta.creation_timestamp,
        generation=meta.generation,
        min_resources=_amounts(spec.min_resources or {}),
        schedule_timeout_seconds=None if timeout is None else float(timeout),
        priority=priority,
        topology=None
        if topology is None
        else GroupTopology(topology.key, topology.levels, is_required=topology.mode == "Required"),
        disrupts_whole=spec.disruption == "Group",
        is_strict=spec.queueing == "Strict",
        run=recorded_run(status or {}),
        is_fresh=not status,
    )


def recorded_run(status: Mapping[str, Any]) -> GroupRun | None:
    """Return the record of its run in the status of a PodGroup; None for none, or for one that cannot be read.

    The API server validates statuses, so one that cannot be read comes from a file or a later version.
    """
    try:
        run = None if status.get("run") is None else resources.GroupRunStatus.model_validate(status["run"])
        since = None if run is None or run.since is None else _in_utc(run.since)
    except (ValidationError, ValueError, OverflowError):
        return None
    return None if run is None else GroupRun(run.controllers, run.succeeded, since)


def _in_utc(moment: datetime) -> datetime:
    """Return a time in UTC, in which it can be compared and written.

    Raises:
        ValueError: It has no time zone.
        OverflowError: It is before the year 1 or after the year 9999 in UTC, which the API server accepts.
    """
    if moment.tzinfo is None:
        raise ValueError("a time without a time zone")
    return moment.astimezone(UTC)


def from_scheduler_plugins(resource: SchedulerPluginsGroup) -> PodGroup:
    """Translate a ``scheduling.x-k8s.io`` PodGroup.

    That API has no limits: a minimum below 1 counts as 1, because a group that needs no member is not a gang; a timeout
    below 1 counts as none, whereas the reference would reject each member as soon as it waits at Permit.

    Raises:
        ConfigError: An amount cannot be parsed.
    """
    spec = resource.spec
    timeout = spec.schedule_timeout_seconds or 0
    return PodGroup(
        key=_key(GroupSource.SCHEDULER_PLUGINS, resource.metadata),
        uid=resource.metadata.uid,
        min_member=max(1, spec.min_member),
        created=resource.metadata.creation_timestamp,
        generation=resource.metadata.generation,
        min_resources=_amounts(spec.min_resources or {}),
        schedule_timeout_seconds=float(timeout) if timeout > 0 else None,
        is_fresh=not resource.status,
    )


def _key(source: GroupSource, metadata: ObjectMeta) -> GroupKey:
    return GroupKey(source, metadata.namespace, metadata.name)


def _amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """Return amounts in the scheduler's units, without resources that it does not count."""
    amounts, problems = {}, []
    for name, quantity in quantities.items():
        try:
            amounts[name] = nano(quantity)
        except QuantityError as error:
            problems.append(Problem(f"spec.minResources.{name}", str(error)))
    if problems:
        raise ConfigError(problems)
    return in_units(amounts)
