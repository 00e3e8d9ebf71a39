"""Admission of storage objects and of resource claims: what the API server's defaults and controllers would add."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.errors import ConfigError, Problem, QuantityError, SchedulerCoreError, SelectorError
from scheduler_core.feeds.object_feed import PodSurrounding
from scheduler_core.fit.claim_binding import with_class
from scheduler_core.model.devices import POD_CLAIM_NAME, ClaimMeta, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from scheduler_core.model.meta import ObjectMeta, OwnerReference
from scheduler_core.model.pod import Pod, PodResourceClaimStatus, Quantities, ResourceClaimReference
from scheduler_core.model.pod_requests import nano
from scheduler_core.model.selectors import compile_label_selector
from scheduler_core.model.storage import (
    AVAILABLE,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumePhase,
)
from scheduler_core.model.workloads import Namespace
from scheduler_core.snapshot.indexes.device_index import DeviceObject

DEFAULT_NAMESPACE = "default"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_UID_SPACE = uuid.UUID("6f1a1b0e-3f0a-5b7e-9f0c-0d6e0b6d5c11")

_M = TypeVar("_M", bound=ObjectMeta)


def uid_of(kind: str, namespace: str, name: str) -> str:
    """Return a UID computed from the name, so that the same files give the same result."""
    return str(uuid.uuid5(_UID_SPACE, f"{kind}/{namespace}/{name}"))


def admitted_storage(given: StorageObject, class_name: str | None) -> StorageObject:
    """Admit a storage object.

    Raises:
        ConfigError: A quantity or a selector is invalid.
    """
    match given:
        case PersistentVolume():
            _check("spec.capacity", given.spec.capacity)
            phase = given.status.phase or (AVAILABLE if given.spec.claim_ref is None else "Bound")
            return replace(given, metadata=_with_uid(given.metadata, "PersistentVolume"), status=VolumePhase(phase))
        case PersistentVolumeClaim():
            return _claim(given, class_name)
        case StorageClass():
            mode = given.volume_binding_mode or "Immediate"
            metadata = _with_uid(given.metadata, "StorageClass")
            return StorageClass(metadata, given.provisioner, mode, given.allowed_topologies)
        case CsiStorageCapacity():
            limits = {"capacity": given.capacity, "maximumVolumeSize": given.maximum_volume_size}
            for field, limit in limits.items():
                _check(field, {} if limit is None else {"": limit})
            return replace(given, metadata=_with_uid(_with_namespace(given.metadata), "CSIStorageCapacity"))
        case _:
            return given


def admitted_surrounding(given: PodSurrounding) -> PodSurrounding:
    """Admit an object that affects pods; a namespace is labelled with its name."""
    if isinstance(given, Namespace):
        labels = {**given.metadata.labels, _NAMESPACE_NAME: given.metadata.name}
        return Namespace(replace(given.metadata, labels=labels))
    metadata = _with_uid(_with_namespace(given.metadata), type(given).__name__)
    return replace(given, metadata=metadata)


def implied_namespaces(used: Iterable[str], known: Iterable[str]) -> list[Namespace]:
    """Return the namespaces of objects that are not in the files."""
    names = sorted(set(used) - set(known))
    return [Namespace(ObjectMeta(name, labels={_NAMESPACE_NAME: name})) for name in names]


def _claim(given: PersistentVolumeClaim, class_name: str | None) -> PersistentVolumeClaim:
    _check("spec.resources.requests", given.spec.resources.requests)
    if given.spec.selector is not None:
        try:
            compile_label_selector(given.spec.selector)
        except SelectorError as error:
            raise ConfigError([Problem("spec.selector", str(error))]) from error
    claim = replace(given, metadata=_with_uid(_with_namespace(given.metadata), "PersistentVolumeClaim"))
    return with_class(claim, class_name)


def _check(path: str, quantities: Quantities) -> None:
    for name, quantity in quantities.items():
        try:
            nano(quantity)
        except QuantityError as error:
            raise ConfigError([Problem(f"{path}[{name}]" if name else path, str(error))]) from error


def _with_namespace(metadata: _M) -> _M:
    return metadata if metadata.namespace else replace(metadata, namespace=DEFAULT_NAMESPACE)


def _with_uid(metadata: _M, kind: str) -> _M:
    return metadata if metadata.uid else replace(metadata, uid=uid_of(kind, metadata.namespace, metadata.name))


_SUFFIX = 5


def admitted_device(given: DeviceObject) -> DeviceObject:
    """Admit a claim, a class, a slice or a taint rule.

    Raises:
        ConfigError: A slice has an invalid quantity.
    """
    if isinstance(given, ResourceClaim):
        meta = given.metadata
        namespace = meta.namespace or DEFAULT_NAMESPACE
        uid = meta.uid or uid_of("ResourceClaim", namespace, meta.name)
        return replace(given, metadata=replace(meta, namespace=namespace, uid=uid))
    if isinstance(given, ResourceSlice):
        try:
            ClusterDevices.empty().inventory.put_slice(given)
        except SchedulerCoreError as error:
            raise ConfigError([Problem("spec", str(error))]) from error
    return given


def admitted_template(given: ResourceClaimTemplate) -> ResourceClaimTemplate:
    namespace = given.metadata.namespace or DEFAULT_NAMESPACE
    return replace(given, metadata=replace(given.metadata, namespace=namespace))


def with_claims_of_templates(
    pods: Sequence[Pod], claims: Iterable[ResourceClaim], templates: Iterable[ResourceClaimTemplate]
) -> tuple[list[Pod], list[ResourceClaim]]:
    """Create the claims of pods from templates.

    Args:
        claims: Admitted claims; one that a pod owns already is used.
        templates: Admitted templates; a pod whose template does not exist waits for it.

    Returns:
        The pods, with ``status.resourceClaimStatuses``, and the new claims.
    """
    by_key = {(each.metadata.namespace, each.metadata.name): each for each in templates}
    owned = {
        (owner.uid, each.metadata.annotations.get(POD_CLAIM_NAME)): each.metadata.name
        for each in claims
        for owner in each.metadata.owner_references
        if owner.controller
    }
    created: list[ResourceClaim] = []
    changed = [pod if pod.is_terminal else _with_claims(pod, by_key, owned, created) for pod in pods]
    return changed, created


def _with_claims(
    pod: Pod,
    templates: Mapping[tuple[str, str], ResourceClaimTemplate],
    owned: Mapping[tuple[str, str | None], str],
    created: list[ResourceClaim],
) -> Pod:
    statuses = list(pod.status.resource_claim_statuses)
    known = {each.name for each in statuses}
    for reference in pod.spec.resource_claims:
        template_name = reference.resource_claim_template_name
        if template_name is None or reference.name in known:
            continue
        name = owned.get((pod.metadata.uid, reference.name))
        if name is None:
            template = templates.get((pod.metadata.namespace, template_name))
            if template is None:
                continue
            claim = _claim_of(pod, reference, template)
            created.append(claim)
            name = claim.metadata.name
        statuses.append(PodResourceClaimStatus(reference.name, name))
    if len(statuses) == len(known):
        return pod
    return replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(statuses)))


def _claim_of(pod: Pod, reference: ResourceClaimReference, template: ResourceClaimTemplate) -> ResourceClaim:
    namespace, pod_name = pod.metadata.namespace, pod.metadata.name
    uid = uid_of("ResourceClaim", namespace, f"{pod.metadata.uid}/{reference.name}")
    metadata = ClaimMeta(
        name=f"{pod_name}-{reference.name}-{uid[:_SUFFIX]}",
        namespace=namespace,
        uid=uid,
        labels=template.spec.metadata.labels,
        annotations={**template.spec.metadata.annotations, POD_CLAIM_NAME: reference.name},
        owner_references=(OwnerReference("Pod", pod_name, pod.metadata.uid, "v1", controller=True),),
    )
    return ResourceClaim(metadata, template.spec.spec)
