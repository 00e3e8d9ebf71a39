"""VolumeBinding's filter and scores.

A node passes if all claims are bound, or can be bound, to volumes that it can reach.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest

from scheduler_core.config.plugin_args import UtilizationShapePoint, VolumeBindingArgs
from scheduler_core.errors import UndecidedRowsError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
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
from tests.support.presence import present
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
from tests.support.tables import table

ZONE = "topology.kubernetes.io/zone"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
DRIVER = "disk.example.com"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
CANNOT_BIND = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def filter_result(incoming: Pod, nodes: NodeColumns) -> tuple[Status, list[Status]]:
    """Return PreFilter's status and, if it is Success, the status of each row."""
    return filter_statuses(VolumeBinding(None, FakeHandle(nodes=nodes)), incoming, nodes)


def on_two_zones(storage: Sequence[StorageObject], *claims: str) -> list[Status]:
    """Return the statuses of node ``a`` in zone a and node ``b`` in zone b."""
    nodes = columns_with_storage([node("a", labels={ZONE: "a"}), node("b", labels={ZONE: "b"})], storage)
    status, found = filter_result(pod(volumes=mounts(*(claims or ("data",)))), nodes)
    assert status == SUCCESS
    return found


@table(
    "storage, status",
    ("missing", [], unresolvable('persistentvolumeclaim "data" not found')),
    (
        "lost",
        [claim(volume="pv", phase="Lost")],
        unresolvable('persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"'),
    ),
    (
        "immediate",
        [claim(), storage_class(waits=False)],
        unresolvable("pod has unbound immediate PersistentVolumeClaims"),
    ),
    ("no-class", [claim()], unresolvable("pod has unbound immediate PersistentVolumeClaims")),
    (
        "names-its-volume",
        [claim(volume="pv", bound=False), storage_class()],
        unresolvable("pod has unbound immediate PersistentVolumeClaims"),
    ),
    (
        "class-without-mode",
        [claim(), StorageClass(AnnotatedMeta(name="local"))],
        Status(Code.ERROR, ('VolumeBindingMode not set for StorageClass "local"',)),
    ),
)
def test_claims_that_reject_the_pod(storage: list[StorageObject], status: Status) -> None:
    """PreFilter rejects the pod for all nodes."""
    assert filter_result(pod(volumes=mounts("data")), columns_with_storage([node()], storage)) == (status, [])


@table(
    "storage, status",
    (
        "not-created-yet",
        [],
        unresolvable('waiting for ephemeral volume controller to create the persistentvolumeclaim "pod-scratch"'),
    ),
    (
        "of-another-pod",
        [claim("pod-scratch", owner="other")],
        unresolvable("PVC default/pod-scratch was not created for pod default/pod (pod is not owner)"),
    ),
    ("of-the-pod", [claim("pod-scratch", owner="uid-of-default-pod"), storage_class()], SUCCESS),
)
def test_ephemeral_claim(storage: list[StorageObject], status: Status) -> None:
    """An ephemeral claim must exist and be owned by the pod."""
    assert filter_result(pod(volumes=[scratch()]), columns_with_storage([], storage))[0] == status


def test_pod_without_claims_is_skipped() -> None:
    """PreFilter skips a pod without claims."""
    nodes = columns_with_storage([node()], [claim()])
    plugin = VolumeBinding(None, FakeHandle(nodes=nodes))
    assert plugin.pre_filter(CycleState(), nodes.compile_pod(pod()), nodes).status.is_skip


@table(
    "storage, here, there",
    ("from-everywhere", [volume("pv")], (), ()),
    ("from-one-zone", [volume("pv", on={ZONE: ["a"]})], (), (OUT_OF_REACH,)),
    ("volume-is-missing", [], (NO_VOLUME,), (NO_VOLUME,)),
)
def test_bound_claim(storage: list[StorageObject], here: tuple[str, ...], there: tuple[str, ...]) -> None:
    """A node passes if the volume exists and its node affinity matches."""
    found = on_two_zones([claim(volume="pv"), *storage])
    assert [status.reasons for status in found] == [here, there]


def test_the_first_failing_bound_claim_gives_the_reason() -> None:
    """A missing volume is not reported on a node that an earlier volume rejects."""
    storage: list[StorageObject] = [
        claim("one", volume="p"),
        volume("p", on={ZONE: ["a"]}),
        claim("two", volume="gone"),
    ]
    found = on_two_zones(storage, "one", "two")
    assert [status.reasons for status in found] == [(NO_VOLUME,), (OUT_OF_REACH,)]


