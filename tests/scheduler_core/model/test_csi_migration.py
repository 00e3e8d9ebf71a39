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
    translated_inline_handle,
)
from scheduler_core.model.storage import AzureFileVolume, PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity
from tests.support.storage import volume

EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def of_aws(identity: str) -> PersistentVolumeSpec:
    return PersistentVolumeSpec(aws=AwsElasticBlockStore(identity))


def of_azure(kind: str | None) -> PersistentVolumeSpec:
    return PersistentVolumeSpec(azure_disk=AzureDisk("d", "/disks/d", kind))


GCE = PersistentVolumeSpec(gce=GcePersistentDisk("d"))


@pytest.mark.parametrize(
    ("spec", "labels", "driver", "handle"),
    [
        pytest.param(of_aws("vol-1"), {}, "ebs.csi.aws.com", "vol-1", id="aws-bare"),
        pytest.param(of_aws("aws://zone/vol-1"), {}, "ebs.csi.aws.com", "vol-1", id="aws-with-zone"),
        pytest.param(of_aws("aws:///vol-1"), {}, "ebs.csi.aws.com", "vol-1", id="aws-without-zone"),
        pytest.param(
            GCE, {}, "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", id="gce-anywhere"
        ),
        pytest.param(
            GCE, {ZONE: "r-1-a"}, "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/r-1-a/disks/d", id="gce-zonal"
        ),
        pytest.param(
            GCE,
            {BETA_ZONE: "r-1-a__r-1-b", ZONE: "x"},
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/regions/r-1/disks/d",
            id="gce-regional-by-the-beta-label",
        ),
        pytest.param(of_azure(None), {}, "disk.csi.azure.com", "/disks/d", id="azure"),
        pytest.param(of_azure("MANAGED"), {}, "disk.csi.azure.com", "/disks/d", id="azure-managed"),
        pytest.param(PersistentVolumeSpec(cinder=CinderVolume("c")), {}, "cinder.csi.openstack.org", "c", id="cinder"),
        pytest.param(PersistentVolumeSpec(portworx=PortworxVolume("p")), {}, "pxd.portworx.com", "p", id="portworx"),
    ],
)
def test_handle_of_a_volume(spec: PersistentVolumeSpec, labels: dict[str, str], driver: str, handle: str) -> None:
    """Drivers and handles equal those of Kubernetes' CSI translation library."""
    pv = volume(spec=spec, labels=labels)
    plugin = in_tree_plugin(pv)
    assert plugin is not None
    assert (plugin.driver, translated_handle(pv, plugin)) == (driver, handle)
    assert in_tree_plugin_named(plugin.name) is plugin


@pytest.mark.parametrize(
    ("spec", "labels", "problem"),
    [
        pytest.param(of_aws("aws://zone/disk"), {}, "Invalid format", id="aws-no-volume"),
        pytest.param(of_azure("Dedicated"), {}, "kind\\(Dedicated\\)", id="azure-kind"),
        pytest.param(GCE, {ZONE: "r-1-a__x"}, "unexpected format", id="gce-odd-zone"),
        pytest.param(GCE, {ZONE: "r-1-a__r-2-a"}, "multiple or no regions", id="gce-two-regions"),
    ],
)
def test_untranslatable_volumes(spec: PersistentVolumeSpec, labels: dict[str, str], problem: str) -> None:
    """The error names the invalid part of the volume."""
    pv = volume(spec=spec, labels=labels)
    plugin = in_tree_plugin(pv)
    assert plugin is not None
    with pytest.raises(StorageError, match=problem):
        translated_handle(pv, plugin)


@pytest.mark.parametrize(
    ("inline", "handle"),
    [
        pytest.param(Volume(aws=AwsElasticBlockStore("aws://z/vol-1")), "vol-1", id="aws"),
        pytest.param(Volume(gce=GcePersistentDisk("d")), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", id="gce"),
        pytest.param(Volume(azure_disk=AzureDisk("d", "/disks/d")), "/disks/d", id="azure"),
        pytest.param(Volume(cinder=CinderVolume("c")), "c", id="cinder"),
        pytest.param(Volume(portworx=PortworxVolume("p")), "p", id="portworx"),
    ],
)
def test_handle_of_an_inline_volume(inline: Volume, handle: str) -> None:
    """An inline volume has no labels, so that its handle has no zone."""
    plugin = in_tree_plugin(inline)
    assert plugin is not None
    assert plugin.is_migrated
    assert translated_inline_handle(inline, plugin) == handle


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(Volume(azure_file=AzureFile("s", "x")), id="inline-azure-file"),
        pytest.param(Volume(vsphere=VsphereVolume("v")), id="inline-vsphere"),
        pytest.param(volume(spec=PersistentVolumeSpec(azure_file=AzureFileVolume("s", "x"))), id="azure-file"),
        pytest.param(volume(spec=PersistentVolumeSpec(vsphere=VsphereVolume("v"))), id="vsphere"),
    ],
)
def test_plugins_that_are_not_migrated(source: PersistentVolume | Volume) -> None:
    """Azure File and vSphere have CSI drivers, but kube-scheduler does not treat them as migrated."""
    plugin = in_tree_plugin(source)
    assert plugin is not None
    assert not plugin.is_migrated


