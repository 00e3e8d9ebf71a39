"""VolumeRestrictions: a disk is attached to one node, and a ReadWriteOncePod claim is used by one pod."""

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.pod import AwsElasticBlockStore, GcePersistentDisk, IscsiVolume, Pod, RbdVolume, Volume
from scheduler_core.plugins.volume_restrictions import VolumeRestrictions, after_claim_creation, after_pod_deletion
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_statuses
from tests.support.storage import claim, columns_with_storage, mounts, scratch
from tests.support.tables import table

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


@table(
    "wanted, mounted, conflict",
    ("gce-two-writers", gce(), gce(), True),
    ("gce-new-reader-existing-writer", gce(read_only=True), gce(), True),
    ("gce-new-writer-existing-reader", gce(), gce(read_only=True), True),
    ("gce-two-readers", gce(read_only=True), gce(read_only=True), False),
    ("gce-another-disk", gce("a"), gce("b"), False),
    ("aws-two-readers", aws(read_only=True), aws(read_only=True), True),
    ("aws-another-volume", aws("a"), aws("b"), False),
    ("another-kind", aws(), gce(), False),
    ("iscsi-same-target-another-portal", iscsi(portal="x"), iscsi(portal="y"), True),
    ("iscsi-two-readers", iscsi(read_only=True), iscsi(read_only=True), False),
    ("rbd-one-monitor-shared", rbd("m1", "m2"), rbd("m2", "m3"), True),
    ("rbd-no-monitor-shared", rbd("m1"), rbd("m2"), False),
    ("rbd-another-pool", rbd("m1", pool="a"), rbd("m1", pool="b"), False),
    ("rbd-another-image", rbd("m1", image="a"), rbd("m1", image="b"), False),
    ("rbd-two-readers", rbd("m1", read_only=True), rbd("m1", read_only=True), False),
)
def test_disk_conflicts(wanted: Volume, mounted: Volume, conflict: bool) -> None:
    """The node with a conflicting disk is rejected, and the deletion of its pod requeues the incoming pod."""
    holder = pod("p", node_name="b", volumes=[mounted])
    nodes = columns_with_storage([node("a"), node("b")], (), [holder])
    incoming = pod(volumes=[wanted])
    assert filter_result(incoming, nodes) == (SUCCESS, [SUCCESS, NO_DISK if conflict else SUCCESS])
    assert after_pod_deletion(incoming, holder, None) is (Hint.QUEUE if conflict else Hint.SKIP)


@table(
    "modes, mounted, expected",
    ("in-use", (RWOP,), True, (SUCCESS, [IN_USE, IN_USE])),
    ("not-in-use", (RWOP,), False, (Status(Code.SKIP), [])),
    ("another-mode", ("ReadWriteOnce",), True, (Status(Code.SKIP), [])),
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


@table(
    "wanted, status",
    ("no-volumes", pod(), Status(Code.SKIP)),
    ("ephemeral", pod(volumes=[scratch()]), Status(Code.SKIP)),
    (
        "missing",
        pod(volumes=mounts("gone")),
        Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ('persistentvolumeclaim "gone" not found',)),
    ),
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


@table(
    "deleted, hint",
    ("same-claim", pod("p", volumes=mounts("data")), Hint.QUEUE),
    ("another-claim", pod("p", volumes=mounts("other")), Hint.SKIP),
    ("another-namespace", pod("p", namespace="x", volumes=mounts("data")), Hint.SKIP),
    ("unknown", None, Hint.QUEUE),
)
def test_hint_after_a_deleted_pod(deleted: Pod | None, hint: Hint) -> None:
    """A pod is requeued if the deleted pod used one of its claims."""
    assert after_pod_deletion(pod(volumes=mounts("data")), deleted, None) is hint


@table(
    "new, hint",
    ("own", claim("data"), Hint.QUEUE),
    ("another", claim("other"), Hint.SKIP),
    ("another-namespace", claim("data", namespace="x"), Hint.SKIP),
    ("ephemeral", claim("pod-scratch"), Hint.SKIP),
    ("unknown", None, Hint.QUEUE),
)
def test_hint_after_a_created_claim(new: object, hint: Hint) -> None:
    """A pod is requeued if its spec names the claim."""
    assert after_claim_creation(pod(volumes=[*mounts("data"), scratch()]), None, new) is hint