def test_all_reasons_of_a_node_are_reported() -> None:
    """A node has the reasons of bound and of unbound claims."""
    reserved = volume("p", on={ZONE: ["a"]}, claim_ref="default/one")
    storage: list[StorageObject] = [claim("one", volume="p"), reserved, claim("two"), storage_class()]
    found = on_two_zones(storage, "one", "two")
    assert [status.reasons for status in found] == [(CANNOT_BIND,), (OUT_OF_REACH, CANNOT_BIND)]


IN_TREE = PersistentVolumeSpec(aws=AwsElasticBlockStore("vol-1"))
EBS_PLUGIN = "kubernetes.io/aws-ebs"


@table(
    "migrated, expected",
    ("in-tree", "", [(), (OUT_OF_REACH,)]),
    ("migrated", EBS_PLUGIN, [(OUT_OF_REACH,), ()]),
    ("another-plugin-migrated", "kubernetes.io/gce-pd,x", [(), (OUT_OF_REACH,)]),
)
def test_in_tree_volume_is_reached_by_its_drivers_labels(migrated: str, expected: list[tuple[str, ...]]) -> None:
    """On nodes with the migrated plugin, the driver's own zone label is matched instead of the standard one."""
    nodes = columns_with_storage(
        [node("a", labels={ZONE: "z"}), node("b", labels={EBS_ZONE: "z"})],
        [
            claim(volume="pv"),
            volume("pv", spec=IN_TREE, on={ZONE: ["z"]}),
            csi_node("a", migrated=migrated),
            csi_node("b", migrated=migrated),
        ],
    )
    assert [status.reasons for status in filter_result(pod(volumes=mounts("data")), nodes)[1]] == expected


def test_untranslatable_volume_leaves_rows_undecided() -> None:
    """Rows with the migrated plugin are undecided, and the error has the problem."""
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


@table(
    "unsuitable",
    ("too-small", volume(size="4Gi")),
    ("another-class", volume(storage_class="other")),
    ("another-access-mode", volume(modes=["ReadOnlyMany"])),
    ("another-volume-mode", volume(mode="Block")),
    ("not-available", volume(phase="Released")),
    ("reserved-for-another-claim", volume(claim_ref="default/other")),
    ("another-attributes-class", volume(attributes_class="gold")),
    ("out-of-reach", volume(on={ZONE: ["c"]})),
)
def test_unsuitable_volume(unsuitable: StorageObject) -> None:
    """Without a suitable volume, and without provisioning, no node passes."""
    found = on_two_zones([claim(), storage_class(), unsuitable])
    assert found == [unresolvable(CANNOT_BIND)] * 2


@table(
    "suitable",
    ("just-large-enough", volume(size="5Gi")),
    ("more-access-modes", volume(modes=["ReadOnlyMany", "ReadWriteOnce"])),
    ("default-volume-mode", volume(mode="Filesystem")),
    ("reserved-for-the-claim-in-any-phase", volume(claim_ref="default/data", phase="Pending")),
    ("reserved-for-the-claim-with-any-access-modes", volume(claim_ref=claim(), modes=[])),
    ("empty-attributes-class", volume(attributes_class="")),
)
def test_suitable_volume(suitable: StorageObject) -> None:
    """A suitable volume without node affinity makes every node pass."""
    assert on_two_zones([claim(), storage_class(), suitable]) == [SUCCESS, SUCCESS]


def test_a_reserved_volume_is_the_only_choice() -> None:
    """A claim with a reserved volume is not bound to a free volume, even if the node cannot reach the reserved one."""
    found = on_two_zones(
        [claim(), storage_class(), volume("reserved", claim_ref="default/data", on={ZONE: ["a"]}), volume("free")]
    )
    assert found == [SUCCESS, unresolvable(CANNOT_BIND)]


def test_selector_of_a_claim() -> None:
    """A claim's selector excludes volumes without the labels."""
    storage: list[StorageObject] = [
        claim(selector={"quality": "gold"}),
        storage_class(),
        volume("tin", labels={"quality": "tin"}),
    ]
    assert on_two_zones(storage) == [unresolvable(CANNOT_BIND)] * 2
    assert on_two_zones([*storage, volume("gold", labels={"quality": "gold"})]) == [SUCCESS] * 2


def test_two_claims_need_two_volumes() -> None:
    """A node that reaches one volume is rejected if two claims are unbound."""
    storage: list[StorageObject] = [
        claim("one"),
        claim("two"),
        storage_class(),
        volume("p", on={ZONE: ["a"]}),
        volume("q"),
    ]
    assert on_two_zones(storage, "one", "two") == [SUCCESS, unresolvable(CANNOT_BIND)]


