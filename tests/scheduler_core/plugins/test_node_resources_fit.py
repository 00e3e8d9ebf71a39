"""NodeResourcesFit: its filter with the status codes, its queueing hints, and running pods with a deferred resize."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import NodeResourcesFitArgs
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, HintFunction, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Shortage
from scheduler_core.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ContainerStatus, Pod, PodCondition, ResourceRequirements
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.plugins.node_resources_fit.filtering import PLACES, FreeColumns
from scheduler_core.snapshot.interning import CPU_COLUMN
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from tests.support.builders import container, node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_statuses
from tests.support.presence import present
from tests.support.tables import table

MANY = [f"example.com/r{number:02}" for number in range(16)]


def _plugin(nodes: NodeColumns, args: NodeResourcesFitArgs | None = None) -> NodeResourcesFit:
    return NodeResourcesFit(args or NodeResourcesFitArgs(), FakeHandle(nodes=nodes))


def _statuses(
    nodes: NodeColumns, incoming: Pod, rows: Rows = ALL_ROWS, args: NodeResourcesFitArgs | None = None
) -> list[Status]:
    """Return the filter's status for each row."""
    status, found = filter_statuses(_plugin(nodes, args), incoming, nodes, rows)
    assert status == SUCCESS
    return found


@table(
    "incoming, status",
    ("no requests", pod(), SUCCESS),
    ("exactly the free amount", pod(requests={"cpu": "2", "memory": "2Gi"}), SUCCESS),
    ("one milli-CPU too much", pod(requests={"cpu": "2001m"}), unschedulable("Insufficient cpu")),
    ("memory in use", pod(requests={"memory": "3Gi"}), unschedulable("Insufficient memory")),
    (
        "all reasons, cpu first",
        pod(requests={"cpu": "3", "memory": "3Gi"}),
        unschedulable("Insufficient cpu", "Insufficient memory"),
    ),
    ("fits the empty node", pod(requests={"cpu": "4"}), unschedulable("Insufficient cpu")),
    ("larger than the empty node", pod(requests={"cpu": "4001m"}), unresolvable("Insufficient cpu")),
    (
        "one unresolvable resource makes the node unresolvable",
        pod(requests={"cpu": "5", "memory": "3Gi"}),
        unresolvable("Insufficient cpu", "Insufficient memory"),
    ),
    (
        "the node has no storage",
        pod(requests={"ephemeral-storage": "1Gi"}),
        unresolvable("Insufficient ephemeral-storage"),
    ),
    ("gpu in use", pod(requests={"nvidia.com/gpu": 2}), unschedulable("Insufficient nvidia.com/gpu")),
    ("zero of a resource that the node lacks", pod(requests={"example.com/none": 0}), SUCCESS),
    (
        "cpu before others in any order of the pod",
        pod(requests={"example.com/a": 1, "cpu": "3"}),
        unresolvable("Insufficient cpu", "Insufficient example.com/a"),
    ),
)
def test_free_resources(incoming: Pod, status: Status) -> None:
    """The pod is compared with a node with 4 CPUs, 4 GiB and 2 GPUs, of which 2, 2 and 1 are in use."""
    nodes = columns(
        [node("a", allocatable={"cpu": "4", "memory": "4Gi", "pods": "10", "nvidia.com/gpu": "2"})],
        [pod("old", requests={"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": 1}, node_name="a")],
    )
    assert _statuses(nodes, incoming) == [status]


@table(
    "allowed, status",
    ("one pod slot left", "2", SUCCESS),
    ("no pod slot left", "1", unschedulable("Too many pods")),
    ("no pod slots, but not unresolvable", "0", unschedulable("Too many pods")),
)
def test_pod_count(allowed: str, status: Status) -> None:
    """Pods without requests count towards the pod limit."""
    nodes = columns([node("a", allocatable={"cpu": "4", "pods": allowed})], [pod("old", node_name="a")])
    assert _statuses(nodes, pod()) == [status]


def test_the_pod_count_is_the_first_reason() -> None:
    """A node without pod slots and without CPU has both reasons."""
    nodes = columns([node("a", allocatable={"cpu": "1"})])
    assert _statuses(nodes, pod(requests={"cpu": "2"})) == [unresolvable("Too many pods", "Insufficient cpu")]


