"""NodeVolumeLimits: a node attaches at most as many volumes of a driver as its CSINode allows."""

import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
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


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        pytest.param({DRIVER: 2}, True, id="one-more-allowed"),
        pytest.param({DRIVER: 1}, False, id="full"),
        pytest.param({DRIVER: 0}, False, id="limit-0"),
        pytest.param({DRIVER: None}, True, id="no-limit"),
        pytest.param({"other": 0}, True, id="another-driver"),
        pytest.param(None, True, id="no-csi-node"),
    ],
)
def test_limit_of_a_driver(limits: dict[str, int | None] | None, fits: bool) -> None:
    """A node that has one volume and would attach another is rejected if its limit is below 2."""
    storage = pairs("old", "new")
    if limits is not None:
        storage.append(csi_node("a", limits))
    nodes = columns_with_storage([node("a"), node("b")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert node_statuses(pod(volumes=mounts("new")), nodes) == [SUCCESS if fits else FULL, SUCCESS]


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        pytest.param(("old",), True, id="attached-volume"),
        pytest.param(("old", "new"), True, id="attached-and-new-volume"),
        pytest.param(("new", "new"), True, id="new-volume-twice"),
        pytest.param(("new", "newer"), False, id="two-new-volumes"),
    ],
)
def test_volume_is_attached_once(claims: tuple[str, ...], fits: bool) -> None:
    """An attached or repeated volume counts once; the limit is two and one volume is attached."""
    storage = [*pairs("old", "new", "newer"), csi_node("a", {DRIVER: 2})]
    nodes = columns_with_storage([node("a")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert node_statuses(pod(volumes=mounts(*claims)), nodes) == [SUCCESS if fits else FULL]


@pytest.mark.parametrize(
    ("attached", "fits"),
    [
        pytest.param("pv-old", True, id="of-the-running-pod"),
        pytest.param("pv-stray", False, id="of-no-pod"),
        pytest.param("pv-new", False, id="of-the-pod-itself"),
        pytest.param("pv-gone", True, id="of-a-deleted-volume"),
    ],
)
def test_attachments_count(attached: str, fits: bool) -> None:
    """Attachments count towards the limit of two, even one of a volume that the pod itself uses."""
    storage = [*pairs("old", "new", "stray"), csi_node("a", {DRIVER: 2}), attachment("va", DRIVER, "a", attached)]
    nodes = columns_with_storage([node("a")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert node_statuses(pod(volumes=mounts("new")), nodes) == [SUCCESS if fits else FULL]


@pytest.mark.parametrize(
    ("required", "storage", "incoming", "missing"),
    [
        pytest.param(True, pairs("new"), pod(volumes=mounts("new")), [False, True, True], id="required"),
        pytest.param(None, pairs("new"), pod(volumes=mounts("new")), [False, False, False], id="not-required"),
        pytest.param(
            True,
            [claim(), storage_class("local", DRIVER)],
            pod(volumes=mounts("data")),
            [False, True, True],
            id="of-the-class",
        ),
        pytest.param(
            True, pairs("new", driver="other"), pod(volumes=mounts("new")), [False, False, False], id="another-driver"
        ),
    ],
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


@pytest.mark.parametrize(
    ("storage", "incoming", "fits"),
    [
        pytest.param([], pod(volumes=[EBS_VOLUME]), False, id="inline"),
        pytest.param(
            [claim(), storage_class("local", "kubernetes.io/aws-ebs")], pod(volumes=mounts("data")), False, id="class"
        ),
        pytest.param([], pod(volumes=[Volume(vsphere=VsphereVolume("x"))]), True, id="not-migrated"),
    ],
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


@pytest.mark.parametrize(
    ("incoming", "skips"),
    [
        pytest.param(pod(), True, id="no-volumes"),
        pytest.param(pod(volumes=mounts("data")), False, id="claim"),
        pytest.param(pod(volumes=[scratch()]), False, id="ephemeral"),
        pytest.param(pod(volumes=[EBS_VOLUME]), False, id="in-tree"),
    ],
)
def test_a_pod_without_counted_volumes_is_skipped(incoming: Pod, skips: bool) -> None:
    """PreFilter skips a pod without volumes that count."""
    nodes = NodeColumns()
    plugin, info = NodeVolumeLimits(None, FakeHandle(nodes=nodes)), nodes.compile_pod(incoming)
    assert plugin.pre_filter(CycleState(), info, nodes).status.is_skip is skips


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param({DRIVER: 1}, {DRIVER: 2}, Hint.QUEUE, id="raised"),
        pytest.param({DRIVER: 2}, {DRIVER: 1}, Hint.SKIP, id="lowered"),
        pytest.param({}, {DRIVER: 1}, Hint.QUEUE, id="driver-added"),
        pytest.param({DRIVER: 1}, {DRIVER: None}, Hint.SKIP, id="no-limit-counts-as-0"),
    ],
)
def test_hint_after_a_csi_nodes_update(old: dict[str, int | None], new: dict[str, int | None], hint: Hint) -> None:
    """A pod is requeued if a limit was raised."""
    assert after_csi_node_update(pod(), csi_node("a", old), csi_node("a", new)) is hint


@pytest.mark.parametrize(
    ("deleted", "hint"),
    [
        pytest.param(pod("p", node_name="a", volumes=mounts("x")), Hint.QUEUE, id="claim"),
        pytest.param(pod("p", node_name="a", volumes=[scratch()]), Hint.QUEUE, id="ephemeral"),
        pytest.param(pod("p", node_name="a", volumes=[EBS_VOLUME]), Hint.QUEUE, id="in-tree"),
        pytest.param(pod("p", nominated_node="a", volumes=mounts("x")), Hint.QUEUE, id="nominated"),
        pytest.param(pod("p", volumes=mounts("x")), Hint.SKIP, id="without-a-node"),
        pytest.param(pod("p", node_name="a"), Hint.SKIP, id="no-volumes"),
        pytest.param(None, Hint.QUEUE, id="unknown"),
    ],
)
def test_hint_after_a_deleted_pod(deleted: Pod | None, hint: Hint) -> None:
    """A pod is requeued if the deleted pod had a node and volumes that count."""
    assert after_pod_deletion(pod(), deleted, None) is hint


@pytest.mark.parametrize(
    ("new", "hint"),
    [
        pytest.param(claim("data"), Hint.QUEUE, id="named"),
        pytest.param(claim("pod-scratch"), Hint.QUEUE, id="ephemeral"),
        pytest.param(claim("data", namespace="x"), Hint.SKIP, id="another-namespace"),
        pytest.param(None, Hint.QUEUE, id="unknown"),
    ],
)
def test_hint_after_a_created_claim(new: object, hint: Hint) -> None:
    """A pod is requeued if the claim is one of its own, named or ephemeral."""
    assert after_claim_creation(pod(volumes=[*mounts("data"), scratch()]), None, new) is hint


@pytest.mark.parametrize(
    ("incoming", "hint"),
    [
        pytest.param(pod(volumes=mounts("data")), Hint.QUEUE, id="any-claim"),
        pytest.param(pod(volumes=[scratch()]), Hint.SKIP, id="ephemeral"),
        pytest.param(pod(volumes=[EBS_VOLUME]), Hint.QUEUE, id="in-tree-of-the-driver"),
        pytest.param(pod(volumes=[Volume(vsphere=VsphereVolume("x"))]), Hint.SKIP, id="in-tree-of-another-driver"),
        pytest.param(pod(volumes=[Volume(aws=AwsElasticBlockStore("aws://z/x"))]), Hint.QUEUE, id="untranslatable"),
    ],
)
def test_hint_after_a_deleted_attachment(incoming: Pod, hint: Hint) -> None:
    """A pod is requeued if it has a claim, or an in-tree volume of the same driver."""
    assert after_attachment_deletion(incoming, attachment("va", EBS, "a", None), None) is hint


def test_events() -> None:
    """Changed CSINodes, deleted pods and attachments, and created claims are registered."""
    events = [each.event for each in NodeVolumeLimits(None, FakeHandle()).events_to_register()]
    assert events == [
        ClusterEvent(Resource.CSI_NODE, Action.ADD),
        ClusterEvent(Resource.CSI_NODE, Action.UPDATE),
        ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE),
        ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
        ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE),
    ]
