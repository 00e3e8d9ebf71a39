"""CSI migration: translation of in-tree volumes for the CSI drivers that replace the in-tree plugins.

Maps sources to plugins and drivers, and translates volume handles and node affinity, as far as scheduling reads them.
Whether a plugin is migrated on a node is up to the caller.

Follows ``k8s.io/csi-translation-lib`` v0.37.1. Azure File and vSphere are known by name only: the scheduler treats
their volumes as not migrated (``nodevolumelimits/utils.go``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from scheduler_core.errors import StorageError
from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.pod import AwsElasticBlockStore, AzureDisk, Volume
from scheduler_core.model.storage import PersistentVolume, VolumeNodeAffinity

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
ZONES_SEPARATOR = "__"

_UNSPECIFIED = "UNSPECIFIED"
_AWS_VOLUME = re.compile(r"vol-[^/]*")
_GCE_ZONE_PARTS = 3

_Handle = Callable[[PersistentVolume], str]
_InlineHandle = Callable[[Volume], str]


class InTreePlugin(Struct, frozen=True):
    """An in-tree volume plugin and the CSI driver that replaces it.

    Attributes:
        source: The field of a volume or pod volume with the plugin's source.
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


def in_tree_plugin(source: PersistentVolume | Volume) -> InTreePlugin | None:
    """Return the in-tree plugin of a persistent volume's or pod volume's source; None for any other source."""
    holder = source.spec if isinstance(source, PersistentVolume) else source
    return next((plugin for plugin in _PLUGINS if getattr(holder, plugin.source) is not None), None)


def translated_handle(volume: PersistentVolume, plugin: InTreePlugin) -> str:
    """Return the CSI volume handle of an in-tree volume.

    Raises:
        StorageError: The source cannot be translated.
    """
    handle: _Handle = _HANDLES[plugin.source]
    return handle(volume)


def translated_inline_handle(volume: Volume, plugin: InTreePlugin) -> str:
    """Return the CSI volume handle of an in-tree volume in a pod's spec.

    Raises:
        StorageError: The source cannot be translated.
    """
    handle: _InlineHandle = _INLINE_HANDLES[plugin.source]
    return handle(volume)


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


def _gce_handle(volume: PersistentVolume) -> str:
    disk = volume.spec.gce
    name = disk.pd_name if disk is not None else ""
    labels = volume.metadata.labels
    text = labels.get(BETA_ZONE) or labels.get(ZONE, "")
    zones = text.split(ZONES_SEPARATOR)
    if len(zones) > 1:
        return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{name}"
    return f"projects/{_UNSPECIFIED}/zones/{text or _UNSPECIFIED}/disks/{name}"


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


def _gce_inline_handle(volume: Volume) -> str:
    name = volume.gce.pd_name if volume.gce is not None else ""
    return f"projects/{_UNSPECIFIED}/zones/{_UNSPECIFIED}/disks/{name}"


def _aws_handle(source: AwsElasticBlockStore | None) -> str:
    text = source.volume_id if source is not None else ""
    if not text.startswith("aws://"):
        return text
    identity = urlsplit(text).path.strip("/")
    if _AWS_VOLUME.fullmatch(identity) is None:
        raise StorageError(f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({text})")
    return identity


def _azure_handle(source: AzureDisk | None) -> str:
    if source is None:
        return ""
    if source.kind is not None and source.kind.lower() != "managed":
        raise StorageError(f"kind({source.kind}) is not supported in csi migration")
    return source.disk_uri


_HANDLES: dict[str, _Handle] = {
    "gce": _gce_handle,
    "aws": lambda volume: _aws_handle(volume.spec.aws),
    "azure_disk": lambda volume: _azure_handle(volume.spec.azure_disk),
    "cinder": lambda volume: volume.spec.cinder.volume_id if volume.spec.cinder is not None else "",
    "portworx": lambda volume: volume.spec.portworx.volume_id if volume.spec.portworx is not None else "",
}
_INLINE_HANDLES: dict[str, _InlineHandle] = {
    "gce": _gce_inline_handle,
    "aws": lambda volume: _aws_handle(volume.aws),
    "azure_disk": lambda volume: _azure_handle(volume.azure_disk),
    "cinder": lambda volume: volume.cinder.volume_id if volume.cinder is not None else "",
    "portworx": lambda volume: volume.portworx.volume_id if volume.portworx is not None else "",
}
