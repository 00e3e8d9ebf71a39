"""VolumeRestrictions: a disk is attached to one node, and a ReadWriteOncePod claim is used by one pod."""

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


def filter_result(incoming: Pod, nodes: NodeColumns) -> tuple[Status, list[Status]]:
    """Return PreFilter's status and, if it is Success, the status of each row."""
    return filter_statuses(VolumeRestrictions(None, FakeHandle(nodes=nodes)), incoming, nodes)


@pytest.mark.parametrize(
    ("wanted", "mounted", "conflict"),
    [
        pytest.param(gce(), gce(), True, id="gce-two-writers"),
        pytest.param(gce(read_only=True), gce(), True, id="gce-new-reader-existing-writer"),
        pytest.param(gce(), gce(read_only=True), True, id="gce-new-writer-existing-reader"),
        pytest.param(gce(read_only=True), gce(read_only=True), False, id="gce-two-readers"),
        pytest.param(gce("a"), gce("b"), False, id="gce-another-disk"),
        pytest.param(aws(read_only=True), aws(read_only=True), True, id="aws-two-readers"),
        pytest.param(aws("a"), aws("b"), False, id="aws-another-volume"),
        pytest.param(aws(), gce(), False, id="another-kind"),
        pytest.param(iscsi(portal="x"), iscsi(portal="y"), True, id="iscsi-same-target-another-portal"),
        pytest.param(iscsi(read_only=True), iscsi(read_only=True), False, id="iscsi-two-readers"),
        pytest.param(rbd("m1", "m2"), rbd("m2", "m3"), True, id="rbd-one-monitor-shared"),
        pytest.param(rbd("m1"), rbd("m2"), False, id="rbd-no-monitor-shared"),
        pytest.param(rbd("m1", pool="a"), rbd("m1", pool="b"), False, id="rbd-another-pool"),
        pytest.param(rbd("m1", image="a"), rbd("m1", image="b"), False, id="rbd-another-image"),
        pytest.param(rbd("m1", read_only=True), rbd("m1", read_only=True), False, id="rbd-two-readers"),
    ],
)
def test_disk_conflicts(wanted: Volume, mounted: Volume, conflict: bool) -> None:
    """The node with a conflicting disk is rejected, and the deletion of its pod requeues the incoming pod."""
    holder = pod("p", node_name="b", volumes=[mounted])
    nodes = columns_with_storage([node("a"), node("b")], (), [holder])
    incoming = pod(volumes=[wanted])
    assert filter_result(incoming, nodes) == (SUCCESS, [SUCCESS, NO_DISK if conflict else SUCCESS])
    assert after_pod_deletion(incoming, holder, None) is (Hint.QUEUE if conflict else Hint.SKIP)


@pytest.mark.parametrize(
    ("modes", "mounted", "expected"),
    [
        pytest.param((RWOP,), True, (SUCCESS, [IN_USE, IN_USE]), id="in-use"),
        pytest.param((RWOP,), False, (Status(Code.SKIP), []), id="not-in-use"),
        pytest.param(("ReadWriteOnce",), True, (Status(Code.SKIP), []), id="another-mode"),
    ],
)
def test_read_write_once_pod(modes: tuple[str, ...], mounted: bool, expected: object) -> None:
    """All nodes are rejected while another pod uses the ReadWriteOncePod claim on any node."""
    holders = [pod("p", node_name="b", volumes=mounts("data"))] if mounted else []
    nodes = columns_with_storage([node("a"), node("b")], [claim(modes=modes)], holders)
    assert filter_result(pod(volumes=mounts("data")), nodes) == expected


def test_disk_is_checked_before_claim() -> None:
    """A row that fails both checks has the disk's reason."""
    nodes = columns_with_storage(
        [node("a"), node("b")], [claim(modes=[RWOP])], [pod("p", node_name="b", volumes=[*mounts("data"), gce()])]
    )
    assert filter_result(pod(volumes=[*mounts("data"), gce()]), nodes) == (SUCCESS, [IN_USE, NO_DISK])


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
def test_missing_claims(wanted: Pod, status: Status) -> None:
    """PreFilter rejects a pod with a missing claim; ephemeral claims are ignored."""
    assert filter_result(wanted, columns_with_storage([node("a")], ())) == (status, [])


def test_dry_run_of_removed_pods() -> None:
    """Removing the claim's pod makes the node pass, only in the cloned state; the pod's namespace is not compared."""
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
def test_hint_after_a_deleted_pod(deleted: Pod | None, hint: Hint) -> None:
    """A pod is requeued if the deleted pod used one of its claims."""
    assert after_pod_deletion(pod(volumes=mounts("data")), deleted, None) is hint


@pytest.mark.parametrize(
    ("new", "hint"),
    [
        pytest.param(claim("data"), Hint.QUEUE, id="own"),
        pytest.param(claim("other"), Hint.SKIP, id="another"),
        pytest.param(claim("data", namespace="x"), Hint.SKIP, id="another-namespace"),
        pytest.param(claim("pod-scratch"), Hint.SKIP, id="ephemeral"),
        pytest.param(None, Hint.QUEUE, id="unknown"),
    ],
)
def test_hint_after_a_created_claim(new: object, hint: Hint) -> None:
    """A pod is requeued if its spec names the claim."""
    assert after_claim_creation(pod(volumes=[*mounts("data"), scratch()]), None, new) is hint


def test_events() -> None:
    """Deleted pods, added nodes and created claims are registered."""
    events = [each.event for each in VolumeRestrictions(None, FakeHandle()).events_to_register()]
    assert events == [
        ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE),
        ClusterEvent(Resource.NODE, Action.ADD),
        ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
    ]
