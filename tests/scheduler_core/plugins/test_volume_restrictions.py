"""VolumeRestrictions: a disk is attached once, and a ReadWriteOncePod claim has one pod."""

import pytest

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.pod import (
    AwsElasticBlockStore,
    GcePersistentDisk,
    IscsiVolume,
    Pod,
    RbdVolume,
    Volume,
)
from scheduler_core.plugins.volume_restrictions import VolumeRestrictions, after_claim_creation, after_pod_deletion
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_statuses
from tests.support.storage import claim, columns_with_storage, mounts, scratch

RWOP = "ReadWriteOncePod"
NO_DISK = Status(Code.UNSCHEDULABLE, ("node(s) had no available disk",))
_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
IN_USE = Status(Code.UNSCHEDULABLE, (_IN_USE,))


def gce(name: str = "d", *, read_only: bool = False) -> Volume:
    return Volume(gce=GcePersistentDisk(name, read_only))


def aws(name: str = "d", *, read_only: bool = False) -> Volume:
    return Volume(aws=AwsElasticBlockStore(name, read_only))


def iscsi(iqn: str = "d", portal: str = "", *, read_only: bool = False) -> Volume:
    return Volume(iscsi=IscsiVolume(portal, iqn, 0, read_only))


def rbd(*monitors: str, image: str = "d", pool: str = "rbd", read_only: bool = False) -> Volume:
    return Volume(rbd=RbdVolume(monitors, image, pool, read_only))


def asked(wanted: Pod, nodes: NodeColumns) -> tuple[Status, list[Status]]:
    """Return PreFilter's status and, unless that ends the cycle, each row's."""
    return filter_statuses(VolumeRestrictions(None, FakeHandle(nodes=nodes)), wanted, nodes)


@pytest.mark.parametrize(
    ("wanted", "held", "conflict"),
    [
        pytest.param(gce(), gce(), True, id="gce-writing-twice"),
        pytest.param(gce(read_only=True), gce(), True, id="gce-reading-beside-writing"),
        pytest.param(gce(), gce(read_only=True), True, id="gce-writing-beside-reading"),
        pytest.param(gce(read_only=True), gce(read_only=True), False, id="gce-reading-twice"),
        pytest.param(gce("a"), gce("b"), False, id="gce-another-disk"),
        pytest.param(aws(read_only=True), aws(read_only=True), True, id="aws-reading-twice"),
        pytest.param(aws("a"), aws("b"), False, id="aws-another-volume"),
        pytest.param(aws(), gce(), False, id="another-kind"),
        pytest.param(iscsi(portal="x"), iscsi(portal="y"), True, id="iscsi-same-target-by-another-portal"),
        pytest.param(iscsi(read_only=True), iscsi(read_only=True), False, id="iscsi-reading-twice"),
        pytest.param(rbd("m1", "m2"), rbd("m2", "m3"), True, id="rbd-one-monitor-shared"),
        pytest.param(rbd("m1"), rbd("m2"), False, id="rbd-no-monitor-shared"),
        pytest.param(rbd("m1", pool="a"), rbd("m1", pool="b"), False, id="rbd-another-pool"),
        pytest.param(rbd("m1", image="a"), rbd("m1", image="b"), False, id="rbd-another-image"),
        pytest.param(rbd("m1", read_only=True), rbd("m1", read_only=True), False, id="rbd-reading-twice"),
    ],
)
def test_disk_is_attached_once(wanted: Volume, held: Volume, conflict: bool) -> None:
    """Only the node that has it is ruled out, and the hint of the holder's end agrees."""
    holder = pod("p", node_name="b", volumes=[held])
    nodes = columns_with_storage([node("a"), node("b")], (), [holder])
    incoming = pod(volumes=[wanted])
    assert asked(incoming, nodes) == (SUCCESS, [SUCCESS, NO_DISK if conflict else SUCCESS])
    assert after_pod_deletion(incoming, holder, None) is (Hint.QUEUE if conflict else Hint.SKIP)


