"""Builders of volumes, claims and other storage objects, and a storage writer in memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

import msgspec

from scheduler_core.errors import ClusterWriteError
from scheduler_core.model.affinity import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta, OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ClaimVolumeSource, EphemeralVolumeSource, Pod, ResourceRequirements, Volume
from scheduler_core.model.storage import (
    BIND_COMPLETED,
    MIGRATED_PLUGINS,
    STORAGE,
    AttachmentSource,
    ClaimPointer,
    CsiDriver,
    CsiDriverSpec,
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    CsiStorageCapacity,
    CsiVolumeSource,
    DriverAllocatable,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
    StorageObject,
    TopologySelectorRequirement,
    TopologySelectorTerm,
    VolumeAttachment,
    VolumeAttachmentSpec,
    VolumeNodeAffinity,
    VolumePhase,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.columns import columns

RWO = "ReadWriteOnce"


class VolumeFields(TypedDict, total=False):
    """Keyword arguments of :func:`volume`; ``on`` are label values of its nodes, ``claim_ref`` a claim or its key."""

    size: str
    storage_class: str
    on: Mapping[str, Iterable[str]]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    claim_ref: PersistentVolumeClaim | str
    modes: Iterable[str]
    phase: str
    mode: str
    csi: tuple[str, str]
    spec: PersistentVolumeSpec
    version: str
    attributes_class: str


class ClaimFields(TypedDict, total=False):
    """Keyword arguments of :func:`claim`; with ``volume`` it is fully bound by default."""

    namespace: str
    size: str
    storage_class: str | None
    volume: str
    bound: bool
    modes: Iterable[str]
    selector: Mapping[str, str]
    annotations: Mapping[str, str]
    phase: str
    owner: str
    mode: str
    version: str
    attributes_class: str


def volume(name: str = "pv", **fields: Unpack[VolumeFields]) -> PersistentVolume:
    """Return a volume, by default an Available one of 10Gi and class "local" that all nodes can access."""
    on = fields.get("on")
    claim_ref = fields.get("claim_ref")
    pointer = None
    if isinstance(claim_ref, str):
        namespace, _, claim_name = claim_ref.partition("/")
        pointer = ClaimPointer(namespace, claim_name)
    elif claim_ref is not None:
        pointer = ClaimPointer(claim_ref.metadata.namespace, claim_ref.metadata.name, claim_ref.metadata.uid)
    csi = fields.get("csi")
    spec = msgspec.structs.replace(
        fields.get("spec", PersistentVolumeSpec()),
        capacity={STORAGE: fields.get("size", "10Gi")},
        storage_class_name=fields.get("storage_class", "local"),
        access_modes=tuple(fields.get("modes", (RWO,))),
        claim_ref=pointer,
        volume_mode=fields.get("mode"),
        volume_attributes_class_name=fields.get("attributes_class"),
    )
    if on is not None:
        spec = msgspec.structs.replace(spec, node_affinity=accessible_from(on))
    if csi is not None:
        spec = msgspec.structs.replace(spec, csi=CsiVolumeSource(*csi))
    metadata = AnnotatedMeta(
        name=name,
        uid=f"uid-of-{name}",
        resource_version=fields.get("version", "1"),
        labels=dict(fields.get("labels", {})),
        annotations=dict(fields.get("annotations", {})),
    )
    return PersistentVolume(metadata, spec, VolumePhase(fields.get("phase", "Available")))


def accessible_from(on: Mapping[str, Iterable[str]]) -> VolumeNodeAffinity:
    """Return a node affinity with one term that requires label values."""
    expressions = tuple(Requirement(key, "In", tuple(values)) for key, values in on.items())
    return VolumeNodeAffinity(NodeSelector((NodeSelectorTerm(expressions),)))


def claim(name: str = "data", **fields: Unpack[ClaimFields]) -> PersistentVolumeClaim:
    """Return a claim, by default an unbound one for 5Gi of class "local"."""
    namespace = fields.get("namespace", "default")
    volume_name = fields.get("volume", "")
    annotations = dict(fields.get("annotations", {}))
    if fields.get("bound", bool(volume_name)):
        annotations[BIND_COMPLETED] = "yes"
    owner, selector = fields.get("owner"), fields.get("selector")
    metadata = AnnotatedMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-of-{namespace}-{name}",
        resource_version=fields.get("version", "1"),
        annotations=annotations,
        owner_references=() if owner is None else (OwnerReference("Pod", "owner", owner, controller=True),),
    )
    spec = PersistentVolumeClaimSpec(
        access_modes=tuple(fields.get("modes", (RWO,))),
        selector=None if selector is None else LabelSelector(dict(selector)),
        resources=ResourceRequirements(requests={STORAGE: fields.get("size", "5Gi")}),
        volume_name=volume_name,
        storage_class_name=fields.get("storage_class", "local"),
        volume_mode=fields.get("mode"),
        volume_attributes_class_name=fields.get("attributes_class"),
    )
    return PersistentVolumeClaim(metadata, spec, VolumePhase(fields.get("phase", "Pending")))


def storage_class(
    name: str = "local",
    provisioner: str = "kubernetes.io/no-provisioner",
    *,
    waits: bool = True,
    on: Mapping[str, Iterable[str]] | None = None,
) -> StorageClass:
    """Return a StorageClass, by default with WaitForFirstConsumer; ``on`` are its allowed topologies, in one term."""
    expressions = () if on is None else tuple(TopologySelectorRequirement(key, tuple(on[key])) for key in on)
    return StorageClass(
        AnnotatedMeta(name=name),
        provisioner,
        "WaitForFirstConsumer" if waits else "Immediate",
        () if on is None else (TopologySelectorTerm(expressions),),
    )


def csi_node(name: str, limits: Mapping[str, int | None] | None = None, migrated: str = "") -> CsiNode:
    """Return a CSINode with volume limits by driver; ``migrated`` is the annotation of migrated plugins."""
    drivers = tuple(CsiNodeDriver(driver, DriverAllocatable(count)) for driver, count in (limits or {}).items())
    return CsiNode(AnnotatedMeta(name=name, annotations={MIGRATED_PLUGINS: migrated}), CsiNodeSpec(drivers))


def csi_driver(name: str, *, reports_capacity: bool = True, must_be_installed: bool | None = None) -> CsiDriver:
    """Return a CSIDriver."""
    return CsiDriver(ObjectMeta(name=name), CsiDriverSpec(reports_capacity, must_be_installed))


def capacity(name: str, of_class: str, room: str | None, *, on: Mapping[str, str] | None) -> CsiStorageCapacity:
    """Return a CSIStorageCapacity; without topology (``on`` None), no node has access."""
    topology = None if on is None else LabelSelector(dict(on))
    return CsiStorageCapacity(ObjectMeta(name=name, namespace="default"), of_class, topology, room)


def attachment(name: str, attacher: str, node_name: str, of_volume: str | None) -> VolumeAttachment:
    """Return a VolumeAttachment."""
    return VolumeAttachment(
        ObjectMeta(name=name), VolumeAttachmentSpec(attacher, node_name, AttachmentSource(of_volume))
    )


def mounts(*claims: str) -> tuple[Volume, ...]:
    """Return volumes of a pod, one for each claim."""
    return tuple(Volume(name=f"v{number}", claim=ClaimVolumeSource(name)) for number, name in enumerate(claims))


def scratch(name: str = "scratch") -> Volume:
    """Return a generic ephemeral volume, whose claim is created for the pod."""
    return Volume(name=name, ephemeral=EphemeralVolumeSource())


def columns_with_storage(
    nodes: Iterable[Node], storage: Iterable[StorageObject], pods: Iterable[Pod] = ()
) -> NodeColumns:
    """Return node columns with storage objects."""
    filled = columns(nodes, pods)
    for each in storage:
        filled.storage.assign(each)
    return filled


@dataclass
class RecordingStorageWriter:
    """In-memory :class:`scheduler_core.ports.StorageWriter` that increments resource versions.

    Attributes:
        failures: Results of the next writes, one for each: an error, or None for success.
        volumes: Written volumes.
        claims: Written claims.
    """

    failures: list[ClusterWriteError | None] = field(default_factory=list)
    volumes: list[PersistentVolume] = field(default_factory=list)
    claims: list[PersistentVolumeClaim] = field(default_factory=list)

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Record the volume, or raise the next error."""
        self._raise_next_failure()
        written = msgspec.structs.replace(volume, metadata=_with_next_version(volume.metadata))
        self.volumes.append(written)
        return written

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Record the claim, or raise the next error."""
        self._raise_next_failure()
        written = msgspec.structs.replace(claim, metadata=_with_next_version(claim.metadata))
        self.claims.append(written)
        return written

    def _raise_next_failure(self) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure


def _with_next_version(metadata: AnnotatedMeta) -> AnnotatedMeta:
    return msgspec.structs.replace(metadata, resource_version=str(int(metadata.resource_version) + 1))
