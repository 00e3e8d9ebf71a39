"""Law of the overlay: its columns equal those of the hypothetical cluster, and are restored when it ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from scheduler_core.model.node import Node
from scheduler_core.model.pod import AwsElasticBlockStore, Pod, Volume
from scheduler_core.model.pod_volumes import pod_volumes
from scheduler_core.model.selectors import PodQuery, compile_label_selector
from scheduler_core.model.storage import StorageObject
from scheduler_core.snapshot.interning import SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, WILDCARD_IP, PodInfo
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.columns_state import Queries, by_name, columns_state
from tests.support.gang_preemption import terminating_pod
from tests.support.storage import attachment, claim, columns_with_storage, mounts, storage_class, volume

DRIVER = "disk.example.com"
KNOWN_NODES, NEW_NODES = ("a", "b", "c"), ("x", "y")
SCALARS = ("example.com/gpu", "example.com/nic")
STORAGE: tuple[StorageObject, ...] = (
    storage_class("local", DRIVER),
    volume("pv", csi=(DRIVER, "h")),
    claim("bound", volume="pv"),
    claim("unbound"),
    attachment("on-x", DRIVER, "x", "pv"),
)
DISK = Volume(name="disk", aws=AwsElasticBlockStore("vol-1"))
QUERY = PodQuery(
    compile_label_selector(LabelSelector({"app": "x"})), frozenset(("default",)), compile_label_selector(None)
)
QUERIES = Queries(
    resources=("cpu", "memory", *SCALARS),
    labels=("zone", "size"),
    ports=(("TCP", 80, WILDCARD_IP), ("TCP", 443, WILDCARD_IP)),
    claims=("default/bound", "default/unbound"),
    disks=tuple(each for disk in pod_volumes(pod(volumes=[DISK])).disks for each in disk.identities),
    volumes=((DRIVER, "h"),),
    priorities=(0, 1, 6),
)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", *SCALARS]), st.sampled_from(["1", "2"]), max_size=3)
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2)
TERMS = st.lists(st.builds(PodAffinityTerm, st.just("zone"), st.builds(LabelSelector, LABELS)), max_size=1)


@st.composite
def _pods(draw: st.DrawFn, name: str, on: tuple[str, ...]) -> Pod:
    claims = draw(st.sets(st.sampled_from(["bound", "unbound"])))
    created = pod(
        name,
        node_name=draw(st.sampled_from(on)),
        requests=draw(AMOUNTS),
        ports=draw(st.lists(st.sampled_from([80, 443]), unique=True)),
        volumes=[*mounts(*sorted(claims)), *draw(st.sampled_from([[], [DISK]]))],
        labels=draw(LABELS),
        affinity=Affinity(None, PodAffinity(tuple(draw(TERMS))), PodAffinity(tuple(draw(TERMS)))),
        priority=draw(st.sampled_from([0, 1, 5])),
    )
    return terminating_pod(created) if draw(st.booleans()) else created


@st.composite
def _nodes(draw: st.DrawFn, names: tuple[str, ...]) -> Node:
    return node(
        draw(st.sampled_from(names)),
        labels=draw(st.dictionaries(st.sampled_from(["zone", "size"]), st.sampled_from(["1", "2"]))),
        taints=draw(st.lists(st.sampled_from(["k=v:NoSchedule", "l=w:NoExecute"]), unique=True)),
        allocatable={"pods": "9", "cpu": "4", **dict.fromkeys(draw(st.sets(st.sampled_from(SCALARS))), "2")},
        images=draw(st.dictionaries(st.sampled_from(["web:1", "db:2"]), st.integers(1, 3))),
        unschedulable=draw(st.booleans()),
    )


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("remove"), st.integers(0, 7)),
        st.tuples(st.just("restore"), st.integers(0, 7)),
        _pods("new", (*KNOWN_NODES, *NEW_NODES)).map(lambda created: ("add", created)),
        _nodes((*KNOWN_NODES, *NEW_NODES)).map(lambda created: ("node", created)),
    ),
    max_size=12,
)


class OverlaidColumns:
    """Columns under an overlay, and the nodes and pods that they should contain."""

    def __init__(self, nodes: list[Node], pods: list[Pod], bounds: SnapshotBounds) -> None:
        self.bounds = bounds
        # Deleted nodes leave free rows, and the sizes of their images.
        deleted = [node(name, images={"web:1": 9, "db:2": 9}) for name in ("deleted", "left")]
        self.columns = columns([*deleted, *nodes], pods, bounds)
        _fill(self.columns)
        for each in deleted:
            self.columns.remove_node(each.metadata.name)
        self.running = [info for pods in self.columns.pods for info in pods.values()]
        self.nodes = {each.metadata.name: each for each in nodes}
        self.pods = {info.uid: info.pod for info in self.running}

    def apply(self, overlay: ColumnsOverlay, kind: str, value: object) -> None:
        """Apply one change, if it is possible."""
        if kind == "node" and isinstance(value, Node):
            is_known = value.metadata.name in self.nodes
            (overlay.update_node if is_known else overlay.add_node)(value)
            self.nodes[value.metadata.name] = value
        elif kind == "add" and isinstance(value, Pod):
            row = self.columns.row_of(value.spec.node_name)
            if row != NO_ROW and value.metadata.uid not in self.pods:
                overlay.add(self.columns.compile_pod(value), row)
                self.pods[value.metadata.uid] = value
        elif isinstance(value, int) and self.running:
            info = self.running[value % len(self.running)]
            if kind == "remove":
                overlay.remove([info])
                self.pods.pop(info.uid, None)
            else:
                overlay.restore([info])
                self.pods[info.uid] = info.pod

    def rebuilt(self) -> NodeColumns:
        """Return columns that are built from scratch."""
        nodes = columns(self.nodes.values(), self.pods.values(), self.bounds)
        _fill(nodes)
        return nodes


def _fill(nodes: NodeColumns) -> None:
    for shown in STORAGE:
        nodes.storage.assign(shown)
    nodes.pod_index.query(QUERY)
    for key in QUERIES.labels:
        nodes.label_column(key)


@given(
    nodes=st.tuples(*(_nodes((name,)) for name in KNOWN_NODES)),
    pods=st.tuples(*(_pods(f"p{number}", KNOWN_NODES) for number in range(4))),
    changes=CHANGES,
    limit=st.sampled_from([1, 1024]),
)
def test_an_overlay_equals_the_hypothetical_cluster_and_is_reverted(
    nodes: tuple[Node, ...], pods: tuple[Pod, ...], changes: list[tuple[str, object]], limit: int
) -> None:
    """Columns under an overlay equal rebuilt columns, and afterwards equal the columns before.

    With one column for scalar resources, only the revert is compared: no resource may lose its column to another.
    """
    overlaid = OverlaidColumns(list(nodes), list(pods), SnapshotBounds(resources=limit))
    before = columns_state(overlaid.columns)
    with ColumnsOverlay(overlaid.columns) as overlay:
        for kind, value in changes:
            overlaid.apply(overlay, kind, value)
            if limit > len(SCALARS):
                assert by_name(overlaid.columns, QUERIES) == by_name(overlaid.rebuilt(), QUERIES)
    assert columns_state(overlaid.columns) == before


@given(
    pods=st.lists(st.sets(st.sampled_from([80, 443]), min_size=1), min_size=1, max_size=4),
    changes=st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=10),
)
def test_shared_host_ports_are_a_set_as_in_kube_scheduler(
    pods: list[set[int]], changes: list[tuple[bool, int]]
) -> None:
    """With ``frees_shared_ports``, removing one of two pods with a port frees it, and restoring either uses it."""
    running = [pod(f"p{number}", node_name="a", ports=sorted(ports)) for number, ports in enumerate(pods)]
    nodes = columns_with_storage([node("a")], (), running)
    infos: list[PodInfo] = list(nodes.pods[0].values())
    before, used = columns_state(nodes), set[int]().union(*pods)
    with ColumnsOverlay(nodes, frees_shared_ports=True) as overlay:
        for is_removal, number in changes:
            info, ports = infos[number % len(infos)], pods[number % len(infos)]
            if is_removal is (info.row == NO_ROW):
                continue
            if is_removal:
                overlay.remove([info])
                used -= ports
            else:
                overlay.restore([info])
                used |= ports
            used_ports = {port[1] for port in QUERIES.ports if len(nodes.host_ports.conflicting_rows((port,)))}
            assert used_ports == used
    assert columns_state(nodes) == before


def test_a_resource_keeps_its_column() -> None:
    """A resource retains its column while its only node does not offer it and another resource needs a column."""
    gpu, nic = (node(name, allocatable={scalar: "1"}) for name, scalar in zip(KNOWN_NODES, SCALARS, strict=False))
    nodes = columns([gpu, nic], (), SnapshotBounds(resources=1))
    before = columns_state(nodes)
    with ColumnsOverlay(nodes) as overlay:
        overlay.update_node(node(gpu.metadata.name))
    assert columns_state(nodes) == before


def test_an_added_node_leaves_a_free_row() -> None:
    """An overlay that adds a node leaves a free row, which the next node uses."""
    nodes = columns([node("a")])
    with ColumnsOverlay(nodes) as overlay:
        overlay.add_node(node("b"), [nodes.compile_pod(pod("p"))])
        assert nodes.pod_count.tolist() == [0, 1]
    assert nodes.alive.tolist() == [True, False]
    assert not nodes.pod_count.any()
    assert nodes.add_node(node("c")) == 1
