"""NodeVolumeLimits: a node attaches no more volumes of a driver than the driver says."""

import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.pod import AwsElasticBlockStore, AzureDisk, Pod, Volume, VsphereVolume
from scheduler_core.model.storage import StorageObject
from scheduler_core.plugins.node_volume_limits import NodeVolumeLimits
from scheduler_core.plugins.node_volume_limits.hints import (
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


def asked(wanted: Pod, nodes: NodeColumns) -> list[Status]:
    status, found = filter_statuses(NodeVolumeLimits(None, FakeHandle(nodes=nodes)), wanted, nodes)
    assert status.is_success
    return found


def pairs(*names: str, driver: str = DRIVER) -> list[StorageObject]:
    """A claim and its volume for each name."""
    objects: list[StorageObject] = []
    for name in names:
        objects += [claim(name, volume=f"pv-{name}"), volume(f"pv-{name}", csi=(driver, name))]
    return objects


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        pytest.param({DRIVER: 2}, True, id="room-for-one-more"),
        pytest.param({DRIVER: 1}, False, id="full"),
        pytest.param({DRIVER: 0}, False, id="none-at-all"),
        pytest.param({DRIVER: None}, True, id="no-limit"),
        pytest.param({"other": 0}, True, id="another-driver"),
        pytest.param(None, True, id="no-csi-node"),
    ],
)
def test_limit_of_a_driver(limits: dict[str, int | None] | None, fits: bool) -> None:
    """One volume runs there, the pod brings another; a node without limits takes any number."""
    storage = pairs("old", "new")
    if limits is not None:
        storage.append(csi_node("a", limits))
    nodes = columns_with_storage([node("a"), node("b")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert asked(pod(volumes=mounts("new")), nodes) == [SUCCESS if fits else FULL, SUCCESS]


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        pytest.param(("old",), True, id="one-that-is-there"),
        pytest.param(("old", "new"), True, id="one-there-and-one-more"),
        pytest.param(("new", "new"), True, id="twice-the-same"),
        pytest.param(("new", "newer"), False, id="two-more"),
    ],
)
def test_volume_is_attached_once(claims: tuple[str, ...], fits: bool) -> None:
    """The limit is two and one volume is there."""
    storage = [*pairs("old", "new", "newer"), csi_node("a", {DRIVER: 2})]
    nodes = columns_with_storage([node("a")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert asked(pod(volumes=mounts(*claims)), nodes) == [SUCCESS if fits else FULL]


@pytest.mark.parametrize(
    ("attached", "fits"),
    [
        pytest.param("pv-old", True, id="of-the-running-pod"),
        pytest.param("pv-stray", False, id="of-no-pod"),
        pytest.param("pv-new", False, id="of-the-pod-itself"),
        pytest.param("pv-gone", True, id="of-a-volume-that-is-gone"),
    ],
)
def test_attachments_count(attached: str, fits: bool) -> None:
    """The limit is two; an attachment of the very volume that the pod brings counts beside it."""
    storage = [*pairs("old", "new", "stray"), csi_node("a", {DRIVER: 2}), attachment("va", DRIVER, "a", attached)]
    nodes = columns_with_storage([node("a")], storage, [pod("p", node_name="a", volumes=mounts("old"))])
    assert asked(pod(volumes=mounts("new")), nodes) == [SUCCESS if fits else FULL]


@pytest.mark.parametrize(
    ("required", "storage", "wanted", "missing"),
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
    required: bool | None, storage: list[StorageObject], wanted: Pod, missing: list[bool]
) -> None:
    """A CSIDriver may keep pods from nodes where it is not installed, those without a CSINode included."""
    driver = csi_driver(DRIVER, must_be_installed=required)
    nodes = columns_with_storage(
        [node("a"), node("b"), node("c")], [*storage, driver, csi_node("a", {DRIVER: None}), csi_node("b")]
    )
    rejected = Status(Code.UNSCHEDULABLE, (f"{DRIVER} CSI driver is not installed on the node",))
    assert asked(wanted, nodes) == [rejected if absent else SUCCESS for absent in missing]


def test_required_driver_of_in_tree_volumes() -> None:
    """Without a CSINode, an in-tree volume has no driver."""
    driver = csi_driver(EBS, must_be_installed=True)
    nodes = columns_with_storage([node("a"), node("b"), node("c")], [driver, csi_node("a", {EBS: 5}), csi_node("b")])
    rejected = Status(Code.UNSCHEDULABLE, (f"{EBS} CSI driver is not installed on the node",))
    assert asked(pod(volumes=[EBS_VOLUME]), nodes) == [SUCCESS, rejected, SUCCESS]


def test_missing_driver_goes_before_the_limit() -> None:
    """Of several missing drivers the first is reported, and a full node is reported as such only after them."""
    drivers = [csi_driver(name, must_be_installed=True) for name in ("x", "y")]
    storage = [*pairs("full"), *pairs("one", driver="x"), *pairs("two", driver="y"), *drivers]
    nodes = columns_with_storage(
        [node("a"), node("b")], [*storage, csi_node("a", {DRIVER: 0, "x": None}), csi_node("b", {"y": 1})]
    )
    assert [status.reasons for status in asked(pod(volumes=mounts("full", "one", "two")), nodes)] == [
        ("y CSI driver is not installed on the node",),
        ("x CSI driver is not installed on the node",),
    ]


@pytest.mark.parametrize(
    ("storage", "wanted", "fits"),
    [
        pytest.param([], pod(volumes=[EBS_VOLUME]), False, id="inline"),
        pytest.param(
            [claim(), storage_class("local", "kubernetes.io/aws-ebs")], pod(volumes=mounts("data")), False, id="class"
        ),
        pytest.param([], pod(volumes=[Volume(vsphere=VsphereVolume("x"))]), True, id="not-taken-over"),
    ],
)
def test_in_tree_volumes_count_for_their_driver(storage: list[StorageObject], wanted: Pod, fits: bool) -> None:
    """Where a CSINode says what the node can attach."""
    limits = csi_node("a", {EBS: 0, "csi.vsphere.vmware.com": 0})
    nodes = columns_with_storage([node("a"), node("b")], [*storage, limits])
    assert asked(wanted, nodes) == [SUCCESS if fits else FULL, SUCCESS]


def test_missing_claim_rejects_every_node() -> None:
    """Preemption cannot help."""
    reason = 'looking up PVC default/gone: persistentvolumeclaim "gone" not found'
    expected = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
    nodes = columns_with_storage([node("a"), node("b")], pairs("new"))
    assert asked(pod(volumes=mounts("new", "gone")), nodes) == [expected, expected]


def test_foreign_claim_is_an_error() -> None:
    """A claim of the name that the pod's own would have, made for someone else."""
    nodes = columns_with_storage([node("a")], [claim("pod-scratch", owner="someone")])
    with pytest.raises(PluginError, match="pod is not owner"):
        asked(pod(volumes=[scratch()]), nodes)


def test_untranslatable_volume_is_an_error_where_it_matters() -> None:
    """That is on nodes with a CSINode."""
    wanted = pod(volumes=[Volume(name="z", azure_disk=AzureDisk("d", "/d", "Shared"))])
    assert asked(wanted, columns_with_storage([node("a")], ())) == [SUCCESS]
    with pytest.raises(PluginError, match="kind\\(Shared\\) is not supported"):
        asked(wanted, columns_with_storage([node("a")], [csi_node("a")]))


@pytest.mark.parametrize(
    ("wanted", "skips"),
    [
        pytest.param(pod(), True, id="nothing"),
        pytest.param(pod(volumes=mounts("data")), False, id="claim"),
        pytest.param(pod(volumes=[scratch()]), False, id="ephemeral"),
        pytest.param(pod(volumes=[EBS_VOLUME]), False, id="in-tree"),
    ],
)
def test_a_pod_without_counted_volumes_is_skipped(wanted: Pod, skips: bool) -> None:
    """A pod without volumes that count is skipped."""
    nodes = NodeColumns()
    plugin, info = NodeVolumeLimits(None, FakeHandle(nodes=nodes)), nodes.compile_pod(wanted)
    assert plugin.pre_filter(CycleState(), info, nodes).status.is_skip is skips


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param({DRIVER: 1}, {DRIVER: 2}, Hint.QUEUE, id="raised"),
        pytest.param({DRIVER: 2}, {DRIVER: 1}, Hint.SKIP, id="lowered"),
        pytest.param({}, {DRIVER: 1}, Hint.QUEUE, id="driver-came"),
        pytest.param({DRIVER: 1}, {DRIVER: None}, Hint.SKIP, id="no-limit-reads-as-0"),
    ],
)
def test_hint_after_a_csi_nodes_update(old: dict[str, int | None], new: dict[str, int | None], hint: Hint) -> None:
    """A limit that was raised."""
    assert after_csi_node_update(pod(), csi_node("a", old), csi_node("a", new)) is hint


