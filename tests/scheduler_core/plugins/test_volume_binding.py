"""VolumeBinding: a pod's claims are bound, or can be, to volumes that its node reaches."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest

from scheduler_core.errors import UndecidedRowsError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import AwsElasticBlockStore, Pod
from scheduler_core.model.storage import (
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    StorageObject,
)
from scheduler_core.plugins.volume_binding import VolumeBinding
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_statuses
from tests.support.storage import (
    capacity,
    claim,
    columns_with_storage,
    csi_driver,
    csi_node,
    mounts,
    scratch,
    storage_class,
    volume,
)

ZONE = "topology.kubernetes.io/zone"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
DRIVER = "disk.example.com"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


def unresolvable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
CANNOT_BIND = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def asked(wanted: Pod, nodes: NodeColumns) -> tuple[Status, list[Status]]:
    """Return PreFilter's status and, unless that ends the cycle, each row's."""
    return filter_statuses(VolumeBinding(None, FakeHandle(nodes=nodes)), wanted, nodes)


def on_two_zones(storage: Sequence[StorageObject], *claims: str) -> list[Status]:
    """Ask about node "a" of zone a and "b" of zone b."""
    nodes = columns_with_storage([node("a", labels={ZONE: "a"}), node("b", labels={ZONE: "b"})], storage)
    status, found = asked(pod(volumes=mounts(*(claims or ("data",)))), nodes)
    assert status == SUCCESS
    return found


@pytest.mark.parametrize(
    ("storage", "status"),
    [
        pytest.param([], unresolvable('persistentvolumeclaim "data" not found'), id="missing"),
        pytest.param(
            [claim(volume="pv", phase="Lost")],
            unresolvable('persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"'),
            id="lost",
        ),
        pytest.param(
            [claim(), storage_class(waits=False)],
            unresolvable("pod has unbound immediate PersistentVolumeClaims"),
            id="immediate",
        ),
        pytest.param([claim()], unresolvable("pod has unbound immediate PersistentVolumeClaims"), id="no-class"),
        pytest.param(
            [claim(volume="pv", bound=False), storage_class()],
            unresolvable("pod has unbound immediate PersistentVolumeClaims"),
            id="names-its-volume",
        ),
        pytest.param(
            [claim(), StorageClass(ObjectMeta(name="local"))],
            Status(Code.ERROR, ('VolumeBindingMode not set for StorageClass "local"',)),
            id="class-without-mode",
        ),
    ],
)
def test_claims_that_reject_the_pod(storage: list[StorageObject], status: Status) -> None:
    """Whatever the nodes."""
    assert asked(pod(volumes=mounts("data")), columns_with_storage([node()], storage)) == (status, [])


@pytest.mark.parametrize(
    ("storage", "status"),
    [
        pytest.param(
            [],
            unresolvable('waiting for ephemeral volume controller to create the persistentvolumeclaim "pod-scratch"'),
            id="not-made-yet",
        ),
        pytest.param(
            [claim("pod-scratch", owner="other")],
            unresolvable("PVC default/pod-scratch was not created for pod default/pod (pod is not owner)"),
            id="of-another-pod",
        ),
        pytest.param([claim("pod-scratch", owner="uid-of-default-pod"), storage_class()], SUCCESS, id="of-the-pod"),
    ],
)
def test_claim_made_for_the_pod(storage: list[StorageObject], status: Status) -> None:
    """It must be there and the pod's own."""
    assert asked(pod(volumes=[scratch()]), columns_with_storage([], storage))[0] == status


def test_pod_without_claims_is_skipped() -> None:
    """It has nothing to filter by."""
    nodes = columns_with_storage([node()], [claim()])
    plugin = VolumeBinding(None, FakeHandle(nodes=nodes))
    assert plugin.pre_filter(CycleState(), nodes.compile_pod(pod()), nodes).status.is_skip


@pytest.mark.parametrize(
    ("storage", "here", "there"),
    [
        pytest.param([volume("pv")], (), (), id="from-everywhere"),
        pytest.param([volume("pv", on={ZONE: ["a"]})], (), (OUT_OF_REACH,), id="from-one-zone"),
        pytest.param([], (NO_VOLUME,), (NO_VOLUME,), id="volume-is-gone"),
    ],
)
def test_bound_claim(storage: list[StorageObject], here: tuple[str, ...], there: tuple[str, ...]) -> None:
    """Its volume's node affinity decides."""
    found = on_two_zones([claim(volume="pv"), *storage])
    assert [status.reasons for status in found] == [here, there]


def test_first_bound_claim_that_fails_decides() -> None:
    """A missing volume is not looked for on a node that another volume rules out before it."""
    storage: list[StorageObject] = [
        claim("one", volume="p"),
        volume("p", on={ZONE: ["a"]}),
        claim("two", volume="gone"),
    ]
    found = on_two_zones(storage, "one", "two")
    assert [status.reasons for status in found] == [(NO_VOLUME,), (OUT_OF_REACH,)]


