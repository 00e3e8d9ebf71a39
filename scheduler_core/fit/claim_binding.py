"""Volumes of claims that do not wait for a pod, as the PersistentVolume controller and provisioners choose them.

A request's claims are bound like this before its pods are placed, if their class has the mode Immediate. The claims of
`bayplan simulate` are, too. In which zone a provisioner creates a volume is not known: a new volume is accessible from
all nodes that the class allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod_requests import nano
from scheduler_core.model.selectors import IN, compile_label_selector
from scheduler_core.model.storage import (
    AVAILABLE,
    BETA_STORAGE_CLASS,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    LOST,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    ClaimPointer,
    CsiVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    StorageObject,
    VolumeNodeAffinity,
    VolumePhase,
    default_class,
)
from scheduler_core.snapshot.indexes.storage_index import StorageIndex, object_key
from scheduler_core.snapshot.overlay import ColumnsOverlay

_BOUND = VolumePhase("Bound")
_IN_TREE = "kubernetes.io/"


def add_storage(overlay: ColumnsOverlay, storage: StorageIndex, added: Iterable[StorageObject]) -> None:
    """Add storage objects as if they were created, and bind claims that do not wait for a pod; known ones stay."""
    claims = list[PersistentVolumeClaim]()
    for each in added:
        if isinstance(each, PersistentVolumeClaim):
            claims.append(each)
        elif _is_new(each, storage):
            overlay.assign_storage(None, each)
    usual_class = default_class(storage.classes)
    for given in claims:
        if not _is_new(given, storage):
            continue
        claim = with_class(given, usual_class)
        found = _volume_at_once(claim, storage)
        if found is None:
            overlay.assign_storage(None, claim)
            continue
        overlay.assign_storage(storage.volumes.get(found.metadata.name), reserved(found, claim))
        overlay.assign_storage(None, bound(claim, found.metadata.name))


def storage_notices(storage: StorageIndex, added: Iterable[StorageObject]) -> Iterator[str]:
    """Yield what is not known about the volumes of claims that do not exist."""
    classes = {each.metadata.name: each for each in storage.classes}
    claims = list[PersistentVolumeClaim]()
    for each in added:
        if isinstance(each, PersistentVolumeClaim) and _is_new(each, storage):
            claims.append(each)
        elif isinstance(each, StorageClass):
            classes.setdefault(each.metadata.name, each)
    usual_class = default_class(classes.values())
    names = [with_class(claim, usual_class).class_name for claim in claims]
    for name in sorted(set(names)):
        of_class, count = classes.get(name), names.count(name)
        subject = "1 PersistentVolumeClaim" if count == 1 else f"{count} PersistentVolumeClaims"
        if of_class is None:
            why = f'there is no StorageClass "{name}"' if name else "no storage class is named, and none is the default"
            yield f"{subject}: {why}; only existing PersistentVolumes can be bound"
        elif not _waits(of_class) and of_class.provisions:
            yield (
                f"{subject} of StorageClass {name}: the volumes are created before the pods are scheduled "
                "(volumeBindingMode Immediate), in a zone that is not known; the pods may not fit there"
            )


def with_class(claim: PersistentVolumeClaim, usual_class: str | None) -> PersistentVolumeClaim:
    """Return a claim with its storage class, which the API server sets if the claim names none.

    Args:
        usual_class: The default class; None if there is none.
    """
    names_class = claim.spec.storage_class_name is not None or BETA_STORAGE_CLASS in claim.metadata.annotations
    if names_class or usual_class is None:
        return claim
    return replace(claim, spec=replace(claim.spec, storage_class_name=usual_class))


def _is_new(each: StorageObject, storage: StorageIndex) -> bool:
    key = object_key(each.metadata)
    match each:
        case PersistentVolumeClaim():
            return storage.claims.get(key) is None
        case PersistentVolume():
            return storage.volumes.get(key) is None
        case StorageClass():
            return storage.classes.get(key) is None
        case _:
            return False


def _volume_at_once(claim: PersistentVolumeClaim, storage: StorageIndex) -> PersistentVolume | None:
    named = storage.known_volume(claim.spec.volume_name) if claim.spec.volume_name else None
    return volume_at_once(
        claim,
        storage.classes.get(claim.class_name),
        named=None if named is None else named.volume,
        reserved_for=(known.volume for known in storage.volumes_reserved_for(claim)),
        free=(known.volume for known in storage.free_volumes(claim.class_name)),
    )


def volume_at_once(
    claim: PersistentVolumeClaim,
    of_class: StorageClass | None,
    *,
    named: PersistentVolume | None,
    reserved_for: Iterable[PersistentVolume],
    free: Iterable[PersistentVolume],
) -> PersistentVolume | None:
    """Return the volume that a claim gets without a pod; a new one if the class creates it; None for none yet.

    Args:
        named: The volume of ``spec.volumeName``, if it exists.
        reserved_for: Volumes that are reserved for the claim.
        free: Volumes that are reserved for no claim.
    """
    if claim.is_fully_bound or claim.status.phase == LOST:
        return None
    if claim.spec.volume_name:
        is_usable = named is not None and (named.spec.claim_ref is None or named.is_reserved_for(claim))
        return named if is_usable else None
    found = min(reserved_for, key=_size_and_name, default=None)
    if found is not None or (of_class is not None and _waits(of_class)):
        return found
    found = min((volume for volume in free if _suits(volume, claim)), key=_size_and_name, default=None)
    if found is None and of_class is not None and of_class.provisions:
        return new_volume(claim, of_class)
    return found


def _waits(of_class: StorageClass) -> bool:
    return of_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def new_volume(claim: PersistentVolumeClaim, of_class: StorageClass) -> PersistentVolume:
    """Return the volume that the provisioner of a class creates for a claim."""
    name = f"pvc-{claim.metadata.uid}"
    driver = of_class.provisioner
    requested = claim.spec.resources.requests.get(STORAGE)
    spec = PersistentVolumeSpec(
        capacity={} if requested is None else {STORAGE: requested},
        access_modes=claim.spec.access_modes,
        claim_ref=_pointer(claim),
        storage_class_name=claim.class_name,
        volume_mode=claim.spec.volume_mode,
        volume_attributes_class_name=claim.spec.volume_attributes_class_name,
        node_affinity=_node_affinity(of_class),
        csi=None if driver.startswith(_IN_TREE) else CsiVolumeSource(driver, name),
    )
    return PersistentVolume(AnnotatedMeta(name, uid=name), spec, _BOUND)


def reserved(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return a volume that is bound to a claim."""
    return replace(volume, spec=replace(volume.spec, claim_ref=_pointer(claim)), status=_BOUND)