@pytest.mark.parametrize(
    ("deleted", "hint"),
    [
        pytest.param(pod("p", node_name="a", volumes=mounts("x")), Hint.QUEUE, id="claim"),
        pytest.param(pod("p", node_name="a", volumes=[scratch()]), Hint.QUEUE, id="ephemeral"),
        pytest.param(pod("p", node_name="a", volumes=[EBS_VOLUME]), Hint.QUEUE, id="in-tree"),
        pytest.param(pod("p", nominated_node="a", volumes=mounts("x")), Hint.QUEUE, id="nominated"),
        pytest.param(pod("p", volumes=mounts("x")), Hint.SKIP, id="nowhere"),
        pytest.param(pod("p", node_name="a"), Hint.SKIP, id="no-volumes"),
        pytest.param(None, Hint.QUEUE, id="unknown"),
    ],
)
def test_hint_after_a_pods_end(deleted: Pod | None, hint: Hint) -> None:
    """A pod that held a node and had volumes that count."""
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
def test_hint_after_a_claims_coming(new: object, hint: Hint) -> None:
    """A claim of the pod, named or made for it."""
    assert after_claim_creation(pod(volumes=[*mounts("data"), scratch()]), None, new) is hint


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        pytest.param(pod(volumes=mounts("data")), Hint.QUEUE, id="any-claim"),
        pytest.param(pod(volumes=[scratch()]), Hint.SKIP, id="ephemeral"),
        pytest.param(pod(volumes=[EBS_VOLUME]), Hint.QUEUE, id="in-tree-of-the-driver"),
        pytest.param(pod(volumes=[Volume(vsphere=VsphereVolume("x"))]), Hint.SKIP, id="in-tree-of-another"),
        pytest.param(pod(volumes=[Volume(aws=AwsElasticBlockStore("aws://z/x"))]), Hint.QUEUE, id="untranslatable"),
    ],
)
def test_hint_after_an_attachments_end(wanted: Pod, hint: Hint) -> None:
    """Room for a claim of the pod, or for its volume of the same driver."""
    assert after_attachment_deletion(wanted, attachment("va", EBS, "a", None), None) is hint


def test_events() -> None:
    """CSINodes, pods and attachments that go, claims that come."""
    events = [each.event for each in NodeVolumeLimits(None, FakeHandle()).events_to_register()]
    assert events == [
        ClusterEvent(Resource.CSI_NODE, Action.ADD),
        ClusterEvent(Resource.CSI_NODE, Action.UPDATE),
        ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE),
        ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
        ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE),
    ]
