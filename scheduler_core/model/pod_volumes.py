"""What a pod's volumes ask of a node and of the rest of the cluster.

Owns the reading of ``spec.volumes``: claims, disks that may be attached once, and in-tree volumes that a CSI driver has
taken over. Must not know whether the claims exist. Compiled once per pod, because most pods have none of these and
should cost nothing after that was found out.
"""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.errors import StorageError
from scheduler_core.model.csi_migration import in_tree_plugin, translated_inline_handle
from scheduler_core.model.pod import Pod, Volume

CsiVolume = tuple[str, str]
"""A volume as its driver knows it: (driver, handle)."""

DiskIdentity = tuple[str, ...]
"""What makes two inline disks the same one; the first word is the kind."""


class ClaimReference(Struct, gc=False, frozen=True):
    """A claim that a pod uses; one that was made for the pod itself is ``ephemeral``."""

    key: str
    name: str
    is_ephemeral: bool = False


class DiskUse(Struct, gc=False, frozen=True):
    """An inline disk: it conflicts with any that shares an identity, unless both are read-only."""

    identities: tuple[DiskIdentity, ...]
    read_only: bool = False

    def conflicts_with(self, other: DiskUse) -> bool:
        """Whether both cannot be on one node."""
        if self.read_only and other.read_only:
            return False
        return any(identity in other.identities for identity in self.identities)


class InlineVolume(Struct, gc=False, frozen=True):
    """An in-tree volume that stands in the pod, as its driver knows it; ``problem`` says why that cannot be told."""

    name: str
    volume: CsiVolume
    problem: str = ""


class PodVolumes(Struct, gc=False, frozen=True):
    """The volumes of a pod that scheduling reads.

    Attributes:
        claims: Claims in the order of the volumes; one that is used twice stands there twice.
        disks: Inline disks of the kinds that conflict.
        inline: In-tree volumes that are counted as volumes of a CSI driver.
        drivers: Drivers of all in-tree inline volumes for which there is one, counted or not.
    """

    claims: tuple[ClaimReference, ...] = ()
    disks: tuple[DiskUse, ...] = ()
    inline: tuple[InlineVolume, ...] = ()
    drivers: tuple[str, ...] = ()

    @property
    def mounted(self) -> tuple[ClaimReference, ...]:
        """Claims that the pod names itself: those made for it left out."""
        return tuple(claim for claim in self.claims if not claim.is_ephemeral)


NO_VOLUMES = PodVolumes()


def pod_volumes(pod: Pod) -> PodVolumes:
    """Read the volumes of a pod."""
    claims: list[ClaimReference] = []
    disks: list[DiskUse] = []
    inline: list[InlineVolume] = []
    drivers: list[str] = []
    for volume in pod.spec.volumes:
        claim = claim_reference(pod, volume)
        if claim is not None:
            claims.append(claim)
            continue
        disk = _disk_use(volume)
        if disk is not None:
            disks.append(disk)
        plugin = in_tree_plugin(volume)
        if plugin is None:
            continue
        drivers.append(plugin.driver)
        if plugin.is_taken_over:
            try:
                inline.append(InlineVolume(volume.name, (plugin.driver, translated_inline_handle(volume, plugin))))
            except StorageError as error:
                inline.append(InlineVolume(volume.name, (plugin.driver, ""), str(error)))
    if not (claims or disks or drivers):
        return NO_VOLUMES
    return PodVolumes(tuple(claims), tuple(disks), tuple(inline), tuple(drivers))


def claim_reference(pod: Pod, volume: Volume) -> ClaimReference | None:
    """The claim behind a volume of a pod, None for other volumes."""
    namespace = pod.metadata.namespace
    if volume.claim is not None:
        name = volume.claim.claim_name
        return ClaimReference(f"{namespace}/{name}", name)
    if volume.ephemeral is not None:
        name = f"{pod.metadata.name}-{volume.name}"
        return ClaimReference(f"{namespace}/{name}", name, is_ephemeral=True)
    return None


def _disk_use(volume: Volume) -> DiskUse | None:
    """Follows kube-scheduler v1.36.3, ``plugins/volumerestrictions/volume_restrictions.go`` (``isVolumeConflict``)."""
    if volume.gce is not None:
        return DiskUse((("gce", volume.gce.pd_name),), volume.gce.read_only)
    if volume.aws is not None:
        # Read-only or not, a volume of EBS is attached to one place.
        return DiskUse((("aws", volume.aws.volume_id),))
    if volume.iscsi is not None:
        return DiskUse((("iscsi", volume.iscsi.iqn),), volume.iscsi.read_only)
    if volume.rbd is not None:
        rbd = volume.rbd
        identities = tuple(("rbd", rbd.pool, rbd.image, monitor) for monitor in dict.fromkeys(rbd.monitors))
        return DiskUse(identities, rbd.read_only)
    return None