def term(*expressions: tuple[str, str]) -> NodeSelectorTerm:
    return NodeSelectorTerm(tuple(Requirement(key, "In", (value,)) for key, value in expressions))


def affinity(*terms: NodeSelectorTerm) -> VolumeNodeAffinity:
    return VolumeNodeAffinity(NodeSelector(terms))


@pytest.mark.parametrize(
    ("before", "labels", "after"),
    [
        pytest.param(None, {}, None, id="none"),
        pytest.param(affinity(term((ZONE, "z"))), {}, affinity(term((EBS_ZONE, "z"))), id="zone"),
        pytest.param(
            affinity(term((ZONE, "z"), ("x", "y")), term((ZONE, "w"))),
            {},
            affinity(term((EBS_ZONE, "z"), ("x", "y")), term((EBS_ZONE, "w"))),
            id="every-term",
        ),
        pytest.param(
            affinity(term((BETA_ZONE, "z"), (BETA_REGION, "r"))),
            {},
            affinity(term((EBS_ZONE, "z"), (REGION, "r"))),
            id="beta-labels",
        ),
        pytest.param(
            affinity(term((ZONE, "z"), (BETA_REGION, "r"))),
            {},
            affinity(term((EBS_ZONE, "z"), (BETA_REGION, "r"))),
            id="beta-region-with-ga-zone",
        ),
        pytest.param(None, {ZONE: "z"}, affinity(term((EBS_ZONE, "z"))), id="zone-of-the-labels"),
        pytest.param(
            affinity(term(("x", "y"))), {BETA_ZONE: "z"}, affinity(term(("x", "y"), (EBS_ZONE, "z"))), id="added"
        ),
        pytest.param(affinity(term((ZONE, "z"))), {ZONE: "w"}, affinity(term((EBS_ZONE, "z"))), id="affinity-first"),
        pytest.param(None, {ZONE: " "}, None, id="no-zone-in-the-label"),
    ],
)
def test_affinity_of_a_translated_volume(
    before: VolumeNodeAffinity | None, labels: dict[str, str], after: VolumeNodeAffinity | None
) -> None:
    """Zone labels are replaced by the driver's own topology label."""
    pv = volume(spec=of_aws("vol-1"), labels=labels)
    pv = msgspec.structs.replace(pv, spec=msgspec.structs.replace(pv.spec, node_affinity=before))
    plugin = in_tree_plugin(pv)
    assert plugin is not None
    assert translated_affinity(pv, plugin) == after


def test_zones_of_a_label_are_sorted_and_distinct() -> None:
    """Zones that a label names twice occur once."""
    pv = volume(spec=of_aws("vol-1"), labels={ZONE: "b__ a__b"})
    plugin = in_tree_plugin(pv)
    assert plugin is not None
    found = translated_affinity(pv, plugin)
    assert found == affinity(NodeSelectorTerm((Requirement(EBS_ZONE, "In", ("a", "b")),)))


def test_driver_without_zones_does_not_change_the_affinity() -> None:
    """The node affinity of an Azure disk is unchanged."""
    pv = volume(spec=of_azure(None), on={ZONE: ["z"]})
    plugin = in_tree_plugin(pv)
    assert plugin is not None
    assert translated_affinity(pv, plugin) == pv.spec.node_affinity


def test_other_sources_belong_to_no_plugin() -> None:
    """CSI volumes and volumes without a source have no in-tree plugin."""
    assert in_tree_plugin(volume(csi=("d", "h"))) is None
    assert in_tree_plugin(Volume(name="x")) is None
    assert in_tree_plugin_named("disk.example.com") is None
