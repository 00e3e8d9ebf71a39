"""Volumes and claims in memory, with the volume controller and the provisioners that a cluster would have.

Implements :class:`scheduler_core.ports.StorageWriter`. Everything happens immediately and is reported before the
response to a write (from a binding task and therefore between two cycles). The controller completes what the scheduler
binds; a claim for which a node was selected has a new volume when the write returns. A new volume is accessible from
every topology that its class allows. Claims with immediate binding are bound at the start: to the smallest matching
volume, else to a new one if their class has a provisioner. Provisioners never run out of capacity.

Follows Kubernetes v1.37.1, ``pkg/controller/volume/persistentvolume`` (``syncUnboundClaim``, ``pv_controller.go``), as
far as its results go.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from msgspec.structs import replace

from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.feeds.object_feed import ObjectFeed
from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.quantity import nano
from scheduler_core.model.selectors import IN, compile_label_selector
from scheduler_core.model.storage import (
    AVAILABLE,
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
)

_BOUND = VolumePhase("Bound")
_IN_TREE = "kubernetes.io/"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class MemoryStorage:
    """Volumes, claims and classes by name."""

    def __init__(self) -> None:
        self._feed: ObjectFeed[StorageObject] | None = None
        self._volumes: dict[str, PersistentVolume] = {}
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._classes: dict[str, StorageClass] = {}
        self._versions = itertools.count(1)

    def serve(self, objects: Iterable[StorageObject], feed: ObjectFeed[StorageObject]) -> None:
        """Store the initial objects, and report them and every later change.

        Args:
            objects: Initial objects; kinds that never change are only reported.
        """
        self._feed = feed
        highest = 0
        for each in objects:
            version = each.metadata.resource_version
            highest = max(highest, int(version) if version.isdecimal() else 0)
            if isinstance(each, PersistentVolume):
                self._volumes[each.metadata.name] = each
            elif isinstance(each, PersistentVolumeClaim):
                self._claims[each.key] = each
            elif isinstance(each, StorageClass):
                self._classes[each.metadata.name] = each
            feed.added(each)
        self._versions = itertools.count(highest + 1)
        for key in sorted(self._claims):
            self._bind_immediate(self._claims[key])

    # -- writes of the scheduler --------------------------------------------------------------------------------

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Bind a volume to the claim of its claimRef, and the claim to it.

        Raises:
            NotFoundError: The volume does not exist.
            ConflictError: The volume has another resource version.
        """
        _check("volume", volume.metadata, self._volumes.get(volume.metadata.name))
        written = self._put_volume(replace(volume, status=_BOUND))
        pointer = written.spec.claim_ref
        claim = None if pointer is None else self._claims.get(f"{pointer.namespace}/{pointer.name}")
        if claim is not None and written.is_reserved_for(claim):
            self._complete(claim, written.metadata.name)
        return written

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Store the selected node of a claim, and create its volume.

        Raises:
            NotFoundError: The claim does not exist.
            ConflictError: The claim has another resource version.
        """
        _check("claim", claim.metadata, self._claims.get(claim.key))
        written = self._put_claim(claim)
        self._provision(written, self._classes.get(written.class_name))
        return written

    # -- controllers --------------------------------------------------------------------------------------------

    def _bind_immediate(self, claim: PersistentVolumeClaim) -> None:
        if claim.is_fully_bound or claim.status.phase == LOST:
            return
        storage_class = self._classes.get(claim.class_name)
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if claim.spec.volume_name:
            chosen = self._volumes.get(claim.spec.volume_name)
            if chosen is not None and (chosen.spec.claim_ref is None or chosen.is_reserved_for(claim)):
                self._join(chosen, claim)
            return
        reserved = [volume for volume in self._volumes.values() if volume.is_reserved_for(claim)]
        free = [] if waits else [volume for volume in self._volumes.values() if _matches(volume, claim)]
        found = min(reserved or free, key=_size_and_name, default=None)
        if found is not None:
            self._join(found, claim)
        elif not waits and storage_class is not None and storage_class.provisioner not in ("", _NO_PROVISIONER):
            self._provision(claim, storage_class)

    def _join(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        pointer = ClaimPointer(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
        spec = replace(volume.spec, claim_ref=pointer)
        self._put_volume(replace(volume, spec=spec, status=_BOUND))
        self._complete(claim, volume.metadata.name)

    def _complete(self, claim: PersistentVolumeClaim, volume_name: str) -> None:
        annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
        if not claim.spec.volume_name:
            annotations[BOUND_BY_CONTROLLER] = "yes"
        metadata = replace(claim.metadata, annotations=annotations)
        spec = replace(claim.spec, volume_name=volume_name)
        self._put_claim(replace(claim, metadata=metadata, spec=spec, status=_BOUND))

    def _provision(self, claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> None:
        if storage_class is None:
            return
        name = f"pvc-{claim.metadata.uid}"
        driver = storage_class.provisioner
        requested = claim.spec.resources.requests.get(STORAGE)
        spec = PersistentVolumeSpec(
            capacity={} if requested is None else {STORAGE: requested},
            access_modes=claim.spec.access_modes,
            claim_ref=ClaimPointer(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid),
            storage_class_name=claim.class_name,
            volume_mode=claim.spec.volume_mode,
            volume_attributes_class_name=claim.spec.volume_attributes_class_name,
            node_affinity=_node_affinity(storage_class),
            csi=None if driver.startswith(_IN_TREE) else CsiVolumeSource(driver, name),
        )
        self._put_volume(PersistentVolume(AnnotatedMeta(name, uid=name), spec, _BOUND))
        self._complete(claim, name)

    # -- changes ------------------------------------------------------------------------------------------------

    def _put_volume(self, volume: PersistentVolume) -> PersistentVolume:
        new = replace(volume, metadata=self._next(volume.metadata))
        old = self._volumes.get(new.metadata.name)
        self._volumes[new.metadata.name] = new
        self._report(old, new)
        return new

    def _report(self, old: StorageObject | None, new: StorageObject) -> None:
        assert self._feed is not None  # the scheduler writes only to objects that were reported
        if old is None:
            self._feed.added(new)
        else:
            self._feed.updated(old, new)

    def _put_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        new = replace(claim, metadata=self._next(claim.metadata))
        old = self._claims[new.key]
        self._claims[new.key] = new
        self._report(old, new)
        return new

    def _next(self, metadata: AnnotatedMeta) -> AnnotatedMeta:
        return replace(metadata, resource_version=str(next(self._versions)))


def _check(kind: str, given: AnnotatedMeta, current: PersistentVolume | PersistentVolumeClaim | None) -> None:
    if current is None or current.metadata.uid != given.uid:
        raise NotFoundError(f'{kind} "{given.name}" not found')
    if current.metadata.resource_version != given.resource_version:
        raise ConflictError(f'{kind} "{given.name}" has been modified; apply the change to the latest version')


def _node_affinity(storage_class: StorageClass) -> VolumeNodeAffinity | None:
    """Return the node affinity of a new volume of a class; None if it is accessible from every node."""
    terms = tuple(
        NodeSelectorTerm(tuple(Requirement(each.key, IN, each.values) for each in term.match_label_expressions))
        for term in storage_class.allowed_topologies
    )
    return VolumeNodeAffinity(NodeSelector(terms)) if terms else None


def _size_and_name(volume: PersistentVolume) -> tuple[int, str]:
    return nano(volume.spec.capacity.get(STORAGE, 0)), volume.metadata.name


def _matches(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
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