def test_a_selected_node_excludes_all_others() -> None:
    """A claim with the selected-node annotation passes only on that node."""
    storage: list[StorageObject] = [claim(annotations={SELECTED_NODE: "b"}), storage_class("local", DRIVER)]
    assert on_two_zones(storage) == [unresolvable(CANNOT_BIND), SUCCESS]


@table(
    "storage, here, there",
    ("anywhere", [storage_class("local", DRIVER)], (), ()),
    ("no-provisioner", [storage_class("local", "")], (CANNOT_BIND,), (CANNOT_BIND,)),
    ("allowed-zone", [storage_class("local", DRIVER, on={ZONE: ["a", "c"]})], (), (CANNOT_BIND,)),
    ("empty-topology", [storage_class("local", DRIVER, on={})], (CANNOT_BIND,), (CANNOT_BIND,)),
    ("no-capacity-reported", [storage_class("local", DRIVER), csi_driver(DRIVER)], (NO_SPACE,), (NO_SPACE,)),
    (
        "driver-reports-no-capacity",
        [storage_class("local", DRIVER), csi_driver(DRIVER, reports_capacity=False)],
        (),
        (),
    ),
    (
        "capacity-in-one-zone",
        [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "local", "5Gi", on={ZONE: "a"})],
        (),
        (NO_SPACE,),
    ),
    (
        "too-little-capacity",
        [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "local", "4Gi", on={})],
        (NO_SPACE,),
        (NO_SPACE,),
    ),
    (
        "capacity-on-all-nodes",
        [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "local", "5Gi", on={})],
        (),
        (),
    ),
    (
        "capacity-on-no-nodes",
        [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "local", "5Gi", on=None)],
        (NO_SPACE,),
        (NO_SPACE,),
    ),
    (
        "capacity-of-another-class",
        [storage_class("local", DRIVER), csi_driver(DRIVER), capacity("c", "other", "5Gi", on={})],
        (NO_SPACE,),
        (NO_SPACE,),
    ),
    (
        "maximum-volume-size-overrides-capacity",
        [
            storage_class("local", DRIVER),
            csi_driver(DRIVER),
            CsiStorageCapacity(ObjectMeta(name="c"), "local", LabelSelector(), "9Gi", "4Gi"),
        ],
        (NO_SPACE,),
        (NO_SPACE,),
    ),
    (
        "topology-is-checked-before-capacity",
        [storage_class("local", DRIVER, on={ZONE: ["a"]}), csi_driver(DRIVER)],
        (NO_SPACE,),
        (CANNOT_BIND,),
    ),
)
def test_provisioned_volume(storage: list[StorageObject], here: tuple[str, ...], there: tuple[str, ...]) -> None:
    """A volume can be provisioned if the class's topologies and the driver's capacity allow it."""
    found = on_two_zones([claim(), *storage])
    assert [status.reasons for status in found] == [here, there]


def test_an_existing_volume_is_preferred_to_provisioning() -> None:
    """A node that reaches a suitable volume passes without capacity for provisioning."""
    storage: list[StorageObject] = [
        claim(),
        storage_class("local", DRIVER),
        csi_driver(DRIVER),
        volume(on={ZONE: ["a"]}),
    ]
    assert on_two_zones(storage) == [SUCCESS, unresolvable(NO_SPACE)]


def test_deleted_objects_are_not_used() -> None:
    """A volume that is being deleted is not used, and a claim that is being deleted rejects the pod."""
    found = on_two_zones([claim(), storage_class(), _deleted(volume())])
    assert found == [unresolvable(CANNOT_BIND)] * 2
    status, _ = filter_result(pod(volumes=mounts("data")), columns_with_storage([node()], [_deleted(claim())]))
    assert status == unresolvable('persistentvolumeclaim "data" is being deleted')


