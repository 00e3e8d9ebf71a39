"""The versions of Kubernetes' own PodGroups: how each is decoded and translated, in one table, newest first.

A spec with fields that this module does not support is invalid: its members are held back. A member must not be bound
because one of its group's constraints was overlooked.

Sources: kube-scheduler v1.37.1 and v1.36.3, ``pkg/scheduler/schedule_one_podgroup.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from bayplan.gangs.foreign_group_models import (
    CompositeSpec,
    NativeGroup,
    NativeSpec,
    NativeSpecV1Alpha2,
    NativeSpecV1Beta1,
)
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod import ResourceClaimReference
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, GroupTopology, PodGroup

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


class NativeVersion(Struct, Generic[S], frozen=True):
    """A version of the API.

    Attributes:
        keeps_scheduled: Whether that condition stays True once it is, and is absent before the first attempt.
    """

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
        are_trees_read: Whether CompositePodGroups are read; if not, a group with a parent is not supported.
        are_claims_read: Whether groups may have resource claims, in the versions of Kubernetes 1.37.

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
    """Translate a ``scheduling.k8s.io`` CompositePodGroup.

    Args:
        resource: The object. With the basic policy one child group is enough.

    Raises:
        ConfigError: It has a value of a wrong type.
        UnsupportedGroupError: It has a field, a policy or a constraint that is not supported.
    """
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