@table(
    "args, missing",
    ("nothing ignored", NodeResourcesFitArgs(), ["example.com/a", "example.com/b"]),
    ("one by name", NodeResourcesFitArgs(ignored_resources=("example.com/a",)), ["example.com/b"]),
    ("all of a group", NodeResourcesFitArgs(ignored_resource_groups=("example.com",)), []),
    (
        "another group",
        NodeResourcesFitArgs(ignored_resource_groups=("example.org",)),
        ["example.com/a", "example.com/b"],
    ),
)
def test_ignored_resources(args: NodeResourcesFitArgs, missing: Sequence[str]) -> None:
    """Extended resources that the profile ignores do not reject a node."""
    nodes = columns([node("a")])
    expected = unresolvable(*(f"Insufficient {name}" for name in missing)) if missing else SUCCESS
    assert _statuses(nodes, pod(requests={"example.com/a": 1, "example.com/b": 1}), args=args) == [expected]


@pytest.mark.parametrize("name", ["cpu", "hugepages-2Mi", "kubernetes.io/batch"])
def test_only_extended_resources_are_ignored(name: str) -> None:
    """A native resource in ignoredResources is still compared."""
    args = NodeResourcesFitArgs(ignored_resources=(name,), ignored_resource_groups=(name.partition("/")[0],))
    nodes = columns([node("a", allocatable={"pods": "10"})])
    assert _statuses(nodes, pod(requests={name: "2Mi"}), args=args) == [unresolvable(f"Insufficient {name}")]


def test_rows_are_filtered_in_the_given_order() -> None:
    """Statuses of selected rows are in the order of the rows."""
    nodes = columns(
        [node(f"cpu{cpu}-{row}", allocatable={"cpu": cpu, "pods": 9}) for row, cpu in enumerate((1, 4, 1, 4))]
    )
    short = unresolvable("Insufficient cpu")
    rows = np.array([1, 2], dtype=np.intp)
    assert _statuses(nodes, pod(requests={"cpu": "2"}), rows) == [SUCCESS, short]
    assert _statuses(nodes, pod(requests={"cpu": "2"})) == [short, SUCCESS, short, SUCCESS]


@pytest.mark.parametrize("count", [13, 14, 16])
def test_many_resources(count: int) -> None:
    """Every reason is reported for a pod that requests more resources than a code has bits."""
    amounts: Mapping[str, str | int] = dict.fromkeys(MANY[:count], 1)
    nodes = columns(
        [
            node("all", allocatable={**amounts, "pods": "9"}),
            node("few", allocatable={**amounts, MANY[3]: 0, MANY[count - 1]: 0, "pods": "9"}),
            node("full", allocatable={**amounts, "pods": "1"}),
            node("none", allocatable={}),
        ],
        [pod("old", requests={MANY[count - 1]: 1}, node_name="full")],
    )
    reasons = [f"Insufficient {name}" for name in MANY[:count]]
    assert _statuses(nodes, pod(requests=amounts)) == [
        SUCCESS,
        unresolvable(reasons[3], reasons[-1]),
        unschedulable("Too many pods", reasons[-1]),
        unresolvable("Too many pods", *reasons),
    ]


def test_many_resources_that_all_fit() -> None:
    """Filter returns None if every row passes."""
    amounts: Mapping[str, str | int] = dict.fromkeys(MANY, 1)
    nodes = columns([node("a", allocatable={**amounts, "pods": "9"})])
    plugin, state, info = _plugin(nodes), CycleState(), nodes.compile_pod(pod(requests=amounts))
    plugin.pre_filter(state, info, nodes)
    assert plugin.filter(state, info, nodes, ALL_ROWS) is None


def test_a_code_is_decoded_without_its_attempt() -> None:
    """A code of a pod with few resources has the same meaning for another pod of its class."""
    nodes = columns([node("a", allocatable={"cpu": "1", "pods": "9"})])
    plugin, state = _plugin(nodes), CycleState()
    first, second = (nodes.compile_pod(pod(name, requests={"memory": "1Gi", "cpu": "2"})) for name in ("x", "y"))
    plugin.pre_filter(state, first, nodes)
    codes = present(plugin.filter(state, first, nodes, ALL_ROWS))
    expected = unresolvable("Insufficient cpu", "Insufficient memory")
    assert plugin.decode(CycleState(), second, int(codes[0])) == expected


_RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/a", "hugepages-2Mi")
_AMOUNTS = st.dictionaries(st.sampled_from(_RESOURCES), st.integers(0, 4))


