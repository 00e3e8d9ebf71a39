"""Volumes of a pod, as far as scheduling reads them.

Reads claims, disks that can be attached only once, and in-tree volumes that are migrated to CSI. Compiled once per pod,
because most pods have none of these. Whether the claims exist is not checked here.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from scheduler_core.errors import StorageError
from scheduler_core.model.csi_migration import in_tree_plugin, translated_inline_handle
from scheduler_core.model.pod import Pod, Volume

CsiVolume = tuple[str, str]
"""A volume as its driver identifies it: (driver, handle)."""

DiskIdentity = tuple[str, ...]
"""Identity of an inline disk; the first element is the kind."""


class ClaimReference(Struct, gc=False, frozen=True):
    """A claim that a pod uses; ``is_ephemeral`` if it was created for the pod."""

    key: str
    name: str
    is_ephemeral: bool = False


class DiskUse(Struct, gc=False, frozen=True):
    """An inline disk; it conflicts with disks that share an identity, unless both are read-only."""

    identities: tuple[DiskIdentity, ...]
    read_only: bool = False


class InlineVolume(Struct, gc=False, frozen=True):
    """An in-tree volume in a pod's spec, as its CSI driver identifies it; ``problem`` if it cannot be translated."""

    name: str
    volume: CsiVolume
    problem: str = ""


class PodVolumes(Struct, gc=False, frozen=True):
    """The volumes of a pod that scheduling reads.

    Attributes:
        claims: Claims in the order of the volumes, with duplicates.
        disks: Inline disks of kinds that may conflict.
        inline: In-tree volumes that count as volumes of a CSI driver.
        drivers: CSI drivers of all in-tree inline volumes, counted or not.
    """

    claims: tuple[ClaimReference, ...] = ()
    disks: tuple[DiskUse, ...] = ()
    inline: tuple[InlineVolume, ...] = ()
    drivers: tuple[str, ...] = ()

    @property
    def mounted(self) -> tuple[ClaimReference, ...]:
        """Claims that the pod's spec names, without ephemeral ones."""
        return tuple(claim for claim in self.claims if not claim.is_ephemeral)


NO_VOLUMES = PodVolumes()


def pod_volumes(pod: Pod) -> PodVolumes:
    """Return the volumes of a pod."""
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
        if plugin.is_migrated:
            try:
                inline.append(InlineVolume(volume.name, (plugin.driver, translated_inline_handle(volume, plugin))))
            except StorageError as error:
                inline.append(InlineVolume(volume.name, (plugin.driver, ""), str(error)))
    if not (claims or disks or drivers):
        return NO_VOLUMES
    return PodVolumes(tuple(claims), tuple(disks), tuple(inline), tuple(drivers))


def do_disks_conflict(some: Iterable[DiskUse], others: Iterable[DiskUse]) -> bool:
    """Return whether a disk of one pod and one of another pod cannot be used on the same node."""
    is_writable: dict[DiskIdentity, bool] = {}
    for disk in others:
        for identity in disk.identities:
            is_writable[identity] = is_writable.get(identity, False) or not disk.read_only
    return any(
        identity in is_writable and (is_writable[identity] or not disk.read_only)
        for disk in some
        for identity in disk.identities
    )


def claim_reference(pod: Pod, volume: Volume) -> ClaimReference | None:
    """Return the claim of a pod's volume, None for other volumes."""
    namespace = pod.metadata.namespace
    if volume.claim is not None:
        name = volume.claim.claim_name
        return ClaimReference(f"{namespace}/{name}", name)
    if volume.ephemeral is not None:
        name = f"{pod.metadata.name}-{volume.name}"
        return ClaimReference(f"{namespace}/{name}", name, is_ephemeral=True)
    return None


def _disk_use(volume: Volume) -> DiskUse | None:
    """Return an inline disk that may conflict; None for other volumes.

    Follows kube-scheduler v1.37.1, ``plugins/volumerestrictions/volume_restrictions.go`` (``isVolumeConflict``).
    """
    if volume.gce is not None:
        return DiskUse((("gce", volume.gce.pd_name),), volume.gce.read_only)
    if volume.aws is not None:
        # An EBS volume is attached to one node, even if it is read-only.
        return DiskUse((("aws", volume.aws.volume_id),))
    if volume.iscsi is not None:
        return DiskUse((("iscsi", volume.iscsi.iqn),), volume.iscsi.read_only)
    if volume.rbd is not None:
        rbd = volume.rbd
        identities = tuple(("rbd", rbd.pool, rbd.image, monitor) for monitor in dict.fromkeys(rbd.monitors))
        return DiskUse(identities, rbd.read_only)
    return None
