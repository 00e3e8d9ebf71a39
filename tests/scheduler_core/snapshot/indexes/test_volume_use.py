"""Number of volumes in use per row: the counts equal a search over all pods and attachments."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.pod import AwsElasticBlockStore, GcePersistentDisk, Volume
from scheduler_core.model.storage import PersistentVolumeSpec, StorageObject
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.storage import attachment, claim, columns_with_storage, mounts, scratch, storage_class, volume
from tests.support.tables import table

DRIVER = "disk.example.com"
EBS = "ebs.csi.aws.com"
IN_TREE = PersistentVolumeSpec(aws=AwsElasticBlockStore("vol-1"))


def count(nodes: NodeColumns, driver: str = DRIVER) -> list[int]:
    return [int(each) for each in nodes.storage.use.counts(driver, nodes.size)]


def running(name: str, *claims: str) -> PodInfo:
    return NodeColumns().compile_pod(pod(name, volumes=mounts(*claims)))


BOUND = (claim("data", volume="pv"), volume("pv", csi=(DRIVER, "h")))


@table(
    "storage, driver, expected",
    ("bound", BOUND, DRIVER, 1),
    ("volume-and-class-missing", BOUND[:1], DRIVER, 0),
    ("claim-missing", (), DRIVER, 0),
    ("unbound-by-class", (claim("data"), storage_class("local", DRIVER)), DRIVER, 1),
    ("volume-missing-by-class", (claim("data", volume="gone"), storage_class("local", DRIVER)), DRIVER, 1),
    ("migrated-class", (claim("data"), storage_class("local", "kubernetes.io/aws-ebs")), EBS, 1),
    (
        "not-migrated-class",
        (claim("data"), storage_class("local", "kubernetes.io/azure-file")),
        "file.csi.azure.com",
        0,
    ),
    ("migrated-volume", (claim("data", volume="pv"), volume("pv", spec=IN_TREE)), EBS, 1),
    ("neither-csi-nor-in-tree", (claim("data", volume="pv"), volume("pv")), DRIVER, 0),
    ("no-handle", (claim("data", volume="pv"), volume("pv", csi=(DRIVER, ""))), DRIVER, 0),
)
@table("pod_first", ("pod-first", True), ("storage-first", False))
def test_a_claim_counts_as_its_volume(
    storage: tuple[StorageObject, ...], driver: str, expected: int, pod_first: bool
) -> None:
    """A claim counts for its volume's driver, whether the pod or the storage objects are added first."""
    nodes = columns_with_storage([node("a"), node("b")], () if pod_first else storage)
    nodes.add_pod(running("p", "data"), 1)
    for shown in storage if pod_first else ():
        nodes.storage.assign(shown)
    assert count(nodes, driver) == [0, expected]
    for shown in storage:
        nodes.storage.remove(shown)
    assert count(nodes, driver) == [0, 0]


def test_volume_of_two_pods_counts_once() -> None:
    """A volume of two pods counts once, until both pods are removed."""
    nodes = columns_with_storage([node("a")], BOUND)
    first, second = running("p", "data"), running("q", "data")
    nodes.add_pod(first, 0)
    nodes.add_pod(second, 0)
    assert count(nodes) == [1]
    nodes.remove_pod(first)
    assert count(nodes) == [1]
    assert nodes.storage.use.is_claim_mounted("default/data")
    nodes.remove_pod(second)
    assert count(nodes) == [0]
    assert not nodes.storage.use.is_claim_mounted("default/data")


def test_ephemeral_claim_counts_but_is_not_mounted_by_name() -> None:
    """ReadWriteOncePod does not apply to an ephemeral claim, because it cannot be shared."""
    nodes = columns_with_storage([node("a")], (claim("p-scratch", volume="pv"), volume("pv", csi=(DRIVER, "h"))))
    nodes.add_pod(nodes.compile_pod(pod("p", volumes=[scratch()])), 0)
    assert count(nodes) == [1]
    assert not nodes.storage.use.is_claim_mounted("default/p-scratch")


def test_a_volume_with_attachment_and_pod_counts_once() -> None:
    """An attachment and a pod of the same volume count once."""
    nodes = columns_with_storage([node("a")], (*BOUND, attachment("va", DRIVER, "a", "pv")))
    assert count(nodes) == [1]
    nodes.add_pod(running("p", "data"), 0)
    assert count(nodes) == [1]
    assert nodes.storage.use.rows_with((DRIVER, "h")) == [0]


@table(
    "change",
    ("attachment-removed", lambda nodes: nodes.storage.remove(attachment("va", DRIVER, "a", "pv"))),
    ("volume-removed", lambda nodes: nodes.storage.remove(volume("pv"))),
    ("on-another-node", lambda nodes: nodes.storage.assign(attachment("va", DRIVER, "x", "pv"))),
    ("no-attacher", lambda nodes: nodes.storage.assign(attachment("va", "", "a", "pv"))),
    ("inline", lambda nodes: nodes.storage.assign(attachment("va", DRIVER, "a", None))),
    ("node-removed", lambda nodes: nodes.remove_node("a")),
)
def test_attachments_that_do_not_count(change: Callable[[NodeColumns], object]) -> None:
    """An attachment counts only with an attacher, a known node and a CSI volume."""
    nodes = columns_with_storage([node("a")], (*BOUND, attachment("va", DRIVER, "a", "pv")))
    change(nodes)
    assert count(nodes) == [0]