def _plain_status(here: Node, placed: Sequence[Pod], incoming: Pod) -> Status:
    """Return the status for one node; all amounts are whole numbers."""

    def requested(one: Pod, name: str) -> int:
        return sum(int(each.resources.requests.get(name, 0)) for each in one.spec.containers)

    reasons, is_unresolvable = [], False
    if len(placed) + 1 > int(here.status.allocatable.get("pods", 0)):
        reasons.append("Too many pods")
    for name in _RESOURCES:
        has, wants = int(here.status.allocatable.get(name, 0)), requested(incoming, name)
        if wants and wants > has - sum(requested(each, name) for each in placed):
            reasons.append(f"Insufficient {name}")
            is_unresolvable = is_unresolvable or wants > has
    if not reasons:
        return SUCCESS
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE if is_unresolvable else Code.UNSCHEDULABLE, tuple(reasons))


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod], Pod]:
    nodes = [
        node(f"n{row}", allocatable={**draw(_AMOUNTS), "pods": draw(st.integers(0, 3))})
        for row in range(draw(st.integers(1, 5)))
    ]
    placed = [
        pod(f"p{number}", requests=draw(_AMOUNTS), node_name=draw(st.sampled_from(nodes)).metadata.name)
        for number in range(draw(st.integers(0, 6)))
    ]
    containers = [container(name=f"c{number}", requests=draw(_AMOUNTS)) for number in range(draw(st.integers(1, 2)))]
    return nodes, placed, pod("incoming", containers=containers)


@given(_clusters())
def test_equals_the_form_for_one_node(cluster: tuple[list[Node], list[Pod], Pod]) -> None:
    """Statuses equal those of single nodes; the order of reasons is not compared."""
    nodes, placed, incoming = cluster
    statuses = _statuses(columns(nodes, placed), incoming)
    for here, status in zip(nodes, statuses, strict=True):
        on_it = [each for each in placed if each.spec.node_name == here.metadata.name]
        expected = _plain_status(here, on_it, incoming)
        assert (status.code, set(status.reasons)) == (expected.code, set(expected.reasons))


COUNT = 300
"""Number of nodes, large enough that a single changed row is recomputed alone."""


def _equal_nodes() -> NodeColumns:
    return columns(node(f"n{row}", allocatable={"cpu": "4", "pods": "1"}) for row in range(COUNT))


def _short(free: FreeColumns, column: int, amount: int) -> list[int]:
    short = free.short(column, amount, ALL_ROWS)
    return [] if short is None else np.flatnonzero(short).tolist()


def test_a_row_becomes_short() -> None:
    """A row is short once its free amount is less than requested."""
    nodes = _equal_nodes()
    free = FreeColumns(nodes)
    assert _short(free, CPU_COLUMN, 4000) == []
    assert _short(free, PLACES, 1) == []
    nodes.add_pod(nodes.compile_pod(pod(requests={"cpu": "1m"})), 17)
    assert _short(free, CPU_COLUMN, 4000) == [17]
    assert _short(free, PLACES, 1) == [17]


def test_a_row_stops_being_short() -> None:
    """A row is not short after its pods are removed; the cached minimum is then recomputed."""
    nodes = _equal_nodes()
    free = FreeColumns(nodes)
    info = nodes.compile_pod(pod(requests={"cpu": "3"}))
    nodes.add_pod(info, 17)
    assert _short(free, CPU_COLUMN, 2000) == [17]
    nodes.remove_pod(info)
    assert _short(free, CPU_COLUMN, 2000) == []
    assert _short(free, CPU_COLUMN, 4000) == []
    assert _short(free, CPU_COLUMN, 4001) == list(range(COUNT))


def test_selected_rows() -> None:
    """Results for many selected rows (from the cache) and for few (from the columns) are equal."""
    nodes = _equal_nodes()
    free = FreeColumns(nodes)
    nodes.add_pod(nodes.compile_pod(pod(requests={"cpu": "3"})), 17)
    for rows in (np.arange(10, 20), np.arange(10, COUNT)):
        short = present(free.short(CPU_COLUMN, 2000, rows))
        assert rows[short].tolist() == [17]


def test_without_rows_nothing_is_short() -> None:
    """short() returns None without nodes or without selected rows."""
    assert FreeColumns(NodeColumns()).short(CPU_COLUMN, 1, ALL_ROWS) is None
    assert FreeColumns(_equal_nodes()).short(CPU_COLUMN, 5000, np.empty(0, dtype=np.intp)) is None


def test_the_number_of_cached_resources_is_bounded() -> None:
    """Results are correct for more resources than the cache holds."""
    names = [f"example.com/r{number}" for number in range(20)]
    nodes = columns([node(allocatable=dict.fromkeys(names, "2"))])
    free = FreeColumns(nodes)
    for amount, expected in ((2, []), (3, [0])):
        for name in names:
            column = present(nodes.resources.find(name))
            assert _short(free, column, amount) == expected


