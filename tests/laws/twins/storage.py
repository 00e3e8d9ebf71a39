"""Random volumes and claims for the twin schedulers, and the volume controllers of one scheduler."""

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
from tests.laws.twins.random_pods import ZONES
from tests.support.storage import RecordingStorageWriter, claim, csi_driver, csi_node, storage_class, volume

DRIVER = "disk.example.com"
_EBS = "kubernetes.io/aws-ebs"
CLASSES: tuple[StorageObject, ...] = (
    storage_class(),
    storage_class("disk", DRIVER),
    storage_class("zonal", DRIVER, on={"zone": ("a", "b")}),
    csi_driver(DRIVER, reports_capacity=False),
)


def random_csi_node(rng: Random, node_name: str) -> CsiNode:
    """Return a CSINode with random drivers and limits."""
    limits = {DRIVER: rng.randint(1, 4)} if rng.random() < 0.7 else {}
    return csi_node(node_name, limits, migrated=_EBS if rng.random() < 0.2 else "")


def random_claim(rng: Random, name: str, namespace: str) -> list[StorageObject]:
    """Return a random claim and its candidate volumes; the claim may be missing or already bound."""
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
            bound_claim = claim(name, namespace=namespace, volume=name, phase="Bound")
            labels = {"topology.kubernetes.io/zone": zone["zone"][0]} if zone else {}
            return [
                volume(name, on=zone or {}, labels=labels, claim_ref=bound_claim, csi=(DRIVER, name), phase="Bound"),
                bound_claim,
            ]
        case "in-tree":
            # CSI migration cannot translate this volume: nodes with a migrated driver end the attempt in an error.
            bound_claim = claim(name, namespace=namespace, volume=name, phase="Bound")
            spec = PersistentVolumeSpec(aws=AwsElasticBlockStore("aws://zone/disk"))
            return [volume(name, spec=spec, claim_ref=bound_claim, phase="Bound"), bound_claim]
    return []


class VolumeControllers:
    """Binds and provisions the volumes that the scheduler of one twin selects.

    Args:
        feed: Receives storage objects for the scheduler.
    """

    def __init__(self, feed: ObjectFeed[StorageObject], writer: RecordingStorageWriter) -> None:
        self.writer = writer
        self._feed = feed
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}

    def add(self, obj: StorageObject) -> None:
        """Deliver a new object to the scheduler."""
        if isinstance(obj, PersistentVolumeClaim):
            self._claims[obj.key] = obj
        elif isinstance(obj, PersistentVolume):
            self._volumes[obj.metadata.name] = obj
        self._feed.added(obj)

    def delete_claim(self, key: str) -> None:
        """Delete a claim with its volume, if it exists."""
        deleted = self._claims.pop(key, None)
        if deleted is None:
            return
        self._feed.deleted(deleted)
        bound = self._volumes.pop(deleted.spec.volume_name, None)
        if bound is not None:
            self._feed.deleted(bound)

    def complete(self) -> None:
        """Complete the volume bindings that the scheduler has written since the last call."""
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
            self.add(volume(name, storage_class="disk", claim_ref=selected, csi=(DRIVER, name), phase="Bound"))
            self._bind(selected, name)

    def _bind(self, unbound: PersistentVolumeClaim, volume_name: str) -> None:
        annotations = {**unbound.metadata.annotations, BIND_COMPLETED: "yes"}
        version = str(int(unbound.metadata.resource_version) + 1)
        metadata = replace(unbound.metadata, annotations=annotations, resource_version=version)
        bound = replace(unbound, metadata=metadata, spec=replace(unbound.spec, volume_name=volume_name))
        self._feed.updated(self._claims[unbound.key], bound)
        self._claims[unbound.key] = bound
