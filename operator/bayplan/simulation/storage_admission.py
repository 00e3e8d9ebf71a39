"""Admission of hand-written storage objects, and of the objects around pods.

Sets namespaces, UIDs and defaults, and rejects invalid quantities.

Follows Kubernetes v1.37.1: ``pkg/apis/storage/v1/defaults.go`` (binding mode), the admission plugin DefaultStorageClass
(``pkg/volume/util/storageclass.go`` chooses among several defaults), and the phase that the volume controller sets.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from scheduler_core.errors import ConfigError, Problem, QuantityError, SelectorError
from scheduler_core.feeds.workload_feed import PodSurrounding
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.pod import Quantities
from scheduler_core.model.quantity import nano
from scheduler_core.model.selectors import compile_label_selector
from scheduler_core.model.storage import (
    AVAILABLE,
    BETA_STORAGE_CLASS,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumePhase,
)
from scheduler_core.model.workloads import Namespace

DEFAULT_NAMESPACE = "default"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_UID_SPACE = uuid.UUID("6f1a1b0e-3f0a-5b7e-9f0c-0d6e0b6d5c11")

_M = TypeVar("_M", bound=ObjectMeta)


class WrittenStorageClass(StorageClass, gc=False, frozen=True, rename="camel"):
    """StorageClass with its annotations, one of which makes it the default; the scheduler does not read them."""

    metadata: AnnotatedMeta


def uid_of(kind: str, namespace: str, name: str) -> str:
    """Return a UID computed from the name, so that the same files give the same result."""
    return str(uuid.uuid5(_UID_SPACE, f"{kind}/{namespace}/{name}"))


def default_class(classes: Iterable[StorageClass]) -> str | None:
    """Return the default class: of several that are marked the newest, and of equally old ones the first by name."""
    marked = [each for each in classes if isinstance(each, WrittenStorageClass) and _is_marked(each)]
    if not marked:
        return None
    return min(marked, key=lambda each: (-_created(each.metadata), each.metadata.name)).metadata.name


def admitted_storage(given: StorageObject, class_name: str | None) -> StorageObject:
    """Admit a storage object.

    Args:
        class_name: Name of the default StorageClass.

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
    names_class = claim.spec.storage_class_name is not None or BETA_STORAGE_CLASS in claim.metadata.annotations
    if names_class or class_name is None:
        return claim
    return replace(claim, spec=replace(claim.spec, storage_class_name=class_name))


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


def _is_marked(given: WrittenStorageClass) -> bool:
    return any(given.metadata.annotations.get(mark) == "true" for mark in _DEFAULT_CLASS)


def _created(metadata: ObjectMeta) -> float:
    created = metadata.creation_timestamp
    return -math.inf if created is None else created.timestamp()