def _deleted(stored: PersistentVolume | PersistentVolumeClaim) -> StorageObject:
    metadata = msgspec.structs.replace(stored.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    return msgspec.structs.replace(stored, metadata=metadata)


def test_scoring_is_skipped_without_claims() -> None:
    """PreScore skips a pod without claims, and Score returns 0."""
    nodes, state = columns_with_storage([node("a"), node("b")], ()), CycleState()
    plugin, info = VolumeBinding(None, FakeHandle(nodes=nodes)), nodes.compile_pod(pod())
    plugin.pre_filter(state, info, nodes)
    assert plugin.pre_score(state, info, nodes, ALL_ROWS).is_skip
    assert plugin.score(state, info, nodes, ALL_ROWS).tolist() == [0, 0]


# -- scores: by default, more free storage leads to a higher score -----------------------------------------------------


LABEL = "zone"
NODES = (node("a", labels={LABEL: "a"}), node("b", labels={LABEL: "b"}))
DYNAMIC: tuple[StorageObject, ...] = (storage_class("local", DRIVER), csi_driver(DRIVER))


def scores(storage: list[StorageObject], *claims: str, args: VolumeBindingArgs | None = None) -> list[int]:
    """Return the scores of both nodes for a pod with claims."""
    nodes, state = columns_with_storage(NODES, storage), CycleState()
    plugin, info = VolumeBinding(args, FakeHandle(nodes=nodes)), nodes.compile_pod(pod(volumes=mounts(*claims)))
    assert plugin.pre_filter(state, info, nodes).status.is_success
    codes = present(plugin.filter(state, info, nodes, ALL_ROWS))
    assert not codes.any()
    assert plugin.pre_score(state, info, nodes, ALL_ROWS).is_success
    found: list[int] = plugin.score(state, info, nodes, ALL_ROWS).tolist()
    return found


def reported(zone: str, amount: str, of_class: str = "local") -> CsiStorageCapacity:
    """Return the storage capacity of a zone."""
    return capacity(f"{of_class}-{zone}", of_class, amount, on={LABEL: zone})


@pytest.mark.parametrize(
    ("storage", "claims", "expected"),
    [
        pytest.param(
            [claim("c", size="5Gi"), storage_class(), volume("v", size="10Gi", on={LABEL: ["a"]}),
             volume("w", size="20Gi", on={LABEL: ["b"]})],
            ["c"], [50, 75], id="size of the existing volume",
        ),
        pytest.param(
            [claim("c", size="1Gi"), claim("d", size="9Gi"), storage_class(), volume("v"), volume("w")],
            ["c", "d"], [50, 50], id="volumes of a class are summed",
        ),
        pytest.param(
            [claim("c", size="5Gi"), *DYNAMIC, reported("a", "10Gi"), reported("b", "50Gi")],
            ["c"], [50, 90], id="reported capacity",
        ),
        pytest.param(
            [claim("c", size="5Gi"), claim("d", size="5Gi"), *DYNAMIC, reported("a", "20Gi"), reported("b", "40Gi")],
            ["c", "d"], [50, 75], id="claims of a class share the capacity",
        ),
        pytest.param(
            [claim("c", size="5Gi"), claim("d", size="5Gi"), *DYNAMIC, reported("a", "8Gi"), reported("b", "10Gi")],
            ["c", "d"], [0, 0], id="more than the capacity",
        ),
        pytest.param(
            [claim("c", size="5Gi"), claim("d", size="5Gi", storage_class="fast"), *DYNAMIC,
             storage_class("fast", DRIVER), reported("a", "10Gi"), reported("b", "10Gi"),
             reported("a", "20Gi", "fast"), reported("b", "40Gi", "fast")],
            ["c", "d"], [63, 69], id="mean of the classes, half rounded up",
        ),
        pytest.param(
            [claim("c", size="5Gi"), claim("d", size="5Gi", storage_class="fast"), storage_class("local", DRIVER),
             storage_class("fast", DRIVER), csi_driver(DRIVER), volume("v", size="10Gi", on={LABEL: ["a"]}),
             reported("b", "50Gi"), reported("a", "20Gi", "fast"), reported("b", "20Gi", "fast")],
            ["c", "d"], [50, 83], id="a class with an existing volume ignores the capacity",
        ),
        pytest.param(
            [claim("c", size="5Gi"), storage_class("local", DRIVER), csi_driver(DRIVER, reports_capacity=False)],
            ["c"], [0, 0], id="nothing reported",
        ),
        pytest.param(
            [claim("c", size="5Gi"), *DYNAMIC,
             CsiStorageCapacity(ObjectMeta(name="s"), "local", LabelSelector(), None, "9Gi")],
            ["c"], [0, 0], id="a maximum volume size without a capacity",
        ),
    ],
)  # fmt: skip
def test_score(storage: list[StorageObject], claims: list[str], expected: list[int]) -> None:
    """The score is the mean over storage classes of the default shape's value at the utilization."""
    assert scores(storage, *claims) == expected


def test_shape() -> None:
    """A profile's shape can prefer full storage."""
    points = (UtilizationShapePoint(utilization=0, score=0), UtilizationShapePoint(utilization=100, score=10))
    storage = [claim("c", size="5Gi"), *DYNAMIC, reported("a", "10Gi"), reported("b", "50Gi")]
    assert scores(storage, "c", args=VolumeBindingArgs(shape=points)) == [50, 10]