WAITING = pod("waiting", requests={"cpu": "2", "memory": "1Gi"})
SMALL = {"cpu": "1", "memory": "4Gi", "pods": "10"}
LARGE = {"cpu": "4", "memory": "4Gi", "pods": "10"}


def _hint(resource: Resource, action: Action) -> HintFunction:
    """Return the hint that is registered for an event."""
    for registration in NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle()).events_to_register():
        if registration.event.covers(ClusterEvent(resource, action)):
            assert registration.hint is not None
            return registration.hint
    pytest.fail(f"nothing is registered for {resource} {action}")


def _resized(name: str, spec: str, granted: str) -> Pod:
    status = ContainerStatus("main", {}, ResourceRequirements({"cpu": granted}))
    return pod(name, requests={"cpu": spec}, node_name="a", container_statuses=[status])


@table(
    "old, new, hint",
    ("a bound pod is deleted", pod("other", node_name="a"), None, Hint.QUEUE),
    ("a nominated pod is deleted", pod("other", nominated_node="a"), None, Hint.QUEUE),
    ("a pod without a node is deleted", pod("other"), None, Hint.SKIP),
    (
        "a bound pod frees cpu",
        pod("other", requests={"cpu": "4"}, node_name="a"),
        pod("other", requests={"cpu": "3"}, node_name="a"),
        Hint.QUEUE,
    ),
    (
        "a pod without a node frees cpu",
        pod("other", requests={"cpu": "4"}),
        pod("other", requests={"cpu": "3"}),
        Hint.SKIP,
    ),
    (
        "a bound pod frees a resource that is not requested",
        pod("other", requests={"example.com/a": 2}, node_name="a"),
        pod("other", requests={"example.com/a": 1}, node_name="a"),
        Hint.SKIP,
    ),
    (
        "a bound pod requests more",
        pod("other", requests={"cpu": "4", "memory": "1Gi"}, node_name="a"),
        pod("other", requests={"cpu": "5", "memory": "1Gi"}, node_name="a"),
        Hint.SKIP,
    ),
    ("a resize is in force", _resized("other", "1", "4"), _resized("other", "1", "2"), Hint.QUEUE),
    ("a resize is only requested", _resized("other", "4", "4"), _resized("other", "1", "4"), Hint.SKIP),
    ("the pod itself requests less", WAITING, pod("waiting", requests={"cpu": "1"}), Hint.QUEUE),
    ("not a pod", object(), object(), Hint.QUEUE),
)
def test_after_a_pod_changed(old: object, new: object | None, hint: Hint) -> None:
    """A pod is requeued if another pod frees, on a node, a resource that it requests."""
    assert _hint(Resource.ASSIGNED_POD, Action.DELETE)(WAITING, old, new) is hint


@table(
    "old, new, hint",
    ("a large node is added", None, node(allocatable=LARGE), Hint.QUEUE),
    ("a small node is added", None, node(allocatable=SMALL), Hint.SKIP),
    ("a node without pod slots is added", None, node(allocatable={**LARGE, "pods": "0"}), Hint.SKIP),
    ("allocatable cpu grows enough", node(allocatable=SMALL), node(allocatable=LARGE), Hint.QUEUE),
    ("allocatable cpu shrinks", node(allocatable=LARGE), node(allocatable=SMALL), Hint.SKIP),
    ("allocatable is unchanged", node(allocatable=LARGE), node(allocatable=LARGE), Hint.SKIP),
    (
        "a resource that is not requested grows",
        node(allocatable=LARGE),
        node(allocatable={**LARGE, "ephemeral-storage": "1Gi"}),
        Hint.SKIP,
    ),
    ("allocatable pods grow", node(allocatable=LARGE), node(allocatable={**LARGE, "pods": "11"}), Hint.QUEUE),
    ("a node is deleted", node(allocatable=LARGE), None, Hint.SKIP),
    ("not a node", None, object(), Hint.QUEUE),
)
def test_after_a_node_changed(old: object | None, new: object | None, hint: Hint) -> None:
    """A pod is requeued if it fits the empty node and a requested resource of the node has grown."""
    assert _hint(Resource.NODE, Action.ADD)(WAITING, old, new) is hint


# -- running pods with a deferred resize -------------------------------------------------------------------------------

# Expected values follow kube-scheduler v1.37.1, ``noderesources/fit.go``
# (``adjustDeltasToAccomodateCacheDiscrepancy``).


GPU = "example.com/gpu"
DEFERRED = PodCondition("PodResizePending", "True", "Deferred")
MANY_REQUESTS = {f"example.com/r{number:02}": 1 for number in range(14)}
ALLOCATABLE: Mapping[str, str | int] = {"cpu": "3", "memory": "3Gi", "pods": "4", GPU: 2}


