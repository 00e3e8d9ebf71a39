"""PodGroups of three APIs as the core's one model of a group.

Owns what each field means. Must not know where objects come from, nor which of them are in force. What an API leaves
unsaid is what Bayplan's own API takes when it is left out: one member at a time is disrupted, smaller pods may pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.gangs.group_models import NativeGroup, SchedulerPluginsGroup
from bayplan.resources import pod_group as resources
from scheduler_core.errors import ConfigError, Problem, QuantityError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from scheduler_core.model.pod_requests import in_units
from scheduler_core.model.quantity import nano

_WHOLE_GROUP = "PodGroup"


def from_bayplan(shown: resources.PodGroup, priority: int | None) -> PodGroup:
    """Translate a ``bayplan.dev`` PodGroup.

    Args:
        shown: The object, judged already.
        priority: Value of its PriorityClass; None when it names none, or one that does not exist.

    Returns:
        The group.

    Raises:
        ConfigError: An amount cannot be read; the model refuses all such.
    """
    meta, spec = shown.metadata, shown.spec
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
    )


def from_scheduler_plugins(shown: SchedulerPluginsGroup) -> PodGroup:
    """Translate a ``scheduling.x-k8s.io`` PodGroup.

    That API bounds nothing: a minimum below 1 counts as 1, as a group of which none is needed is no gang; a timeout
    below 1 counts as none, where the reference would reject each member as soon as it is permitted to wait.

    Args:
        shown: The object.

    Returns:
        The group.

    Raises:
        ConfigError: An amount cannot be read.
    """
    spec = shown.spec
    timeout = spec.schedule_timeout_seconds or 0
    return PodGroup(
        key=_key(GroupSource.SCHEDULER_PLUGINS, shown.metadata),
        uid=shown.metadata.uid,
        min_member=max(1, spec.min_member),
        created=shown.metadata.creation_timestamp,
        generation=shown.metadata.generation,
        min_resources=_amounts(spec.min_resources or {}),
        schedule_timeout_seconds=float(timeout) if timeout > 0 else None,
    )


def from_native(shown: NativeGroup) -> PodGroup:
    """Translate a ``scheduling.k8s.io`` PodGroup.

    Args:
        shown: The object. Its basic policy asks for nothing together, so that one member is enough.

    Returns:
        The group.

    Raises:
        ConfigError: It has neither policy, or more constraints than the version that is known allows.
    """
    spec = shown.spec
    policy = spec.scheduling_policy
    problems = []
    if policy.gang is None and policy.basic is None:
        problems.append(
            Problem("spec.schedulingPolicy", "has no policy that Bayplan knows; set basic or gang, or upgrade Bayplan")
        )
    constraints = () if spec.scheduling_constraints is None else spec.scheduling_constraints.topology or ()
    if len(constraints) > 1:
        problems.append(Problem("spec.schedulingConstraints.topology", "may have one entry; remove the others"))
    if problems:
        raise ConfigError(problems)
    return PodGroup(
        key=_key(GroupSource.NATIVE, shown.metadata),
        uid=shown.metadata.uid,
        min_member=1 if policy.gang is None else max(1, policy.gang.min_count),
        created=shown.metadata.creation_timestamp,
        generation=shown.metadata.generation,
        priority=spec.priority,
        topology=GroupTopology(constraints[0].key) if constraints else None,
        disrupts_whole=spec.disruption_mode == _WHOLE_GROUP,
    )


def _key(source: GroupSource, metadata: ObjectMeta) -> GroupKey:
    return GroupKey(source, metadata.namespace, metadata.name)


def _amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """Amounts in the scheduler's units; resources that it does not count are left out."""
    amounts, problems = {}, []
    for name, quantity in quantities.items():
        try:
            amounts[name] = nano(quantity)
        except QuantityError as error:
            problems.append(Problem(f"spec.minResources.{name}", str(error)))
    if problems:
        raise ConfigError(problems)
    return in_units(amounts)
