"""Volumes of a pod, and the translation of in-tree volumes for the CSI drivers that replace the in-tree plugins.

Reads claims, disks that can be attached only once, and in-tree volumes that are migrated to CSI. Compiled once per pod,
because most pods have none of these. Whether claims exist, and whether a plugin is migrated on a node, is up to the
caller. Follows ``k8s.io/csi-translation-lib`` v0.37.1. Azure File and vSphere are known by name only: the scheduler
treats their volumes as not migrated (``nodevolumelimits/utils.go``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from scheduler_core.errors import StorageError
from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.pod import (
    AwsElasticBlockStore,
    AzureDisk,
    CinderVolume,
    GcePersistentDisk,
    Pod,
    PortworxVolume,
    Volume,
)
from scheduler_core.model.storage import PersistentVolume, VolumeNodeAffinity

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
ZONES_SEPARATOR = "__"

_UNSPECIFIED = "UNSPECIFIED"
_AWS_VOLUME = re.compile(r"vol-[^/]*")
_GCE_ZONE_PARTS = 3

_Source = PersistentVolume | Volume


class InTreePlugin(Struct, frozen=True):
    """An in-tree volume plugin and the CSI driver that replaces it.

    Attributes:
        topology_key: The driver's label for zones; "" if affinity is not translated.
        is_migrated: Whether the scheduler counts and translates its volumes.
    """

    name: str
    driver: str
    source: str
    topology_key: str = ""
    is_migrated: bool = True


_PLUGINS = (
    InTreePlugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce", "topology.gke.io/zone"),
    InTreePlugin("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "aws", "topology.ebs.csi.aws.com/zone"),
    InTreePlugin(
        "kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder", "topology.cinder.csi.openstack.org/zone"
    ),
    InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk"),
    InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx"),
    InTreePlugin("kubernetes.io/azure-file", "file.csi.azure.com", "azure_file", is_migrated=False),
    InTreePlugin("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "vsphere", is_migrated=False),
)
_BY_NAME = {plugin.name: plugin for plugin in _PLUGINS}


def in_tree_plugin_named(name: str) -> InTreePlugin | None:
    """Return the in-tree plugin of a provisioner name, None for any other name."""
    return _BY_NAME.get(name)


def in_tree_plugin(volume: _Source) -> InTreePlugin | None:
    """Return the in-tree plugin of a persistent volume's or pod volume's source; None for any other source."""
    holder = volume.spec if isinstance(volume, PersistentVolume) else volume
    return next((plugin for plugin in _PLUGINS if getattr(holder, plugin.source) is not None), None)


def translated_handle(volume: _Source, plugin: InTreePlugin) -> str:
    """Return the CSI volume handle of a volume of an in-tree plugin. Raises StorageError: it cannot be translated."""
    holder, labels = (volume.spec, volume.metadata.labels) if isinstance(volume, PersistentVolume) else (volume, {})
    return _HANDLES[plugin.source](getattr(holder, plugin.source), labels)


def translated_affinity(volume: PersistentVolume, plugin: InTreePlugin) -> VolumeNodeAffinity | None:
    """Return the node affinity of the translated volume, with zones under the driver's label.

    Zones of the affinity are renamed; if it has none, those of the volume's labels are added to every term.

    Raises:
        StorageError: The source cannot be translated.
    """
    translated_handle(volume, plugin)
    affinity = volume.spec.node_affinity
    if not plugin.topology_key:
        return affinity
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    labels = volume.metadata.labels
    is_beta = _uses_beta_labels(terms, labels)
    zone_key = BETA_ZONE if is_beta else ZONE
    renamed = {BETA_REGION: REGION} if is_beta and _has_values(terms, BETA_REGION) else {}
    if _has_values(terms, zone_key):
        renamed[zone_key] = plugin.topology_key
    elif zone_key in labels:
        zones = sorted({zone for part in labels[zone_key].split(ZONES_SEPARATOR) if (zone := part.strip())})
        if zones:
            added = Requirement(plugin.topology_key, "In", tuple(zones))
            terms = tuple(
                msgspec.structs.replace(term, match_expressions=(*term.match_expressions, added))
                for term in terms or (NodeSelectorTerm(),)
            )
            required = NodeSelector(terms)
    if required is None:
        return affinity
    return VolumeNodeAffinity(NodeSelector(tuple(_renamed(term, renamed) for term in terms)))


def _uses_beta_labels(terms: tuple[NodeSelectorTerm, ...], labels: dict[str, str]) -> bool:
    """Return whether zones use the deprecated label: decided by the affinity, else by the volume's labels."""
    keys = {expression.key for term in terms for expression in term.match_expressions}
    for names in (keys, labels):
        if ZONE in names:
            return False
        if BETA_ZONE in names:
            return True
    return False


def _has_values(terms: tuple[NodeSelectorTerm, ...], key: str) -> bool:
    return any(expression.key == key and expression.values for term in terms for expression in term.match_expressions)


def _renamed(term: NodeSelectorTerm, names: dict[str, str]) -> NodeSelectorTerm:
    expressions = tuple(
        msgspec.structs.replace(expression, key=names.get(expression.key, expression.key))
        for expression in term.match_expressions
    )
    return msgspec.structs.replace(term, match_expressions=expressions)


def _gce_handle(source: GcePersistentDisk, labels: Mapping[str, str]) -> str:
    text = labels.get(BETA_ZONE) or labels.get(ZONE, "")
    zones = text.split(ZONES_SEPARATOR)
    if len(zones) > 1:
        return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{source.pd_name}"
    return f"projects/{_UNSPECIFIED}/zones/{text or _UNSPECIFIED}/disks/{source.pd_name}"


def _gce_region(zones: list[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != _GCE_ZONE_PARTS:
            raise StorageError(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise StorageError(f"failed to get region from zones: multiple or no regions gotten, got: {sorted(regions)}")
    return regions.pop()


def _aws_handle(source: AwsElasticBlockStore, _: Mapping[str, str]) -> str:
    text = source.volume_id
    if not text.startswith("aws://"):
        return text
    identity = urlsplit(text).path.strip("/")
    if _AWS_VOLUME.fullmatch(identity) is None:
        raise StorageError(f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({text})")
    return identity


def _azure_handle(source: AzureDisk, _: Mapping[str, str]) -> str:
    if source.kind is not None and source.kind.lower() != "managed":
        raise StorageError(f"kind({source.kind}) is not supported in csi migration")
    return source.disk_uri


def _handle_by_id(source: CinderVolume | PortworxVolume, _: Mapping[str, str]) -> str:
    return source.volume_id


_HANDLES: dict[str, Callable[[Any, Mapping[str, str]], str]] = {
    "gce": _gce_handle,
    "aws": _aws_handle,
    "azure_disk": _azure_handle,
    "cinder": _handle_by_id,
    "portworx": _handle_by_id,
}
"""By source, functions of it and of the labels of a persistent volume, which have the zones of a GCE disk."""


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
                inline.append(InlineVolume(volume.name, (plugin.driver, translated_handle(volume, plugin))))
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
