"""Claims, disks, inline volumes and drivers of a pod's volumes."""

from scheduler_core.model.pod import (
    AwsElasticBlockStore,
    AzureDisk,
    GcePersistentDisk,
    InlineCsi,
    RbdVolume,
    Volume,
    VsphereVolume,
)
from scheduler_core.model.pod_volumes import NO_VOLUMES, ClaimReference, DiskUse, InlineVolume, PodVolumes, pod_volumes
from tests.support.builders import pod
from tests.support.storage import mounts, scratch
from tests.support.tables import table

GCE_HANDLE = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"


@table(
    "volumes, expected",
    ("none", [], NO_VOLUMES),
    ("irrelevant-volumes", [Volume(name="token"), Volume(csi=InlineCsi("x"))], NO_VOLUMES),
    (
        "claims",
        [*mounts("data"), scratch()],
        PodVolumes(
            (
                ClaimReference("default/data", "data"),
                ClaimReference("default/pod-scratch", "pod-scratch", is_ephemeral=True),
            )
        ),
    ),
    (
        "migrated-disk",
        [Volume(name="g", gce=GcePersistentDisk("d", read_only=True))],
        PodVolumes(
            disks=(DiskUse((("gce", "d"),), read_only=True),),
            inline=(InlineVolume("g", ("pd.csi.storage.gke.io", GCE_HANDLE)),),
            drivers=("pd.csi.storage.gke.io",),
        ),
    ),
    (
        "ebs-is-never-shared",
        [Volume(name="a", aws=AwsElasticBlockStore("vol-1", read_only=True))],
        PodVolumes(
            disks=(DiskUse((("aws", "vol-1"),)),),
            inline=(InlineVolume("a", ("ebs.csi.aws.com", "vol-1")),),
            drivers=("ebs.csi.aws.com",),
        ),
    ),
    (
        "one-identity-per-monitor",
        [Volume(rbd=RbdVolume(("m", "n", "m"), "i", "p"))],
        PodVolumes(disks=(DiskUse((("rbd", "p", "i", "m"), ("rbd", "p", "i", "n"))),)),
    ),
    ("not-counted", [Volume(vsphere=VsphereVolume("v"))], PodVolumes(drivers=("csi.vsphere.vmware.com",))),
    (
        "untranslatable",
        [Volume(name="z", azure_disk=AzureDisk("d", "/d", "Shared"))],
        PodVolumes(
            inline=(InlineVolume("z", ("disk.csi.azure.com", ""), "kind(Shared) is not supported in csi migration"),),
            drivers=("disk.csi.azure.com",),
        ),
    ),
)
def test_volumes_of_a_pod(volumes: list[Volume], expected: PodVolumes) -> None:
    """Each kind of volume is listed in the field that its plugin reads."""
    assert pod_volumes(pod(volumes=volumes)) == expected


def test_pods_without_volumes_share_one_value() -> None:
    """A pod without relevant volumes is recognised by identity with NO_VOLUMES."""
    assert pod_volumes(pod(volumes=[Volume(name="token")])) is NO_VOLUMES