def _running(requests: Mapping[str, str | int], node_name: str = "b") -> Pod:
    return pod("resized", node_name=node_name, requests=requests, conditions=[DEFERRED])


def _nodes(counted: Pod, others: list[Pod], allocatable: Mapping[str, str | int] = ALLOCATABLE) -> NodeColumns:
    return columns([node("a", allocatable=allocatable), node("b", allocatable=allocatable)], [*others, counted])


def _status(nodes: NodeColumns, resized: Pod, rows: Rows = ALL_ROWS) -> Status:
    """Return the filter's status on node b, the last of the rows."""
    plugin = NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle(nodes=nodes))
    status, found = filter_statuses(plugin, resized, nodes, rows)
    assert status == SUCCESS
    return found[-1]


@table("rows", ("all", ALL_ROWS), ("own-node", np.array([1])))
@table(
    "counted, requests, others, status",
    ("node-counts-it-already", {"cpu": "3"}, {"cpu": "3"}, [], SUCCESS),
    ("overcommitted", {"cpu": "3"}, {"cpu": "3"}, [{"cpu": "1"}], unschedulable("Insufficient cpu")),
    ("larger-than-the-node", {"cpu": "4"}, {"cpu": "4"}, [], unresolvable("Insufficient cpu")),
    ("delta-is-free", {"cpu": "1"}, {"cpu": "3"}, [], SUCCESS),
    ("delta-is-not-free", {"cpu": "1"}, {"cpu": "3"}, [{"cpu": "1"}], unschedulable("Insufficient cpu")),
    ("shrinks", {"cpu": "3"}, {"cpu": "1"}, [{"cpu": "1"}], unschedulable("Insufficient cpu")),
    ("cpu-is-not-requested", {"memory": "1Gi"}, {"memory": "1Gi"}, [{"cpu": "4"}], SUCCESS),
    ("node-counts-the-gpus-already", {GPU: 2}, {GPU: 2}, [{GPU: 1}], SUCCESS),
    ("gpu", {GPU: 1}, {GPU: 2}, [{GPU: 1}], unschedulable("Insufficient example.com/gpu")),
    ("too-many-gpus", {GPU: 1}, {GPU: 4}, [], unresolvable("Insufficient example.com/gpu")),
    ("gpu-delta-is-not-free", {GPU: 2}, {GPU: 3}, [{GPU: 1}], unschedulable("Insufficient example.com/gpu")),
    ("its-pod-slot-counts-twice", {}, {}, [{}, {}, {}], unschedulable("Too many pods")),
)
def test_deltas(
    counted: dict[str, str | int],
    requests: dict[str, str | int],
    others: list[dict[str, str | int]],
    status: Status,
    rows: Rows,
) -> None:
    """On the pod's own node, only the amount that the node does not count yet must be free."""
    beside = [pod(f"other-{number}", node_name="b", requests=each) for number, each in enumerate(others)]
    assert _status(_nodes(_running(counted), beside), _running(requests), rows) == status


def test_a_node_that_does_not_count_the_pod() -> None:
    """The full request must be free on a node that does not count the pod."""
    nodes = _nodes(_running({"cpu": "2"}, "a"), [pod("other", node_name="b", requests={"cpu": "2"})])
    assert _status(nodes, _running({"cpu": "2"}, "a")) == unschedulable("Insufficient cpu")


@table("used, status", ("fits", "3", SUCCESS), ("does-not-fit", "4", unschedulable("Insufficient cpu")))
def test_many_resources_of_a_resized_pod(used: str, status: Status) -> None:
    """Statuses are correct on the own node of a pod with more resources than a code has bits."""
    resized = pod("resized", node_name="b", requests={"cpu": "1", **MANY_REQUESTS}, conditions=[DEFERRED])
    other = pod("other", node_name="b", requests={"cpu": used})
    assert _status(_nodes(resized, [other], {"cpu": "4", "pods": "9", **MANY_REQUESTS}), resized) == status


def test_shortages() -> None:
    """shortages() reports the amount that the node does not count yet."""
    nodes = _nodes(_running({"cpu": "1"}), [pod("other", node_name="b", requests={"cpu": "2"})])
    plugin = NodeResourcesFit(NodeResourcesFitArgs(), FakeHandle(nodes=nodes))
    assert plugin.shortages(CycleState(), nodes.compile_pod(_running({"cpu": "3"})), nodes, 1) == (
        Shortage("cpu", 2000, 0),
    )
