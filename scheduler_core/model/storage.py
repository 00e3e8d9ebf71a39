"""Volumes, claims and other storage objects as decoded from the API server: only the fields that scheduling reads.

Annotations of four kinds are read: those of claims and volumes contain the state of their binding, those of CSINodes
the in-tree plugins that are migrated, and that of a class makes it the default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct, field

from scheduler_core.model.affinity import LabelSelector, NodeSelector
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.pod import (
    AwsElasticBlockStore,
    AzureDisk,
    AzureFile,
    CinderVolume,
    GcePersistentDisk,
    PortworxVolume,
    Quantities,
    ResourceRequirements,
    VsphereVolume,
)

BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
AVAILABLE = "Available"
LOST = "Lost"
UNREADABLE = "Unreadable"
"""Phase of a volume or claim whose newest version cannot be decoded; not of the API."""
STORAGE = "storage"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_FILESYSTEM = "Filesystem"


class ClaimPointer(Struct, gc=False, frozen=True, rename="camel"):
    """``spec.claimRef`` of a volume: the claim that it is bound to or reserved for; ``uid`` may be empty."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiVolumeSource(Struct, gc=False, frozen=True, rename="camel"):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Struct, gc=False, frozen=True, rename="camel"):
    """The nodes from which a volume is accessible."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a volume; all fields are None for sources that no plugin reads."""

    capacity: Quantities = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimPointer | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiVolumeSource | None = None
    gce: GcePersistentDisk | None = field(default=None, name="gcePersistentDisk")
    aws: AwsElasticBlockStore | None = field(default=None, name="awsElasticBlockStore")
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: CinderVolume | None = None
    portworx: PortworxVolume | None = field(default=None, name="portworxVolume")
    vsphere: VsphereVolume | None = field(default=None, name="vsphereVolume")


class VolumePhase(Struct, gc=False, frozen=True, rename="camel"):
    """``status`` of a volume or a claim."""

    phase: str = ""


class PersistentVolume(Struct, gc=False, frozen=True, rename="camel"):
    metadata: AnnotatedMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumePhase = VolumePhase()

    @property
    def class_name(self) -> str:
        """The storage class; the deprecated annotation takes precedence over the field."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name)

    @property
    def mode(self) -> str:
        return self.spec.volume_mode or _FILESYSTEM

    def is_reserved_for(self, claim: PersistentVolumeClaim) -> bool:
        pointer = self.spec.claim_ref
        if pointer is None:
            return False
        wanted = claim.metadata
        return (pointer.namespace, pointer.name) == (wanted.namespace, wanted.name) and (
            not pointer.uid or pointer.uid == wanted.uid
        )


class PersistentVolumeClaimSpec(Struct, gc=False, frozen=True, rename="camel"):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Struct, gc=False, frozen=True, rename="camel"):
    metadata: AnnotatedMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: VolumePhase = VolumePhase()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def class_name(self) -> str:
        """The storage class, "" for none; the deprecated annotation takes precedence over the field."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name or "")

    @property
    def mode(self) -> str:
        return self.spec.volume_mode or _FILESYSTEM

    @property
    def is_fully_bound(self) -> bool:
        """Whether both directions of the binding are complete."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations


class TopologySelectorRequirement(Struct, gc=False, frozen=True, rename="camel"):
    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Struct, gc=False, frozen=True, rename="camel"):
    """Requirements that must all match."""

    match_label_expressions: tuple[TopologySelectorRequirement, ...] = ()


class StorageClass(Struct, gc=False, frozen=True, rename="camel"):
    metadata: AnnotatedMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()

    @property
    def provisions(self) -> bool:
        """Whether the class creates volumes."""
        return self.provisioner not in ("", _NO_PROVISIONER)


def default_class(classes: Iterable[StorageClass]) -> str | None:
    """Return the default class: of several that are marked the newest, and of equally old ones the first by name."""
    marked = [each for each in classes if any(each.metadata.annotations.get(mark) == "true" for mark in _DEFAULT_CLASS)]
    if not marked:
        return None
    return min(marked, key=lambda each: (-_created(each.metadata), each.metadata.name)).metadata.name


def _created(metadata: ObjectMeta) -> float:
    created = metadata.creation_timestamp
    return -math.inf if created is None else created.timestamp()


class DriverAllocatable(Struct, gc=False, frozen=True, rename="camel"):
    """Maximum number of volumes of a driver on a node; None for no limit."""

    count: int | None = None


class CsiNodeDriver(Struct, gc=False, frozen=True, rename="camel"):
    name: str
    allocatable: DriverAllocatable | None = None

    @property
    def limit(self) -> int | None:
        """Maximum number of its volumes on the node; None for no limit."""
        return None if self.allocatable is None else self.allocatable.count


class CsiNodeSpec(Struct, gc=False, frozen=True):
    """``spec`` of a CSINode; ``driver_list`` is None, null on the wire, for a node without drivers."""

    driver_list: tuple[CsiNodeDriver, ...] | None = field(default=(), name="drivers")

    @property
    def drivers(self) -> tuple[CsiNodeDriver, ...]:
        return self.driver_list or ()


class CsiNode(Struct, gc=False, frozen=True, rename="camel"):
    """A storage.k8s.io/v1 CSINode; it has the name of its node."""

    metadata: AnnotatedMeta
    spec: CsiNodeSpec = CsiNodeSpec()

    @property
    def migrated_plugins(self) -> frozenset[str]:
        """In-tree plugins whose volumes CSI drivers serve on the node."""
        text = self.metadata.annotations.get(MIGRATED_PLUGINS, "")
        return frozenset(text.split(",")) if text else frozenset()


class CsiDriverSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a CSIDriver; with *storage_capacity* the driver reports its capacity."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriver(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(Struct, gc=False, frozen=True, rename="camel"):
    """A storage.k8s.io/v1 CSIStorageCapacity: capacity for volumes of a class on some nodes."""

    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None

    @property
    def volume_limit(self) -> str | int | float | None:
        """The maximum volume size, as a quantity; None if it is not known."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


class AttachmentSource(Struct, gc=False, frozen=True, rename="camel"):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Struct, gc=False, frozen=True, rename="camel"):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Struct, gc=False, frozen=True, rename="camel"):
    """A storage.k8s.io/v1 VolumeAttachment: a volume that is attached, or to be attached, to a node."""

    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


StorageObject = (
    PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CsiNode
    | CsiDriver
    | CsiStorageCapacity
    | VolumeAttachment
)