@pytest.mark.parametrize(
    ("modes", "mounted", "expected"),
    [
        pytest.param((RWOP,), True, (SUCCESS, [IN_USE, IN_USE]), id="in-use"),
        pytest.param((RWOP,), False, (Status(Code.SKIP), []), id="not-in-use"),
        pytest.param(("ReadWriteOnce",), True, (Status(Code.SKIP), []), id="another-mode"),
    ],
)
def test_one_pod_claim_has_one_pod(modes: tuple[str, ...], mounted: bool, expected: object) -> None:
    """Wherever the other pod runs."""
    holders = [pod("p", node_name="b", volumes=mounts("data"))] if mounted else []
    nodes = columns_with_storage([node("a"), node("b")], [claim(modes=modes)], holders)
    assert asked(pod(volumes=mounts("data")), nodes) == expected


def test_disk_goes_before_claim() -> None:
    """A row that fails both gets the disk's reason."""
    nodes = columns_with_storage(
        [node("a"), node("b")], [claim(modes=[RWOP])], [pod("p", node_name="b", volumes=[*mounts("data"), gce()])]
    )
    assert asked(pod(volumes=[*mounts("data"), gce()]), nodes) == (SUCCESS, [IN_USE, NO_DISK])


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        pytest.param(pod(), Status(Code.SKIP), id="no-volumes"),
        pytest.param(pod(volumes=[scratch()]), Status(Code.SKIP), id="ephemeral"),
        pytest.param(
            pod(volumes=mounts("gone")),
            Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ('persistentvolumeclaim "gone" not found',)),
            id="missing",
        ),
    ],
)
def test_claims_are_looked_up_first(wanted: Pod, status: Status) -> None:
    """A claim that does not exist ends the attempt; one made for the pod is another plugin's matter."""
    assert asked(wanted, columns_with_storage([node("a")], ())) == (status, [])


def test_what_if_follows_pods() -> None:
    """Taking the claim's pod away lets the pod in, in the copy of the state alone; its namespace is not looked at."""
    nodes = columns_with_storage([node("a")], [claim(modes=[RWOP])], [pod("p", node_name="a", volumes=mounts("data"))])
    plugin, state, info = (
        VolumeRestrictions(None, FakeHandle(nodes=nodes)),
        CycleState(),
        nodes.compile_pod(pod(volumes=mounts("data"))),
    )
    plugin.pre_filter(state, info, nodes)
    holder = nodes.compile_pod(pod("q", namespace="elsewhere", volumes=mounts("data")))
    copy = state.clone()
    plugin.remove_pod(copy, info, holder, nodes, 0)
    assert plugin.filter(copy, info, nodes, ALL_ROWS) is None
    assert plugin.filter(state, info, nodes, ALL_ROWS) is not None
    plugin.add_pod(copy, info, holder, nodes, 0)
    assert plugin.filter(copy, info, nodes, ALL_ROWS) is not None


@pytest.mark.parametrize(
    ("deleted", "hint"),
    [
        pytest.param(pod("p", volumes=mounts("data")), Hint.QUEUE, id="same-claim"),
        pytest.param(pod("p", volumes=mounts("other")), Hint.SKIP, id="another-claim"),
        pytest.param(pod("p", namespace="x", volumes=mounts("data")), Hint.SKIP, id="another-namespace"),
        pytest.param(None, Hint.QUEUE, id="unknown"),
    ],
)
def test_hint_after_a_pods_end(deleted: Pod | None, hint: Hint) -> None:
    """A shared claim of the same namespace."""
    assert after_pod_deletion(pod(volumes=mounts("data")), deleted, None) is hint


@pytest.mark.parametrize(
    ("new", "hint"),
    [
        pytest.param(claim("data"), Hint.QUEUE, id="mine"),
        pytest.param(claim("other"), Hint.SKIP, id="another"),
        pytest.param(claim("data", namespace="x"), Hint.SKIP, id="another-namespace"),
        pytest.param(claim("pod-scratch"), Hint.SKIP, id="ephemeral"),
        pytest.param(None, Hint.QUEUE, id="unknown"),
    ],
)
def test_hint_after_a_claims_coming(new: object, hint: Hint) -> None:
    """A claim that the pod names."""
    assert after_claim_creation(pod(volumes=[*mounts("data"), scratch()]), None, new) is hint


def test_events() -> None:
    """Pods that go, nodes and claims that come."""
    events = [each.event for each in VolumeRestrictions(None, FakeHandle()).events_to_register()]
    assert events == [
        ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE),
        ClusterEvent(Resource.NODE, Action.ADD),
        ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
    ]