def bound(claim: PersistentVolumeClaim, volume_name: str) -> PersistentVolumeClaim:
    """Return a claim that is bound to a volume."""
    annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
    if not claim.spec.volume_name:
        annotations[BOUND_BY_CONTROLLER] = "yes"
    metadata = replace(claim.metadata, annotations=annotations)
    return replace(claim, metadata=metadata, spec=replace(claim.spec, volume_name=volume_name), status=_BOUND)


def _pointer(claim: PersistentVolumeClaim) -> ClaimPointer:
    return ClaimPointer(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


def _node_affinity(of_class: StorageClass) -> VolumeNodeAffinity | None:
    """Return the node affinity of a new volume of a class; None if it is accessible from every node."""
    terms = tuple(
        NodeSelectorTerm(tuple(Requirement(each.key, IN, each.values) for each in term.match_label_expressions))
        for term in of_class.allowed_topologies
    )
    return VolumeNodeAffinity(NodeSelector(terms)) if terms else None


def _size_and_name(volume: PersistentVolume) -> tuple[int, str]:
    return nano(volume.spec.capacity.get(STORAGE, 0)), volume.metadata.name


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    spec = claim.spec
    return (
        volume.spec.claim_ref is None
        and volume.status.phase == AVAILABLE
        and volume.class_name == claim.class_name
        and volume.mode == claim.mode
        and (volume.spec.volume_attributes_class_name or "") == (spec.volume_attributes_class_name or "")
        and set(spec.access_modes) <= set(volume.spec.access_modes)
        and _size_and_name(volume)[0] >= nano(spec.resources.requests.get(STORAGE, 0))
        and (spec.selector is None or compile_label_selector(spec.selector).matches(volume.metadata.labels))
    )
