"""VolumeZone: a volume with zone or region labels can only be used by nodes of that zone or region."""

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import StorageClass, StorageObject
from scheduler_core.plugins.volume_zone import VolumeZone, after_claim_change, after_class_creation, after_volume_change
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_statuses
from tests.support.storage import claim, columns_with_storage, mounts, scratch, storage_class, volume
from tests.support.tables import table

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
NO_VOLUME_ZONE = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) had no available volume zone",))


def filter_result(incoming: Pod, nodes: NodeColumns, *, pre_filter: bool = True) -> tuple[Status, list[Status]]:
    """Return PreFilter's status and, if it is Success, the status of each row."""
    return filter_statuses(VolumeZone(None, FakeHandle(nodes=nodes)), incoming, nodes, pre_filter=pre_filter)


@table(
    "of_volume, of_node, fits",
    ("same-zone", {ZONE: "a"}, {ZONE: "a"}, True),
    ("another-zone", {ZONE: "a"}, {ZONE: "b"}, False),
    ("one-of-several", {ZONE: "a__b"}, {ZONE: "b"}, True),
    ("spaces-around", {ZONE: " a __b"}, {ZONE: "a"}, True),
    ("invalid-list-is-ignored", {ZONE: "a__"}, {ZONE: "c"}, True),
    ("node-without-zone", {ZONE: "a"}, {}, True),
    ("node-with-only-a-region", {ZONE: "a"}, {REGION: "r"}, False),
    ("another-region", {REGION: "r", ZONE: "a"}, {REGION: "s", ZONE: "a"}, False),
    ("beta-zone-of-volume-ga-zone-of-node", {BETA_ZONE: "a"}, {ZONE: "a"}, True),
    ("beta-zone-is-compared-first", {BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, False),
    ("beta-region-of-volume-ga-region-of-node", {BETA_REGION: "r"}, {REGION: "r"}, True),
    ("ga-zone-of-volume-beta-zone-of-node", {ZONE: "a"}, {BETA_ZONE: "a"}, False),
)
def test_zones_of_volume_and_node(of_volume: dict[str, str], of_node: dict[str, str], fits: bool) -> None:
    """A node passes if it matches every zone and region label of the volume."""
    storage = (claim("data", volume="pv"), volume("pv", labels=of_volume))
    nodes = columns_with_storage([node("n", labels=of_node), node("bare")], storage)
    _, found = filter_result(pod(volumes=mounts("data")), nodes)
    assert (found or [SUCCESS, SUCCESS]) == [SUCCESS if fits else NO_VOLUME_ZONE, SUCCESS]


def test_every_volume_counts() -> None:
    """A node that matches one volume but not the other is rejected."""
    storage = (
        claim("one", volume="p"),
        volume("p", labels={ZONE: "a"}),
        claim("two", volume="q"),
        volume("q", labels={REGION: "r"}),
    )
    nodes = columns_with_storage([node("n", labels={ZONE: "a"}), node("m", labels={ZONE: "a", REGION: "r"})], storage)
    assert filter_result(pod(volumes=mounts("one", "two")), nodes)[1] == [NO_VOLUME_ZONE, SUCCESS]


@table(
    "storage, status",
    ("no-claim", (), unresolvable('persistentvolumeclaim "data" not found')),
    (
        "no-class-named",
        (claim(storage_class=None),),
        unresolvable("PersistentVolumeClaim had no pv name and storageClass name"),
    ),
    ("no-class", (claim(),), unresolvable('storageclass.storage.k8s.io "local" not found')),
    (
        "no-mode",
        (claim(), StorageClass(AnnotatedMeta(name="local"))),
        unresolvable('VolumeBindingMode not set for StorageClass "local"'),
    ),
    ("immediate", (claim(), storage_class("local", waits=False)), unresolvable("PersistentVolume had no name")),
    ("wait-for-first-consumer", (claim(), storage_class("local")), Status(Code.SKIP)),
    ("no-volume", (claim(volume="gone"),), unresolvable('persistentvolume "gone" not found')),
    ("volume-without-labels", (claim(volume="pv"), volume("pv")), Status(Code.SKIP)),
)
def test_claims_without_a_usable_volume(storage: tuple[StorageObject, ...], status: Status) -> None:
    """PreFilter, or Filter without PreFilter, returns kube-scheduler's reason."""
    nodes = columns_with_storage([node("n", labels={ZONE: "a"})], storage)
    incoming = pod(volumes=mounts("data"))
    assert filter_result(incoming, nodes) == (status, [])
    expected = SUCCESS if status.code is Code.SKIP else status
    assert filter_result(incoming, nodes, pre_filter=False)[1] == [expected]


def test_ephemeral_claims_are_ignored() -> None:
    """PreFilter skips a pod with only ephemeral claims, as in kube-scheduler."""
    assert filter_result(pod(volumes=[scratch()]), columns_with_storage([node("n")], ())) == (Status(Code.SKIP), [])


@table(
    "old, new, hint",
    ("added", None, volume("pv"), Hint.QUEUE),
    ("labelled", volume("pv"), volume("pv", labels={ZONE: "a"}), Hint.QUEUE),
    ("same-set", volume("pv", labels={ZONE: "a__b"}), volume("pv", labels={ZONE: "b__a"}), Hint.SKIP),
    ("another-label", volume("pv"), volume("pv", labels={"x": "y"}), Hint.SKIP),
)
def test_hint_after_a_volumes_change(old: object, new: object, hint: Hint) -> None:
    """A pod is requeued if the zones or regions of a volume changed."""
    assert after_volume_change(pod(), old, new) is hint


@table(
    "new, hint",
    ("own", claim("data"), Hint.QUEUE),
    ("another", claim("other"), Hint.SKIP),
    ("another-namespace", claim("data", namespace="x"), Hint.SKIP),
    ("unknown", None, Hint.QUEUE),
)
def test_hint_after_a_claims_change(new: object, hint: Hint) -> None:
    """A pod is requeued if its spec names the claim."""
    assert after_claim_change(pod(volumes=mounts("data")), None, new) is hint


@table(
    "new, hint",
    ("wait-for-first-consumer", storage_class(), Hint.QUEUE),
    ("immediate", storage_class(waits=False), Hint.SKIP),
    ("unknown", None, Hint.QUEUE),
)
def test_hint_after_a_created_class(new: object, hint: Hint) -> None:
    """A pod is requeued if the class has WaitForFirstConsumer binding."""
    assert after_class_creation(pod(), None, new) is hint
