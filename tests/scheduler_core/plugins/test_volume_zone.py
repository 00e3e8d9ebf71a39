"""VolumeZone: a volume that is labelled with zones or a region is used from there."""

import pytest

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import StorageClass, StorageObject
from scheduler_core.plugins.volume_zone import (
    VolumeZone,
    after_claim_change,
    after_class_creation,
    after_volume_change,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_statuses
from tests.support.storage import claim, columns_with_storage, mounts, scratch, storage_class, volume

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
ELSEWHERE = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) had no available volume zone",))


def asked(wanted: Pod, nodes: NodeColumns, *, pre_filter: bool = True) -> tuple[Status, list[Status]]:
    """Return PreFilter's status and, unless that ends the cycle, each row's."""
    return filter_statuses(VolumeZone(None, FakeHandle(nodes=nodes)), wanted, nodes, pre_filter=pre_filter)


@pytest.mark.parametrize(
    ("of_volume", "of_node", "fits"),
    [
        pytest.param({ZONE: "a"}, {ZONE: "a"}, True, id="same-zone"),
        pytest.param({ZONE: "a"}, {ZONE: "b"}, False, id="another-zone"),
        pytest.param({ZONE: "a__b"}, {ZONE: "b"}, True, id="one-of-several"),
        pytest.param({ZONE: " a __b"}, {ZONE: "a"}, True, id="spaces-around"),
        pytest.param({ZONE: "a__"}, {ZONE: "c"}, True, id="unreadable-list-is-passed-over"),
        pytest.param({ZONE: "a"}, {}, True, id="node-of-no-zone"),
        pytest.param({ZONE: "a"}, {REGION: "r"}, False, id="node-of-a-region-alone"),
        pytest.param({REGION: "r", ZONE: "a"}, {REGION: "s", ZONE: "a"}, False, id="another-region"),
        pytest.param({OLD_ZONE: "a"}, {ZONE: "a"}, True, id="old-label-by-its-new-name"),
        pytest.param({OLD_ZONE: "a"}, {OLD_ZONE: "b", ZONE: "a"}, False, id="old-label-goes-first"),
        pytest.param({OLD_REGION: "r"}, {REGION: "r"}, True, id="old-region-by-its-new-name"),
        pytest.param({ZONE: "a"}, {OLD_ZONE: "a"}, False, id="new-label-has-no-old-name"),
    ],
)
def test_zones_of_volume_and_node(of_volume: dict[str, str], of_node: dict[str, str], fits: bool) -> None:
    """Every label of the volume must be met."""
    storage = (claim("data", volume="pv"), volume("pv", labels=of_volume))
    nodes = columns_with_storage([node("n", labels=of_node), node("bare")], storage)
    _, found = asked(pod(volumes=mounts("data")), nodes)
    assert (found or [SUCCESS, SUCCESS]) == [SUCCESS if fits else ELSEWHERE, SUCCESS]


def test_every_volume_counts() -> None:
    """A node in the zone of one volume but not of the other is ruled out."""
    storage = (
        claim("one", volume="p"),
        volume("p", labels={ZONE: "a"}),
        claim("two", volume="q"),
        volume("q", labels={REGION: "r"}),
    )
    nodes = columns_with_storage([node("n", labels={ZONE: "a"}), node("m", labels={ZONE: "a", REGION: "r"})], storage)
    assert asked(pod(volumes=mounts("one", "two")), nodes)[1] == [ELSEWHERE, SUCCESS]


def unresolvable(reason: str) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))


@pytest.mark.parametrize(
    ("storage", "status"),
    [
        pytest.param((), unresolvable('persistentvolumeclaim "data" not found'), id="no-claim"),
        pytest.param(
            (claim(storage_class=None),),
            unresolvable("PersistentVolumeClaim had no pv name and storageClass name"),
            id="no-class-named",
        ),
        pytest.param((claim(),), unresolvable('storageclass.storage.k8s.io "local" not found'), id="no-class"),
        pytest.param(
            (claim(), StorageClass(ObjectMeta(name="local"))),
            unresolvable('VolumeBindingMode not set for StorageClass "local"'),
            id="no-mode",
        ),
        pytest.param(
            (claim(), storage_class("local", waits=False)), unresolvable("PersistentVolume had no name"), id="immediate"
        ),
        pytest.param((claim(), storage_class("local")), Status(Code.SKIP), id="waits-for-its-pod"),
        pytest.param((claim(volume="gone"),), unresolvable('persistentvolume "gone" not found'), id="no-volume"),
        pytest.param((claim(volume="pv"), volume("pv")), Status(Code.SKIP), id="volume-without-labels"),
    ],
)
def test_claims_that_cannot_be_followed(storage: tuple[StorageObject, ...], status: Status) -> None:
    """The reasons are the reference's, by PreFilter or, where that is left out, by Filter."""
    nodes = columns_with_storage([node("n", labels={ZONE: "a"})], storage)
    wanted = pod(volumes=mounts("data"))
    assert asked(wanted, nodes) == (status, [])
    expected = SUCCESS if status.code is Code.SKIP else status
    assert asked(wanted, nodes, pre_filter=False)[1] == [expected]


def test_claims_made_for_the_pod_are_passed_over() -> None:
    """As the reference does."""
    assert asked(pod(volumes=[scratch()]), columns_with_storage([node("n")], ())) == (Status(Code.SKIP), [])


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(None, volume("pv"), Hint.QUEUE, id="came"),
        pytest.param(volume("pv"), volume("pv", labels={ZONE: "a"}), Hint.QUEUE, id="labelled"),
        pytest.param(
            volume("pv", labels={ZONE: "a__b"}), volume("pv", labels={ZONE: "b__a"}), Hint.SKIP, id="same-set"
        ),
        pytest.param(volume("pv"), volume("pv", labels={"x": "y"}), Hint.SKIP, id="another-label"),
    ],
)
def test_hint_after_a_volumes_change(old: object, new: object, hint: Hint) -> None:
    """Zones and regions count."""
    assert after_volume_change(pod(), old, new) is hint


@pytest.mark.parametrize(
    ("new", "hint"),
    [
        pytest.param(claim("data"), Hint.QUEUE, id="mine"),
        pytest.param(claim("other"), Hint.SKIP, id="another"),
        pytest.param(claim("data", namespace="x"), Hint.SKIP, id="another-namespace"),
        pytest.param(None, Hint.QUEUE, id="unknown"),
    ],
)
def test_hint_after_a_claims_change(new: object, hint: Hint) -> None:
    """A claim that the pod names."""
    assert after_claim_change(pod(volumes=mounts("data")), None, new) is hint


@pytest.mark.parametrize(
    ("new", "hint"),
    [
        pytest.param(storage_class(), Hint.QUEUE, id="waits"),
        pytest.param(storage_class(waits=False), Hint.SKIP, id="immediate"),
        pytest.param(None, Hint.QUEUE, id="unknown"),
    ],
)
def test_hint_after_a_classs_coming(new: object, hint: Hint) -> None:
    """Only a class whose claims wait lets a pod through."""
    assert after_class_creation(pod(), None, new) is hint


def test_events() -> None:
    """Classes that come; nodes, claims and volumes that come or change."""
    changed = Action.ADD | Action.UPDATE
    events = [each.event for each in VolumeZone(None, FakeHandle()).events_to_register()]
    assert events == [
        ClusterEvent(Resource.STORAGE_CLASS, Action.ADD),
        ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, changed),
        ClusterEvent(Resource.PERSISTENT_VOLUME, changed),
    ]