def test_an_attachment_may_be_added_before_its_node() -> None:
    """The attachment counts when its node is added."""
    nodes = columns_with_storage([node("a")], (*BOUND, attachment("va", DRIVER, "late", "pv")))
    nodes.add_node(node("late"))
    assert count(nodes) == [0, 1]


def test_read_only_mounts_of_a_disk_do_not_conflict() -> None:
    """disk_rows() omits read-only mounts for a read-only request."""
    nodes = columns_with_storage([node("a"), node("b")], ())
    for row, read_only in ((0, True), (1, False)):
        disk = Volume(gce=GcePersistentDisk("d", read_only))
        nodes.add_pod(nodes.compile_pod(pod(f"p{row}", volumes=[disk])), row)
    use = nodes.storage.use
    assert sorted(use.disk_rows(("gce", "d"), read_only=True)) == [1]
    assert sorted(use.disk_rows(("gce", "d"), read_only=False)) == [0, 1]
    assert not use.disk_rows(("gce", "other"), read_only=False)


_NAMES = st.sampled_from(["c0", "c1", "c2"])
_VOLUMES = st.sampled_from(["v0", "v1", "v2"])
_STEPS = st.one_of(
    st.tuples(st.just("pod"), st.lists(_NAMES, min_size=1, max_size=2), st.integers(0, 1)),
    st.tuples(st.just("leave"), st.integers(0, 5), st.none()),
    st.tuples(st.just("claim"), _NAMES, st.one_of(st.none(), _VOLUMES)),
    st.tuples(st.just("no-claim"), _NAMES, st.none()),
    st.tuples(st.just("volume"), _VOLUMES, st.sampled_from(["h0", "h1"])),
    st.tuples(st.just("no-volume"), _VOLUMES, st.none()),
    st.tuples(st.just("class"), st.booleans(), st.none()),
    st.tuples(st.just("attach"), _VOLUMES, st.integers(0, 1)),
    st.tuples(st.just("detach"), _VOLUMES, st.integers(0, 1)),
)


def _expected(nodes: NodeColumns, pods: list[PodInfo]) -> list[int]:
    """Return the counts by a search over all pods and attachments."""
    storage = nodes.storage
    found: list[set[str]] = [set(), set()]
    for info in pods:
        for reference in info.volumes.claims:
            shown = storage.claims.get(reference.key)
            if shown is None:
                continue
            pv = storage.volumes.get(shown.spec.volume_name)
            if pv is not None and pv.spec.csi is not None:
                found[info.row].add(pv.spec.csi.volume_handle)
            elif pv is None and storage.classes.get("local") is not None:
                found[info.row].add(f"new {reference.key}")
    for each in storage.attachments:
        pv = storage.volumes.get(each.spec.source.persistent_volume_name or "")
        if pv is not None and pv.spec.csi is not None:
            found[nodes.row_of(each.spec.node_name)].add(pv.spec.csi.volume_handle)
    return [len(each) for each in found]


@given(st.lists(_STEPS, max_size=25))
def test_counts_equal_a_full_search(steps: list[tuple[str, object, object]]) -> None:
    """The counts equal a full search after any sequence of events."""
    nodes = columns_with_storage([node("n0"), node("n1")], ())
    pods: list[PodInfo] = []
    for number, (what, first, second) in enumerate(steps):
        if what == "pod" and isinstance(first, list) and isinstance(second, int):
            info = running(f"p{number}", *first)
            nodes.add_pod(info, second)
            pods.append(info)
        elif what == "leave" and isinstance(first, int) and pods:
            nodes.remove_pod(pods.pop(first % len(pods)))
        else:
            _change_storage(nodes, what, str(first), second)
        assert count(nodes) == _expected(nodes, pods)


def _change_storage(nodes: NodeColumns, what: str, name: str, second: object) -> None:
    storage = nodes.storage
    if what == "claim":
        storage.assign(claim(name, volume=str(second)) if second is not None else claim(name))
    elif what == "no-claim":
        storage.remove(claim(name))
    elif what == "volume":
        storage.assign(volume(name, csi=(DRIVER, str(second))))
    elif what == "no-volume":
        storage.remove(volume(name))
    elif what == "class":
        shown = storage_class("local", DRIVER)
        storage.assign(shown) if name == "True" else storage.remove(shown)
    elif what in ("attach", "detach"):
        shown_attachment = attachment(f"{name}-{second}", DRIVER, f"n{second}", name)
        storage.assign(shown_attachment) if what == "attach" else storage.remove(shown_attachment)
