"""Translation of in-tree volumes to CSI drivers and handles."""

import msgspec
import pytest

from scheduler_core.errors import StorageError
from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.pod import (
    AwsElasticBlockStore,
    AzureDisk,
    AzureFile,
    CinderVolume,
    GcePersistentDisk,
    PortworxVolume,
    Volume,
    VsphereVolume,
)
from scheduler_core.model.pod_volumes import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    in_tree_plugin,
    in_tree_plugin_named,
    translated_affinity,
    translated_handle,
)
from scheduler_core.model.storage import PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity
from tests.support.presence import present
from tests.support.storage import volume
from tests.support.tables import table

EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def of_aws(identity: str) -> PersistentVolumeSpec:
    return PersistentVolumeSpec(aws=AwsElasticBlockStore(identity))


def of_azure(kind: str | None) -> PersistentVolumeSpec:
    return PersistentVolumeSpec(azure_disk=AzureDisk("d", "/disks/d", kind))


GCE = PersistentVolumeSpec(gce=GcePersistentDisk("d"))


@table(
    "spec, labels, driver, handle",
    ("aws-bare", of_aws("vol-1"), {}, "ebs.csi.aws.com", "vol-1"),
    ("aws-with-zone", of_aws("aws://zone/vol-1"), {}, "ebs.csi.aws.com", "vol-1"),
    ("aws-without-zone", of_aws("aws:///vol-1"), {}, "ebs.csi.aws.com", "vol-1"),
    ("gce-anywhere", GCE, {}, "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
    ("gce-zonal", GCE, {ZONE: "r-1-a"}, "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/r-1-a/disks/d"),
    (
        "gce-regional-by-the-beta-label",
        GCE,
        {BETA_ZONE: "r-1-a__r-1-b", ZONE: "x"},
        "pd.csi.storage.gke.io",
        "projects/UNSPECIFIED/regions/r-1/disks/d",
    ),
    ("azure", of_azure(None), {}, "disk.csi.azure.com", "/disks/d"),
    ("azure-managed", of_azure("MANAGED"), {}, "disk.csi.azure.com", "/disks/d"),
    ("cinder", PersistentVolumeSpec(cinder=CinderVolume("c")), {}, "cinder.csi.openstack.org", "c"),
    ("portworx", PersistentVolumeSpec(portworx=PortworxVolume("p")), {}, "pxd.portworx.com", "p"),
)
def test_handle_of_a_volume(spec: PersistentVolumeSpec, labels: dict[str, str], driver: str, handle: str) -> None:
    """Drivers and handles equal those of Kubernetes' CSI translation library."""
    pv = volume(spec=spec, labels=labels)
    plugin = present(in_tree_plugin(pv))
    assert (plugin.driver, translated_handle(pv, plugin)) == (driver, handle)
    assert in_tree_plugin_named(plugin.name) is plugin


@table(
    "spec, labels, problem",
    ("aws-no-volume", of_aws("aws://zone/disk"), {}, "Invalid format"),
    ("azure-kind", of_azure("Dedicated"), {}, "kind\\(Dedicated\\)"),
    ("gce-odd-zone", GCE, {ZONE: "r-1-a__x"}, "unexpected format"),
    ("gce-two-regions", GCE, {ZONE: "r-1-a__r-2-a"}, "multiple or no regions"),
)
def test_untranslatable_volumes(spec: PersistentVolumeSpec, labels: dict[str, str], problem: str) -> None:
    """The error names the invalid part of the volume."""
    pv = volume(spec=spec, labels=labels)
    plugin = present(in_tree_plugin(pv))
    with pytest.raises(StorageError, match=problem):
        translated_handle(pv, plugin)


@table(
    "inline, handle",
    ("aws", Volume(aws=AwsElasticBlockStore("aws://z/vol-1")), "vol-1"),
    ("gce", Volume(gce=GcePersistentDisk("d")), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
    ("azure", Volume(azure_disk=AzureDisk("d", "/disks/d")), "/disks/d"),
    ("cinder", Volume(cinder=CinderVolume("c")), "c"),
    ("portworx", Volume(portworx=PortworxVolume("p")), "p"),
)
def test_handle_of_an_inline_volume(inline: Volume, handle: str) -> None:
    """An inline volume has no labels, so that its handle has no zone."""
    plugin = present(in_tree_plugin(inline))
    assert plugin.is_migrated
    assert translated_handle(inline, plugin) == handle


@table(
    "source",
    ("inline-azure-file", Volume(azure_file=AzureFile())),
    ("inline-vsphere", Volume(vsphere=VsphereVolume("v"))),
    ("azure-file", volume(spec=PersistentVolumeSpec(azure_file=AzureFile()))),
    ("vsphere", volume(spec=PersistentVolumeSpec(vsphere=VsphereVolume("v")))),
)
def test_plugins_that_are_not_migrated(source: PersistentVolume | Volume) -> None:
    """Azure File and vSphere have CSI drivers, but kube-scheduler does not treat them as migrated."""
    plugin = present(in_tree_plugin(source))
    assert not plugin.is_migrated


def term(*expressions: tuple[str, str]) -> NodeSelectorTerm:
    return NodeSelectorTerm(tuple(Requirement(key, "In", (value,)) for key, value in expressions))


def affinity(*terms: NodeSelectorTerm) -> VolumeNodeAffinity:
    return VolumeNodeAffinity(NodeSelector(terms))


@table(
    "before, labels, after",
    ("none", None, {}, None),
    ("zone", affinity(term((ZONE, "z"))), {}, affinity(term((EBS_ZONE, "z")))),
    (
        "every-term",
        affinity(term((ZONE, "z"), ("x", "y")), term((ZONE, "w"))),
        {},
        affinity(term((EBS_ZONE, "z"), ("x", "y")), term((EBS_ZONE, "w"))),
    ),
    (
        "beta-labels",
        affinity(term((BETA_ZONE, "z"), (BETA_REGION, "r"))),
        {},
        affinity(term((EBS_ZONE, "z"), (REGION, "r"))),
    ),
    (
        "beta-region-with-ga-zone",
        affinity(term((ZONE, "z"), (BETA_REGION, "r"))),
        {},
        affinity(term((EBS_ZONE, "z"), (BETA_REGION, "r"))),
    ),
    ("zone-of-the-labels", None, {ZONE: "z"}, affinity(term((EBS_ZONE, "z")))),
    ("added", affinity(term(("x", "y"))), {BETA_ZONE: "z"}, affinity(term(("x", "y"), (EBS_ZONE, "z")))),
    ("affinity-first", affinity(term((ZONE, "z"))), {ZONE: "w"}, affinity(term((EBS_ZONE, "z")))),
    ("no-zone-in-the-label", None, {ZONE: " "}, None),
)
def test_affinity_of_a_translated_volume(
    before: VolumeNodeAffinity | None, labels: dict[str, str], after: VolumeNodeAffinity | None
) -> None:
    """Zone labels are replaced by the driver's own topology label."""
    pv = volume(spec=of_aws("vol-1"), labels=labels)
    pv = msgspec.structs.replace(pv, spec=msgspec.structs.replace(pv.spec, node_affinity=before))
    plugin = present(in_tree_plugin(pv))
    assert translated_affinity(pv, plugin) == after


def test_zones_of_a_label_are_sorted_and_distinct() -> None:
    """Zones that a label names twice occur once."""
    pv = volume(spec=of_aws("vol-1"), labels={ZONE: "b__ a__b"})
    plugin = present(in_tree_plugin(pv))
    found = translated_affinity(pv, plugin)
    assert found == affinity(NodeSelectorTerm((Requirement(EBS_ZONE, "In", ("a", "b")),)))


def test_driver_without_zones_does_not_change_the_affinity() -> None:
    """The node affinity of an Azure disk is unchanged."""
    pv = volume(spec=of_azure(None), on={ZONE: ["z"]})
    plugin = present(in_tree_plugin(pv))
    assert translated_affinity(pv, plugin) == pv.spec.node_affinity


def test_other_sources_belong_to_no_plugin() -> None:
    """CSI volumes and volumes without a source have no in-tree plugin."""
    assert in_tree_plugin(volume(csi=("d", "h"))) is None
    assert in_tree_plugin(Volume(name="x")) is None
    assert in_tree_plugin_named("disk.example.com") is None