def test_all_reasons_of_a_node_are_reported() -> None:
    """Of its bound claims and of its unbound ones."""
    kept = volume("p", on={ZONE: ["a"]}, claim_ref="default/one")
    storage: list[StorageObject] = [claim("one", volume="p"), kept, claim("two"), storage_class()]
    found = on_two_zones(storage, "one", "two")
    assert [status.reasons for status in found] == [(CANNOT_BIND,), (OUT_OF_REACH, CANNOT_BIND)]


IN_TREE = PersistentVolumeSpec(aws=AwsElasticBlockStore("vol-1"))
EBS_PLUGIN = "kubernetes.io/aws-ebs"


@pytest.mark.parametrize(
    ("migrated", "expected"),
    [
        pytest.param("", [(), (OUT_OF_REACH,)], id="in-tree"),
        pytest.param(EBS_PLUGIN, [(OUT_OF_REACH,), ()], id="taken-over"),
        pytest.param("kubernetes.io/gce-pd,x", [(), (OUT_OF_REACH,)], id="another-taken-over"),
    ],
)
def test_in_tree_volume_is_reached_by_its_drivers_labels(migrated: str, expected: list[tuple[str, ...]]) -> None:
    """Where a driver has taken over, its own zone label counts: node "a" has the one, "b" the other."""
    nodes = columns_with_storage(
        [node("a", labels={ZONE: "z"}), node("b", labels={EBS_ZONE: "z"})],
        [
            claim(volume="pv"),
            volume("pv", spec=IN_TREE, on={ZONE: ["z"]}),
            csi_node("a", migrated=migrated),
            csi_node("b", migrated=migrated),
        ],
    )
    assert [status.reasons for status in asked(pod(volumes=mounts("data")), nodes)[1]] == expected


def test_untranslatable_volume_leaves_rows_undecided() -> None:
    """Those where the driver has taken over."""
    spec = PersistentVolumeSpec(aws=AwsElasticBlockStore("aws://zone/disk"))
    nodes = columns_with_storage(
        [node("a"), node("b")], [claim(volume="pv"), volume("pv", spec=spec), csi_node("b", migrated=EBS_PLUGIN)]
    )
    plugin, state, info = (
        VolumeBinding(None, FakeHandle(nodes=nodes)),
        CycleState(),
        nodes.compile_pod(pod(volumes=mounts("data"))),
    )
    plugin.pre_filter(state, info, nodes)
    with pytest.raises(UndecidedRowsError, match="could not translate pv") as caught:
        plugin.filter(state, info, nodes, ALL_ROWS)
    assert [code in caught.value.problems for code in caught.value.codes[:2].tolist()] == [False, True]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(volume(size="4Gi"), id="too-small"),
        pytest.param(volume(storage_class="other"), id="another-class"),
        pytest.param(volume(modes=["ReadOnlyMany"]), id="another-access-mode"),
        pytest.param(volume(mode="Block"), id="another-volume-mode"),
        pytest.param(volume(phase="Released"), id="not-available"),
        pytest.param(volume(claim_ref="default/other"), id="kept-for-another"),
        pytest.param(volume(attributes_class="gold"), id="another-attributes-class"),
        pytest.param(volume(on={ZONE: ["c"]}), id="out-of-reach"),
    ],
)
def test_volume_that_will_not_do(wrong: StorageObject) -> None:
    """The class makes none, so no node will do."""
    found = on_two_zones([claim(), storage_class(), wrong])
    assert found == [unresolvable(CANNOT_BIND)] * 2


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(volume(size="5Gi"), id="just-large-enough"),
        pytest.param(volume(modes=["ReadOnlyMany", "ReadWriteOnce"]), id="more-access-modes"),
        pytest.param(volume(mode="Filesystem"), id="default-volume-mode"),
        pytest.param(volume(claim_ref="default/data", phase="Pending"), id="kept-for-the-claim-whatever-its-phase"),
        pytest.param(volume(claim_ref=claim(), modes=[]), id="kept-for-the-claim-whatever-its-access-modes"),
        pytest.param(volume(attributes_class=""), id="empty-attributes-class"),
    ],
)
def test_volume_that_will_do(right: StorageObject) -> None:
    """On every node."""
    assert on_two_zones([claim(), storage_class(), right]) == [SUCCESS, SUCCESS]


def test_volume_kept_for_the_claim_is_the_only_choice() -> None:
    """Where it is out of reach, a free one does not stand in for it."""
    found = on_two_zones(
        [claim(), storage_class(), volume("kept", claim_ref="default/data", on={ZONE: ["a"]}), volume("free")]
    )
    assert found == [SUCCESS, unresolvable(CANNOT_BIND)]


def test_selector_of_a_claim() -> None:
    """Only volumes with its labels."""
    storage: list[StorageObject] = [
        claim(selector={"quality": "gold"}),
        storage_class(),
        volume("tin", labels={"quality": "tin"}),
    ]
    assert on_two_zones(storage) == [unresolvable(CANNOT_BIND)] * 2
    assert on_two_zones([*storage, volume("gold", labels={"quality": "gold"})]) == [SUCCESS] * 2


