"""Random volumes and claims for the twins, and the volume controllers of one twin."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from scheduler_core.feeds.object_feed import ObjectFeed
from scheduler_core.model.pod import AwsElasticBlockStore
from scheduler_core.model.storage import (
    BIND_COMPLETED,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageObject,
)
from tests.laws.twins.pod_draws import ZONES
from tests.support.storage import RecordingStorageWriter, claim, csi_driver, csi_node, storage_class, volume

DRIVER = "disk.example.com"
_EBS = "kubernetes.io/aws-ebs"
CLASSES: tuple[StorageObject, ...] = (
    storage_class(),
    storage_class("disk", DRIVER),
    storage_class("zonal", DRIVER, on={"zone": ("a", "b")}),
    csi_driver(DRIVER, reports_capacity=False),
)


def draw_csi_node(rng: Random, node_name: str) -> CsiNode:
    """Draw what a node reports of its drivers."""
    limits = {DRIVER: rng.randint(1, 4)} if rng.random() < 0.7 else {}
    return csi_node(node_name, limits, migrated=_EBS if rng.random() < 0.2 else "")


def draw_claim(rng: Random, name: str, namespace: str) -> list[StorageObject]:
    """Draw a claim and the volumes that it may get; a claim may also be missing, or bound already."""
    zone = {"zone": (rng.choice(ZONES),)} if rng.random() < 0.7 else None
    match rng.choice(("local", "local", "disk", "zonal", "bound", "in-tree", "missing")):
        case "local":
            volumes = [volume(f"{name}-{each}", on={"zone": (rng.choice(ZONES),)}) for each in range(rng.randrange(3))]
            return [*volumes, claim(name, namespace=namespace)]
        case "disk":
            return [claim(name, namespace=namespace, storage_class="disk")]
        case "zonal":
            return [claim(name, namespace=namespace, storage_class="zonal")]
        case "bound":
            of = claim(name, namespace=namespace, volume=name, phase="Bound")
            labels = {"topology.kubernetes.io/zone": zone["zone"][0]} if zone else {}
            return [volume(name, on=zone or {}, labels=labels, claim_ref=of, csi=(DRIVER, name), phase="Bound"), of]
        case "in-tree":
            # Where the node's driver has taken over, it cannot be translated: those nodes end the attempt in an error.
            of = claim(name, namespace=namespace, volume=name, phase="Bound")
            spec = PersistentVolumeSpec(aws=AwsElasticBlockStore("aws://zone/disk"))
            return [volume(name, spec=spec, claim_ref=of, phase="Bound"), of]
    return []


class VolumeControllers:
    """Bind and provision what one twin's scheduler asks for, as the cluster's controllers do.

    Args:
        feed: Receives storage objects for the scheduler.
        writer: Storage writer of the scheduler.
    """

    def __init__(self, feed: ObjectFeed[StorageObject], writer: RecordingStorageWriter) -> None:
        self.writer = writer
        self._feed = feed
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}

    def show(self, shown: StorageObject) -> None:
        """Deliver a new object to the scheduler."""
        if isinstance(shown, PersistentVolumeClaim):
            self._claims[shown.key] = shown
        elif isinstance(shown, PersistentVolume):
            self._volumes[shown.metadata.name] = shown
        self._feed.added(shown)

    def delete_claim(self, key: str) -> None:
        """Delete a claim, if there is one, with its volume."""
        gone = self._claims.pop(key, None)
        if gone is None:
            return
        self._feed.deleted(gone)
        bound = self._volumes.pop(gone.spec.volume_name, None)
        if bound is not None:
            self._feed.deleted(bound)

    def complete(self) -> None:
        """Carry out what was written since the last call."""
        volumes, self.writer.volumes = self.writer.volumes, []
        for written in volumes:
            name, pointer = written.metadata.name, written.spec.claim_ref
            assert pointer is not None
            self._feed.updated(self._volumes[name], written)
            self._volumes[name] = written
            self._bind(self._claims[f"{pointer.namespace}/{pointer.name}"], name)
        claims, self.writer.claims = self.writer.claims, []
        for selected in claims:
            name = f"pv-of-{selected.metadata.namespace}-{selected.metadata.name}"
            self.show(volume(name, storage_class="disk", claim_ref=selected, csi=(DRIVER, name), phase="Bound"))
            self._bind(selected, name)

    def _bind(self, of: PersistentVolumeClaim, volume_name: str) -> None:
        annotations = {**of.metadata.annotations, BIND_COMPLETED: "yes"}
        version = str(int(of.metadata.resource_version) + 1)
        metadata = replace(of.metadata, annotations=annotations, resource_version=version)
        bound = replace(of, metadata=metadata, spec=replace(of.spec, volume_name=volume_name))
        self._feed.updated(self._claims[of.key], bound)
        self._claims[of.key] = bound
