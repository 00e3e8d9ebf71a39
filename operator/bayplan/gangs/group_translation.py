"""Translates PodGroups of all APIs to the core's model of a group.

A field that an API does not have gets the default of Bayplan's own API: members are disrupted one at a time, and
smaller pods may be scheduled first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct
from pydantic import ValidationError

from bayplan.resources import pod_group as resources
from scheduler_core.errors import ConfigError, Problem, QuantityError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod import Quantities, ResourceClaimReference
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupRun, GroupSource, GroupTopology, PodGroup
from scheduler_core.model.pod_requests import in_units, nano

log = logging.getLogger(__name__)


class SchedulerPluginsSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a ``scheduling.x-k8s.io/v1alpha1`` PodGroup.

    Attributes:
        min_member: 0 if not set.
        schedule_timeout_seconds: None if not set.
    """

    min_member: int = 0
    min_resources: Quantities | None = None
    schedule_timeout_seconds: int | None = None


class SchedulerPluginsGroup(Struct, frozen=True, rename="camel"):
    """A ``scheduling.x-k8s.io/v1alpha1`` PodGroup; ``status`` is stored as received."""

    metadata: ObjectMeta
    spec: SchedulerPluginsSpec = SchedulerPluginsSpec()
    status: dict[str, Any] = {}


class NativeGroup(Struct, frozen=True, rename="camel"):
    """A ``scheduling.k8s.io`` PodGroup or CompositePodGroup; ``spec`` and ``status`` are stored as received."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class _Strict(Struct, gc=False, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Part of a native spec; a field that is not known makes the object invalid."""


class Empty(_Strict, frozen=True):
    """Member of a union without fields."""


class GangPolicy(_Strict, frozen=True):
    """``schedulingPolicy.gang``."""

    min_count: int = 0


class SchedulingPolicy(_Strict, frozen=True):
    """``spec.schedulingPolicy``: exactly one of the fields is set.

    Attributes:
        basic: Members are scheduled one by one.
        gang: ``minCount`` members are scheduled together or none is.
    """

    basic: Empty | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(_Strict, frozen=True):
    """An entry of ``schedulingConstraints.topology``."""

    key: str = ""


class SchedulingConstraints(_Strict, frozen=True):
    """``spec.schedulingConstraints``."""

    topology: tuple[TopologyConstraint, ...] | None = None


class NativeSpec(_Strict, frozen=True):
    """Fields of ``spec`` that all versions have; admission has set ``priority`` from the PriorityClass."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None
    priority_class_name: str | None = None
    priority: int | None = None


class NativeSpecV1Alpha2(NativeSpec, frozen=True):
    """``spec`` in ``v1alpha2``; the template reference does not affect scheduling."""

    pod_group_template_ref: dict[str, Any] | None = None
    disruption_mode: Literal["Pod", "PodGroup"] | None = None


class DisruptionMode(_Strict, frozen=True):
    """``spec.disruptionMode`` in ``v1beta1``: exactly one of the fields is set.

    Attributes:
        single: Members are evicted one at a time.
        all: All members are evicted or none.
    """

    single: Empty | None = None
    all: Empty | None = None


class NativeSpecV1Beta1(NativeSpec, frozen=True):
    """``spec`` in ``v1beta1`` and ``v1alpha3``; the reference to the Workload does not affect scheduling."""

    workload_ref: dict[str, Any] | None = None
    disruption_mode: DisruptionMode | None = None
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None
    parent_composite_pod_group_name: str | None = None


class CompositeGangPolicy(_Strict, frozen=True):
    """``schedulingPolicy.gang`` of a CompositePodGroup."""

    min_group_count: int = 0


class CompositePolicy(_Strict, frozen=True):
    """``spec.schedulingPolicy`` of a CompositePodGroup: exactly one of the fields is set.

    Attributes:
        basic: Child groups are scheduled one by one.
        gang: ``minGroupCount`` child groups are scheduled together or none is.
    """

    basic: Empty | None = None
    gang: CompositeGangPolicy | None = None


class CompositeSpec(_Strict, frozen=True):
    """``spec`` of a ``v1alpha3`` CompositePodGroup; the reference to the Workload does not affect scheduling."""

    scheduling_policy: CompositePolicy = CompositePolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    workload_ref: dict[str, Any] | None = None
    disruption_mode: DisruptionMode | None = None
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None
    parent_composite_pod_group_name: str | None = None


def from_bayplan(
    resource: resources.PodGroup, priority: int | None, status: Mapping[str, Any] | None = None
) -> PodGroup:
    """Translate a ``bayplan.dev`` PodGroup.

    Args:
        resource: The validated object, whose own status is not read.
        priority: Value of its PriorityClass; None if it names none or the class does not exist.
        status: Its status as received; None for none.
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
        hold_seconds=float(resources.DEFAULT_HOLD_SECONDS if spec.healing is None else spec.healing.hold_seconds),
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


class VolcanoSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a ``scheduling.volcano.sh/v1beta1`` PodGroup.

    Attributes:
        min_task_member: Minimum of each task, which is not supported.
        network_topology: Constraint on HyperNodes, which is supported only if it is soft, and then ignored.
        sub_group_policy: Groups within the group, which are not supported.
    """

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    min_resources: Quantities | None = None
    priority_class_name: str = ""
    queue: str = ""
    network_topology: dict[str, Any] | None = None
    sub_group_policy: list[dict[str, Any]] | None = None


class VolcanoGroup(Struct, frozen=True, rename="camel"):
    """A ``scheduling.volcano.sh/v1beta1`` PodGroup; ``status`` is stored as received."""

    metadata: ObjectMeta
    spec: VolcanoSpec = VolcanoSpec()
    status: dict[str, Any] = {}


def from_volcano(resource: VolcanoGroup, priority_of: Callable[[str], int | None]) -> PodGroup:
    """Translate a ``scheduling.volcano.sh`` PodGroup; its queue is ignored, because Bayplan has no queues of its own.

    A minimum below 1 counts as 1, as in :func:`from_scheduler_plugins`.

    Args:
        priority_of: Returns the value of a PriorityClass; None if it does not exist.

    Raises:
        UnsupportedGroupError: It has a minimum for each task, subgroups, or a hard constraint on its topology.
    """
    spec, problems = resource.spec, []
    if spec.min_task_member:
        message = "a minimum for each task is not supported; remove it and set minMember to the sum of all pods"
        problems.append(Problem("spec.minTaskMember", message))
    if spec.network_topology and spec.network_topology.get("mode", "hard") != "soft":
        message = "HyperNodes are not supported; use a PodGroup of bayplan.dev with topology, or mode: soft"
        problems.append(Problem("spec.networkTopology", message))
    if spec.sub_group_policy:
        message = "subgroups are not supported; remove it, or use a CompositePodGroup of Kubernetes"
        problems.append(Problem("spec.subGroupPolicy", message))
    if problems:
        raise UnsupportedGroupError(problems)
    if spec.queue not in ("", "default"):
        text = "PodGroup %s/%s of Volcano: its queue %s is ignored; use Kueue for quotas"
        log.info(text, resource.metadata.namespace, resource.metadata.name, spec.queue)
    return PodGroup(
        key=_key(GroupSource.VOLCANO, resource.metadata),
        uid=resource.metadata.uid,
        min_member=max(1, spec.min_member),
        created=resource.metadata.creation_timestamp,
        # Its generation counts writes of the status too, because the definition has no status subresource.
        min_resources=_amounts(spec.min_resources or {}),
        priority=priority_of(spec.priority_class_name) if spec.priority_class_name else None,
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


_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<field>[^`]+)`(?: - at `\$\.?(?P<path>[^`]*)`)?")
_ANY_PROBLEM = re.compile(r"(?P<text>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_ONE_POLICY = "must set one of basic and gang; for other policies upgrade Bayplan"
_WHOLE_GROUP = "PodGroup"

S = TypeVar("S", bound=NativeSpec)


class UnsupportedGroupError(ConfigError):
    """A PodGroup that an API server admits and Bayplan cannot obey."""


class _Particulars(Struct, frozen=True):
    """What differs between versions; see the fields of :class:`scheduler_core.model.pod_group.PodGroup`."""

    priority: int | None
    disrupts_whole: bool
    preempts_in_domain: bool
    is_uniform: bool
    waits_for_gated: bool
    preemption_policy: str | None = None
    parent: str = ""


@dataclass(frozen=True, slots=True)
class NativeVersion(Generic[S]):
    """A version of the API; whether its condition stays True once it is, and is absent before the first attempt."""

    spec: type[S]
    read: Callable[[S, list[Problem]], _Particulars]
    condition: str
    keeps_scheduled: bool


_NO_TREES = (
    "groups of groups are not supported without Bayplan's feature gate CompositePodGroups: turn it on, create the "
    "PodGroup without it, or schedule the pods with kube-scheduler and its feature gate CompositePodGroup"
)


_NO_CLAIMS = (
    "resource claims of groups are not supported without Bayplan's feature gate DRAWorkloadResourceClaims: turn it on, "
    "remove them, or schedule the pods with kube-scheduler"
)
_CLAIM_FIELDS = {"name", "resourceClaimName", "resourceClaimTemplateName"}


def _v1beta1(spec: NativeSpecV1Beta1, problems: list[Problem]) -> _Particulars:
    mode = spec.disruption_mode
    if mode is not None and (mode.single is None) == (mode.all is None):
        problems.append(Problem("spec.disruptionMode", "must set one of single and all"))
    return _Particulars(
        # kube-scheduler takes 0 for an object that was stored before admission set priorities.
        priority=spec.priority or 0,
        disrupts_whole=mode is not None and mode.all is not None,
        preempts_in_domain=True,
        is_uniform=True,
        waits_for_gated=True,
        preemption_policy=spec.preemption_policy,
        parent=spec.parent_composite_pod_group_name or "",
    )


def _v1alpha2(spec: NativeSpecV1Alpha2, problems: list[Problem]) -> _Particulars:
    del problems
    return _Particulars(
        priority=spec.priority,
        disrupts_whole=spec.disruption_mode == _WHOLE_GROUP,
        preempts_in_domain=False,
        is_uniform=False,
        waits_for_gated=False,
    )


NATIVE_VERSIONS: Mapping[str, NativeVersion[Any]] = {
    "v1beta1": NativeVersion(NativeSpecV1Beta1, _v1beta1, "PodGroupInitiallyScheduled", keeps_scheduled=True),
    "v1alpha3": NativeVersion(NativeSpecV1Beta1, _v1beta1, "PodGroupInitiallyScheduled", keeps_scheduled=True),
    "v1alpha2": NativeVersion(NativeSpecV1Alpha2, _v1alpha2, "PodGroupScheduled", keeps_scheduled=False),
}
"""Versions that are read, newest first."""


COMPOSITE_VERSIONS = ("v1alpha3",)
"""Versions of CompositePodGroups that are read, newest first."""


def from_native(
    resource: NativeGroup, version: str, *, are_trees_read: bool = False, are_claims_read: bool = False
) -> PodGroup:
    """Translate a ``scheduling.k8s.io`` PodGroup.

    Args:
        resource: The object. With the basic policy one member is enough.

    Raises:
        ConfigError: It has a value of a wrong type.
        UnsupportedGroupError: It has a field, a policy or a constraint that is not supported.
    """
    rules, metadata = NATIVE_VERSIONS[version], resource.metadata
    try:
        spec = convert(resource.spec, rules.spec)
    except msgspec.ValidationError as error:
        raise _decoding_error(error) from error
    problems: list[Problem] = []
    policy, constraints = spec.scheduling_policy, _topology(spec, problems)
    if (policy.gang is None) == (policy.basic is None):
        problems.append(Problem("spec.schedulingPolicy", _ONE_POLICY))
    claims: tuple[ResourceClaimReference, ...] = ()
    if spec.resource_claims and are_claims_read and isinstance(spec, NativeSpecV1Beta1):
        claims = _claims(spec.resource_claims, problems)
    elif spec.resource_claims:
        problems.append(Problem("spec.resourceClaims", _NO_CLAIMS))
    particulars = rules.read(spec, problems)
    if particulars.parent and not are_trees_read:
        problems.append(Problem("spec.parentCompositePodGroupName", _NO_TREES))
    if problems:
        raise UnsupportedGroupError(problems)
    return PodGroup(
        key=GroupKey(GroupSource.NATIVE, metadata.namespace, metadata.name),
        uid=metadata.uid,
        min_member=1 if policy.gang is None else max(1, policy.gang.min_count),
        created=metadata.creation_timestamp,
        generation=metadata.generation,
        topology=constraints,
        version=version,
        resource_claims=claims,
        is_basic=policy.gang is None,
        is_fresh=not resource.status,
        **msgspec.structs.asdict(particulars),
    )


def from_composite(resource: NativeGroup, version: str) -> CompositePodGroup:
    """Translate a ``scheduling.k8s.io`` CompositePodGroup; with the basic policy one child group is enough."""
    metadata = resource.metadata
    try:
        spec = convert(resource.spec, CompositeSpec)
    except msgspec.ValidationError as error:
        raise _decoding_error(error) from error
    problems: list[Problem] = []
    policy, constraints, mode = spec.scheduling_policy, _topology(spec, problems), spec.disruption_mode
    if (policy.gang is None) == (policy.basic is None):
        problems.append(Problem("spec.schedulingPolicy", _ONE_POLICY))
    if mode is not None and (mode.single is None) == (mode.all is None):
        problems.append(Problem("spec.disruptionMode", "must set one of single and all"))
    if problems:
        raise UnsupportedGroupError(problems)
    return CompositePodGroup(
        key=GroupKey(GroupSource.COMPOSITE, metadata.namespace, metadata.name),
        uid=metadata.uid,
        min_groups=1 if policy.gang is None else max(1, policy.gang.min_group_count),
        parent=spec.parent_composite_pod_group_name or "",
        generation=metadata.generation,
        priority=spec.priority or 0,
        preemption_policy=spec.preemption_policy,
        topology=constraints,
        disrupts_whole=mode is not None and mode.all is not None,
        version=version,
    )


def _claims(entries: Sequence[Mapping[str, Any]], problems: list[Problem]) -> tuple[ResourceClaimReference, ...]:
    found = []
    for index, entry in enumerate(entries):
        path, unknown = f"spec.resourceClaims[{index}]", entry.keys() - _CLAIM_FIELDS
        if unknown:
            problems.append(
                Problem(path, f"unknown field {min(unknown)}, which may constrain the group; upgrade Bayplan")
            )
            continue
        try:
            reference = convert(entry, ResourceClaimReference)
        except msgspec.ValidationError as error:
            problems.append(Problem(path, f"{error}; correct it"))
            continue
        if (reference.resource_claim_name is None) == (reference.resource_claim_template_name is None):
            problems.append(Problem(path, "must set one of resourceClaimName and resourceClaimTemplateName"))
        found.append(reference)
    return tuple(found)


def _topology(spec: NativeSpec | CompositeSpec, problems: list[Problem]) -> GroupTopology | None:
    constraints = () if spec.scheduling_constraints is None else spec.scheduling_constraints.topology or ()
    if len(constraints) > 1:
        problems.append(Problem("spec.schedulingConstraints.topology", "must have at most 1 item"))
    if constraints and not constraints[0].key:
        problems.append(Problem("spec.schedulingConstraints.topology[0].key", "must be set"))
    return GroupTopology(constraints[0].key, prefers_allocated=True) if constraints else None


def _decoding_error(error: msgspec.ValidationError) -> ConfigError:
    unknown = _UNKNOWN_FIELD.fullmatch(str(error))
    if unknown is not None:
        path = ".".join(filter(None, ("spec", unknown["path"], unknown["field"])))
        message = "unknown field, which may constrain the group; upgrade Bayplan or remove the field"
        return UnsupportedGroupError([Problem(path, message)])
    match = _ANY_PROBLEM.fullmatch(str(error))
    assert match is not None
    return ConfigError([Problem(".".join(filter(None, ("spec", match["path"]))), f"{match['text']}; correct it")])
