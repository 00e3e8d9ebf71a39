"""NodeVolumeLimits: a node attaches at most as many volumes of a driver as its CSINode allows."""

import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.pod import AwsElasticBlockStore, AzureDisk, Pod, Volume, VsphereVolume
from scheduler_core.model.storage import StorageObject
from scheduler_core.plugins.node_volume_limits import (
    NodeVolumeLimits,
    after_attachment_deletion,
    after_claim_creation,
    after_csi_node_update,
    after_pod_deletion,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_statuses
from tests.support.storage import (
    attachment,
    claim,
    columns_with_storage,
    csi_driver,
    csi_node,
    mounts,
    scratch,
    storage_class,
    volume,
)
from tests.support.tables import table

DRIVER = "disk.example.com"
EBS = "ebs.csi.aws.com"
FULL = Status(Code.UNSCHEDULABLE, ("node(s) exceed max volume count",))
EBS_VOLUME = Volume(name="e", aws=AwsElasticBlockStore("vol-1"))


def node_statuses(incoming: Pod, nodes: NodeColumns) -> list[Status]:
    status, found = filter_statuses(NodeVolumeLimits(None, FakeHandle(nodes=nodes)), incoming, nodes)
    assert status.is_success
    return found


def pairs(*names: str, driver: str = DRIVER) -> list[StorageObject]:
    """Return a claim and its volume for each name."""
    objects: list[StorageObject] = []
    for name in names:
        objects += [claim(name, volume=f"pv-{name}"), volume(f"pv-{name}", csi=(driver, name))]
    return objects


@table(
    "limits, fits",
    ("one-more-allowed", {DRIVER: 2}, True),
    ("full", {DRIVER: 1}, False),
    ("limit-0", {DRIVER: 0}, False),
    ("no-limit", {DRIVER: None}, True),
    ("another-driver", {"other": 0}, True),
    ("no-csi-node", None, True),
)
def test_limit_of_a_driver(limits: dict[str, int | None] | None, fits: bool) -> None:
    """A node that has one volume and would attach another is rejected if its limit is below 2."""
    storage = pairs("old", "new")
    if limits is not None:
        storage.append(csi_node("a", limits))
    nodes = columns_with_storage([node("a"), node("b")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert node_statuses(pod(volumes=mounts("new")), nodes) == [SUCCESS if fits else FULL, SUCCESS]


@table(
    "claims, fits",
    ("attached-volume", ("old",), True),
    ("attached-and-new-volume", ("old", "new"), True),
    ("new-volume-twice", ("new", "new"), True),
    ("two-new-volumes", ("new", "newer"), False),
)
def test_volume_is_attached_once(claims: tuple[str, ...], fits: bool) -> None:
    """An attached or repeated volume counts once; the limit is two and one volume is attached."""
    storage = [*pairs("old", "new", "newer"), csi_node("a", {DRIVER: 2})]
    nodes = columns_with_storage([node("a")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert node_statuses(pod(volumes=mounts(*claims)), nodes) == [SUCCESS if fits else FULL]


@table(
    "attached, fits",
    ("of-the-running-pod", "pv-old", True),
    ("of-no-pod", "pv-stray", False),
    ("of-the-pod-itself", "pv-new", False),
    ("of-a-deleted-volume", "pv-gone", True),
)
def test_attachments_count(attached: str, fits: bool) -> None:
    """Attachments count towards the limit of two, even one of a volume that the pod itself uses."""
    storage = [*pairs("old", "new", "stray"), csi_node("a", {DRIVER: 2}), attachment("va", DRIVER, "a", attached)]
    nodes = columns_with_storage([node("a")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert node_statuses(pod(volumes=mounts("new")), nodes) == [SUCCESS if fits else FULL]


@table(
    "required, storage, incoming, missing",
    ("required", True, pairs("new"), pod(volumes=mounts("new")), [False, True, True]),
    ("not-required", None, pairs("new"), pod(volumes=mounts("new")), [False, False, False]),
    ("of-the-class", True, [claim(), storage_class("local", DRIVER)], pod(volumes=mounts("data")), [False, True, True]),
    ("another-driver", True, pairs("new", driver="other"), pod(volumes=mounts("new")), [False, False, False]),
)
def test_required_driver_is_missing(
    required: bool | None, storage: list[StorageObject], incoming: Pod, missing: list[bool]
) -> None:
    """A CSIDriver can require that it is installed; a node without a CSINode then rejects the pod."""
    driver = csi_driver(DRIVER, must_be_installed=required)
    nodes = columns_with_storage(
        [node("a"), node("b"), node("c")], [*storage, driver, csi_node("a", {DRIVER: None}), csi_node("b")]
    )
    rejected = Status(Code.UNSCHEDULABLE, (f"{DRIVER} CSI driver is not installed on the node",))
    assert node_statuses(incoming, nodes) == [rejected if absent else SUCCESS for absent in missing]


def test_required_driver_of_in_tree_volumes() -> None:
    """An in-tree volume is rejected by nodes without the driver or without a CSINode."""
    driver = csi_driver(EBS, must_be_installed=True)
    nodes = columns_with_storage([node("a"), node("b"), node("c")], [driver, csi_node("a", {EBS: 5}), csi_node("b")])
    rejected = Status(Code.UNSCHEDULABLE, (f"{EBS} CSI driver is not installed on the node",))
    assert node_statuses(pod(volumes=[EBS_VOLUME]), nodes) == [SUCCESS, rejected, SUCCESS]


def test_missing_driver_is_reported_before_the_limit() -> None:
    """The first of several missing drivers is reported; a full node only if no driver is missing."""
    drivers = [csi_driver(name, must_be_installed=True) for name in ("x", "y")]
    storage = [*pairs("full"), *pairs("one", driver="x"), *pairs("two", driver="y"), *drivers]
    nodes = columns_with_storage(
        [node("a"), node("b")], [*storage, csi_node("a", {DRIVER: 0, "x": None}), csi_node("b", {"y": 1})]
    )
    assert [status.reasons for status in node_statuses(pod(volumes=mounts("full", "one", "two")), nodes)] == [
        ("y CSI driver is not installed on the node",),
        ("x CSI driver is not installed on the node",),
    ]


@table(
    "storage, incoming, fits",
    ("inline", [], pod(volumes=[EBS_VOLUME]), False),
    ("class", [claim(), storage_class("local", "kubernetes.io/aws-ebs")], pod(volumes=mounts("data")), False),
    ("not-migrated", [], pod(volumes=[Volume(vsphere=VsphereVolume("x"))]), True),
)
def test_in_tree_volumes_count_for_their_driver(storage: list[StorageObject], incoming: Pod, fits: bool) -> None:
    """In-tree volumes count towards the limit of their migrated CSI driver."""
    limits = csi_node("a", {EBS: 0, "csi.vsphere.vmware.com": 0})
    nodes = columns_with_storage([node("a"), node("b")], [*storage, limits])
    assert node_statuses(incoming, nodes) == [SUCCESS if fits else FULL, SUCCESS]


def test_missing_claim_rejects_every_node() -> None:
    """The rejection is unresolvable by preemption."""
    reason = 'looking up PVC default/gone: persistentvolumeclaim "gone" not found'
    expected = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
    nodes = columns_with_storage([node("a"), node("b")], pairs("new"))
    assert node_statuses(pod(volumes=mounts("new", "gone")), nodes) == [expected, expected]


def test_ephemeral_claim_of_another_owner_is_an_error() -> None:
    """A claim with the name of the pod's ephemeral claim, but with another owner, raises PluginError."""
    nodes = columns_with_storage([node("a")], [claim("pod-scratch", owner="someone")])
    with pytest.raises(PluginError, match="pod is not owner"):
        node_statuses(pod(volumes=[scratch()]), nodes)


def test_untranslatable_volume_is_an_error_on_nodes_with_a_csi_node() -> None:
    """An untranslatable in-tree volume raises PluginError only if a node has a CSINode."""
    incoming = pod(volumes=[Volume(name="z", azure_disk=AzureDisk("d", "/d", "Shared"))])
    assert node_statuses(incoming, columns_with_storage([node("a")], ())) == [SUCCESS]
    with pytest.raises(PluginError, match="kind\\(Shared\\) is not supported"):
        node_statuses(incoming, columns_with_storage([node("a")], [csi_node("a")]))


@table(
    "incoming, skips",
    ("no-volumes", pod(), True),
    ("claim", pod(volumes=mounts("data")), False),
    ("ephemeral", pod(volumes=[scratch()]), False),
    ("in-tree", pod(volumes=[EBS_VOLUME]), False),
)
def test_a_pod_without_counted_volumes_is_skipped(incoming: Pod, skips: bool) -> None:
    """PreFilter skips a pod without volumes that count."""
    nodes = NodeColumns()
    plugin, info = NodeVolumeLimits(None, FakeHandle(nodes=nodes)), nodes.compile_pod(incoming)
    assert plugin.pre_filter(CycleState(), info, nodes).status.is_skip is skips


@table(
    "old, new, hint",
    ("raised", {DRIVER: 1}, {DRIVER: 2}, Hint.QUEUE),
    ("lowered", {DRIVER: 2}, {DRIVER: 1}, Hint.SKIP),
    ("driver-added", {}, {DRIVER: 1}, Hint.QUEUE),
    ("no-limit-counts-as-0", {DRIVER: 1}, {DRIVER: None}, Hint.SKIP),
)
def test_hint_after_a_csi_nodes_update(old: dict[str, int | None], new: dict[str, int | None], hint: Hint) -> None:
    """A pod is requeued if a limit was raised."""
    assert after_csi_node_update(pod(), csi_node("a", old), csi_node("a", new)) is hint


@table(
    "deleted, hint",
    ("claim", pod("p", node_name="a", volumes=mounts("x")), Hint.QUEUE),
    ("ephemeral", pod("p", node_name="a", volumes=[scratch()]), Hint.QUEUE),
    ("in-tree", pod("p", node_name="a", volumes=[EBS_VOLUME]), Hint.QUEUE),
    ("nominated", pod("p", nominated_node="a", volumes=mounts("x")), Hint.QUEUE),
    ("without-a-node", pod("p", volumes=mounts("x")), Hint.SKIP),
    ("no-volumes", pod("p", node_name="a"), Hint.SKIP),
    ("unknown", None, Hint.QUEUE),
)
def test_hint_after_a_deleted_pod(deleted: Pod | None, hint: Hint) -> None:
    """A pod is requeued if the deleted pod had a node and volumes that count."""
    assert after_pod_deletion(pod(), deleted, None) is hint


@table(
    "new, hint",
    ("named", claim("data"), Hint.QUEUE),
    ("ephemeral", claim("pod-scratch"), Hint.QUEUE),
    ("another-namespace", claim("data", namespace="x"), Hint.SKIP),
    ("unknown", None, Hint.QUEUE),
)
def test_hint_after_a_created_claim(new: object, hint: Hint) -> None:
    """A pod is requeued if the claim is one of its own, named or ephemeral."""
    assert after_claim_creation(pod(volumes=[*mounts("data"), scratch()]), None, new) is hint


@table(
    "incoming, hint",
    ("any-claim", pod(volumes=mounts("data")), Hint.QUEUE),
    ("ephemeral", pod(volumes=[scratch()]), Hint.SKIP),
    ("in-tree-of-the-driver", pod(volumes=[EBS_VOLUME]), Hint.QUEUE),
    ("in-tree-of-another-driver", pod(volumes=[Volume(vsphere=VsphereVolume("x"))]), Hint.SKIP),
    ("untranslatable", pod(volumes=[Volume(aws=AwsElasticBlockStore("aws://z/x"))]), Hint.QUEUE),
)
def test_hint_after_a_deleted_attachment(incoming: Pod, hint: Hint) -> None:
    """A pod is requeued if it has a claim, or an in-tree volume of the same driver."""
    assert after_attachment_deletion(incoming, attachment("va", EBS, "a", None), None) is hint