def test_two_claims_need_two_volumes() -> None:
    """Node "a" reaches two, node "b" one."""
    storage: list[StorageObject] = [
        claim("one"),
        claim("two"),
        storage_class(),
        volume("p", on={ZONE: ["a"]}),
        volume("q"),
    ]
    assert on_two_zones(storage, "one", "two") == [SUCCESS, unresolvable(CANNOT_BIND)]


def test_selected_node_leaves_no_other() -> None:
    """Until its volume was made there, or that failed."""
    storage: list[StorageObject] = [claim(annotations={SELECTED_NODE: "b"}), storage_class("local", DRIVER)]
    assert on_two_zones(storage) == [unresolvable(CANNOT_BIND), SUCCESS]


@pytest.mark.parametrize(
    ("storage", "here", "there"),
    [
        pytest.param([storage_class("local", DRIVER)], (), (), id="anywhere"),
        pytest.param([storage_class("local", "")], (CANNOT_BIND,), (CANNOT_BIND,), id="no-provisioner"),
        pytest.param([storage_class("local", DRIVER, on={ZONE: ["a", "c"]})], (), (CANNOT_BIND,), id="allowed-zone"),
        pytest.param([storage_class("local", DRIVER, on={})], (CANNOT_BIND,), (CANNOT_BIND,), id="empty-topology"),
        pytest.param(
            [storage_class("local", DRIVER), csi_driver(DRIVER)], (NO_SPACE,), (NO_SPACE,), id="no-room-reported"
        ),
        pytest.param(
            [storage_class("local", DRIVER), csi_driver(DRIVER, reports_capacity=False)], (), (), id="reports-nothing"
        ),
        pytest.param(
            [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "local", "5Gi", on={ZONE: "a"})],
            (),
            (NO_SPACE,),
            id="room-in-one-zone",
        ),
        pytest.param(
            [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "local", "4Gi", on={})],
            (NO_SPACE,),
            (NO_SPACE,),
            id="too-little-room",
        ),
        pytest.param(
            [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "local", "5Gi", on={})],
            (),
            (),
            id="room-everywhere",
        ),
        pytest.param(
            [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "local", "5Gi", on=None)],
            (NO_SPACE,),
            (NO_SPACE,),
            id="room-nowhere",
        ),
        pytest.param(
            [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "other", "5Gi", on={})],
            (NO_SPACE,),
            (NO_SPACE,),
            id="room-for-another-class",
        ),
        pytest.param(
            [
                storage_class("local", DRIVER),
                csi_driver(DRIVER),
                CsiStorageCapacity(ObjectMeta(name="c"), "local", LabelSelector(), "9Gi", "4Gi"),
            ],
            (NO_SPACE,),
            (NO_SPACE,),
            id="largest-volume-goes-before-room",
        ),
        pytest.param(
            [storage_class("local", DRIVER, on={ZONE: ["a"]}), csi_driver(DRIVER)],
            (NO_SPACE,),
            (CANNOT_BIND,),
            id="topology-goes-before-room",
        ),
    ],
)
def test_volume_made_for_the_claim(storage: list[StorageObject], here: tuple[str, ...], there: tuple[str, ...]) -> None:
    """The class's topologies and the driver's room decide."""
    found = on_two_zones([claim(), *storage])
    assert [status.reasons for status in found] == [here, there]


def test_existing_volume_goes_before_a_new_one() -> None:
    """Where one is in reach, room does not matter."""
    storage: list[StorageObject] = [
        claim(),
        storage_class("local", DRIVER),
        csi_driver(DRIVER),
        volume(on={ZONE: ["a"]}),
    ]
    assert on_two_zones(storage) == [SUCCESS, unresolvable(NO_SPACE)]


def test_what_is_ending_is_not_used() -> None:
    """A volume is not chosen, and a claim rejects the pod."""
    found = on_two_zones([claim(), storage_class(), _ending(volume())])
    assert found == [unresolvable(CANNOT_BIND)] * 2
    status, _ = asked(pod(volumes=mounts("data")), columns_with_storage([node()], [_ending(claim())]))
    assert status == unresolvable('persistentvolumeclaim "data" is being deleted')


def _ending(shown: PersistentVolume | PersistentVolumeClaim) -> StorageObject:
    metadata = msgspec.structs.replace(shown.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    return msgspec.structs.replace(shown, metadata=metadata)


def test_scoring_is_skipped_without_claims() -> None:
    """Every node would get 0."""
    nodes, state = columns_with_storage([node("a"), node("b")], ()), CycleState()
    plugin, info = VolumeBinding(None, FakeHandle(nodes=nodes)), nodes.compile_pod(pod())
    plugin.pre_filter(state, info, nodes)
    assert plugin.pre_score(state, info, nodes, ALL_ROWS).is_skip
    assert plugin.score(state, info, nodes, ALL_ROWS).tolist() == [0, 0]
