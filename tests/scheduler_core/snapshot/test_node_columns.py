"""Node columns: rows, allocatable amounts, and the sums of the pods' requests."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scheduler_core.errors import CacheError, QuantityError
from scheduler_core.model.pod_requests import LARGEST_CAPACITY, LARGEST_REQUEST
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.interning import CPU_COLUMN, MEMORY_COLUMN, UNOFFERED_COLUMN, LabelColumns, SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from tests.support.builders import container, node, pod, taint
from tests.support.columns import columns
from tests.support.presence import present
from tests.support.tables import table

MIB = 1024 * 1024


def test_columns_of_a_node() -> None:
    """The columns have each field of a node that a scheduling cycle reads."""
    nodes = columns(
        [
            node(
                "a",
                allocatable={"cpu": "1500m", "memory": "2Mi", "pods": "7", "example.com/gpu": "3", "unknown": "5"},
                taints=["x:NoSchedule"],
                unschedulable=True,
            )
        ]
    )
    present(nodes.resources.find("example.com/gpu"))
    assert nodes.resources.find("unknown") is None
    assert nodes.allocatable[:, 0].tolist() == [1500, 2 * MIB, 0, 0, 3]
    assert nodes.allowed_pods[0] == 7
    assert nodes.unschedulable[0]
    assert nodes.taint_sets.keys[nodes.taint_set_ids[0]] == (taint("x:NoSchedule"),)
    assert nodes.alive[0]
    assert (nodes.count, nodes.row_of("a"), nodes.node_name(0)) == (1, 0, "a")


def test_unknown_nodes_have_no_row() -> None:
    """row_of() returns NO_ROW for a removed node, and the name of a free row raises CacheError."""
    nodes = columns([node("a")])
    nodes.remove_node("a")
    assert nodes.row_of("a") == NO_ROW
    with pytest.raises(CacheError, match="row 0"):
        nodes.node_name(0)


def test_a_freed_row_is_cleared_and_reused() -> None:
    """The row of a removed node has none of its values, and the next node uses the row."""
    nodes = columns([node("a", taints=["x:NoSchedule"], unschedulable=True), node("b")])
    nodes.add_pod(nodes.compile_pod(pod(requests={"cpu": "1"}, ports=[80])), 0)
    nodes.remove_node("a")
    assert not nodes.alive[0]
    assert not nodes.unschedulable[0]
    assert (nodes.taint_set_ids[0], nodes.allowed_pods[0], nodes.pod_count[0]) == (0, 0, 0)
    assert not nodes.allocatable[:, 0].any()
    assert not nodes.requested[:, 0].any()
    assert not nodes.nonzero_requested[:, 0].any()
    assert len(nodes.host_ports.conflicting_rows((("TCP", 80, "0.0.0.0"),))) == 0  # noqa: S104 - compared only
    assert nodes.count == 1
    assert nodes.add_node(node("c", allocatable={"memory": "1Mi"})) == 0
    assert nodes.size == 2
    assert nodes.allocatable[:, 0].tolist() == [0, MIB, 0, 0]


def test_an_update_replaces_the_columns_of_a_node() -> None:
    """Resources that the updated node does not offer are removed; its pods still count."""
    nodes = columns([node("a", allocatable={"cpu": "4", "example.com/gpu": "3"}, images={"old": 1})])
    nodes.add_pod(nodes.compile_pod(pod(requests={"cpu": "1"})), 0)
    nodes.update_node(node("a", allocatable={"cpu": "2"}, images={"new": 1}, taints=["x:NoSchedule"]))
    assert nodes.allocatable[:, 0].tolist() == [2000, 0, 0, 0, 0]
    assert nodes.requested[CPU_COLUMN, 0] == 1000
    assert nodes.images.get("old") is None
    assert nodes.images.get("new") is not None
    assert nodes.taint_set_ids[0] != 0


@table(
    "misuse, name",
    ("add-again", lambda nodes: nodes.add_node(node("a")), "a"),
    ("update-unknown", lambda nodes: nodes.update_node(node("b")), "b"),
    ("remove-unknown", lambda nodes: nodes.remove_node("b"), "b"),
)
def test_misuse_raises(misuse: Callable[[NodeColumns], object], name: str) -> None:
    """Adding a known node, or updating or removing an unknown one, raises CacheError and changes nothing."""
    nodes = columns([node("a")])
    with pytest.raises(CacheError, match=f'"{name}"'):
        misuse(nodes)
    assert nodes.count == 1


def test_an_invalid_node_changes_nothing() -> None:
    """Adding or updating a node with an invalid quantity raises and does not change the columns."""
    nodes = columns([node("a", allocatable={"cpu": "4"})])
    with pytest.raises(QuantityError):
        nodes.add_node(node("b", allocatable={"cpu": "many"}))
    with pytest.raises(QuantityError):
        nodes.update_node(node("a", allocatable={"cpu": "many"}))
    assert (nodes.count, nodes.size, nodes.row_of("b")) == (1, 1, NO_ROW)
    assert nodes.allocatable[CPU_COLUMN, 0] == 4000


def test_pods_are_added_and_subtracted() -> None:
    """Sums are in the units of the columns; nonzero_requested includes the defaults for missing requests."""
    nodes = columns([node("a")])
    first = nodes.compile_pod(pod("first", requests={"cpu": "1", "memory": "1Mi"}))
    second = nodes.compile_pod(pod("second"))
    nodes.add_pod(first, 0)
    nodes.add_pod(second, 0)
    assert (nodes.requested[CPU_COLUMN, 0], nodes.requested[MEMORY_COLUMN, 0]) == (1000, MIB)
    assert nodes.nonzero_requested[:, 0].tolist() == [1100, 201 * MIB]
    assert nodes.pod_count[0] == 2
    assert list(nodes.pods[0]) == [first.uid, second.uid]
    nodes.remove_pod(first)
    assert (first.row, second.row) == (NO_ROW, 0)
    assert nodes.requested[:, 0].tolist() == [0, 0, 0, 0]
    assert nodes.pod_count[0] == 1


def test_removing_a_node_returns_its_pods() -> None:
    """The returned pods have no row."""
    nodes = columns([node("a")])
    info = nodes.compile_pod(pod(requests={"cpu": "1"}))
    nodes.add_pod(info, 0)
    assert nodes.remove_node("a") == [info]
    assert info.row == NO_ROW


def test_columns_grow_with_nodes_and_resources() -> None:
    """Growing the columns does not lose amounts."""
    nodes = NodeColumns()
    for row in range(150):
        nodes.add_node(node(f"n{row}", allocatable={"cpu": str(row), f"example.com/r{row % 10}": "1"}))
        nodes.add_pod(nodes.compile_pod(pod(f"p{row}", requests={f"example.com/r{row % 10}": str(row)})), row)
    assert nodes.size == 150
    assert nodes.allocatable[CPU_COLUMN].tolist() == [row * 1000 for row in range(150)]
    for kind in range(10):
        column = present(nodes.resources.find(f"example.com/r{kind}"))
        expected = [row if row % 10 == kind else 0 for row in range(150)]
        assert nodes.requested[column].tolist() == expected
    assert nodes.allocatable.shape == nodes.requested.shape == (14, 150)


@pytest.mark.parametrize(
    "name",
    [
        "allocatable",
        "requested",
        "nonzero_requested",
        "allowed_pods",
        "pod_count",
        "taint_set_ids",
        "alive",
        "unschedulable",
    ],
)
def test_columns_are_read_only(name: str) -> None:
    """The columns that plugins receive are read-only and have one entry for each row."""
    nodes = columns([node("a"), node("b")])
    column = getattr(nodes, name)
    assert column.shape[-1] == 2
    with pytest.raises(ValueError, match="read-only"):
        column[..., 0] = 1


def test_views_show_later_changes() -> None:
    """A column is a live view until a row or resource is added."""
    nodes = columns([node("a")])
    requested = nodes.requested
    nodes.add_pod(nodes.compile_pod(pod(requests={"cpu": "1"})), 0)
    assert requested[CPU_COLUMN, 0] == 1000


def test_changes_are_logged() -> None:
    """The log has the rows of changed pods and nodes; the version counts changes of nodes only."""
    nodes = columns([node("a"), node("b")])
    position, version = nodes.changes.position, nodes.version
    info = nodes.compile_pod(pod())
    nodes.add_pod(info, 1)
    nodes.remove_pod(info)
    assert nodes.changes.since(position) == [1, 1]
    assert nodes.version == version
    nodes.update_node(node("a"))
    nodes.remove_node("b")
    changed = present(nodes.changes.since(position))
    assert changed[2:] == [0, 1]
    assert nodes.version == version + 2


_CPU = st.integers(0, 3)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), _CPU), max_size=40))
def test_requested_is_the_sum_over_pods(steps: list[tuple[int, int, int]]) -> None:
    """Requested amounts are the sums over the pods of each row, after any sequence of additions and removals."""
    nodes = columns([node("a"), node("b"), node("c")])
    placed: dict[int, PodInfo] = {}
    for number, row, cpu in steps:
        if number in placed:
            nodes.remove_pod(placed.pop(number))
        else:
            placed[number] = nodes.compile_pod(pod(f"p{number}", requests={"cpu": str(cpu), f"example.com/{cpu}": "1"}))
            nodes.add_pod(placed[number], row)
    expected = np.zeros_like(nodes.requested)
    for info in placed.values():
        for column, amount in info.accounted:
            expected[column, info.row] += amount
    assert (nodes.requested == expected).all()
    assert nodes.pod_count.tolist() == [len(of_row) for of_row in nodes.pods]


def test_sums_are_clamped() -> None:
    """Sums above LARGEST_REQUEST are clamped, and are exact again after pods are removed."""
    columns = NodeColumns()
    row = columns.add_node(node("full"))
    pods = [columns.compile_pod(pod(f"pod-{number}", requests={"memory": "3E", "cpu": "3P"})) for number in range(5)]
    for info in pods:
        columns.add_pod(info, row)
    assert columns.requested[MEMORY_COLUMN, row] == columns.nonzero_requested[1, row] == LARGEST_REQUEST
    assert columns.exact_requested(MEMORY_COLUMN, row) == 15 * 10**18
    for info in pods[1:]:
        columns.remove_pod(info)
    assert columns.requested[MEMORY_COLUMN, row] == columns.nonzero_requested[1, row] == 3 * 10**18
    columns.remove_pod(pods[0])
    assert not columns.requested[:, row].any()
    assert not columns.nonzero_requested[:, row].any()


@pytest.mark.parametrize("amount", ["4611686018427387903", "8E", "9223372036854775807", "1e30"])
def test_requests_exceed_every_capacity(amount: str) -> None:
    """Capacities are clamped to a smaller bound than requests, so that no node fits a clamped request."""
    columns = NodeColumns()
    names = ("memory", "example.com/gpu", "cpu")
    row = columns.add_node(node("huge", allocatable=dict.fromkeys((*names, "pods"), amount)))
    large = container(requests=dict.fromkeys(names, amount))
    info = columns.compile_pod(pod(containers=[large, large]))
    assert {amount for _, amount in info.accounted} == {LARGEST_REQUEST}
    assert all(columns.allocatable[column, row] == LARGEST_CAPACITY for column, _ in info.accounted)
    assert columns.allowed_pods[row] == 2**31 - 1


def test_amounts_below_0_count_as_0() -> None:
    """A negative capacity or request, which API validation rejects, counts as 0."""
    columns = NodeColumns()
    row = columns.add_node(node("odd", allocatable={"cpu": "-1", "pods": "-3"}))
    info = columns.compile_pod(pod(requests={"cpu": "-2", "memory": "-5"}))
    columns.add_pod(info, row)
    assert not info.accounted
    assert not columns.requested[:, row].any()
    assert columns.allocatable[CPU_COLUMN, row] == columns.allowed_pods[row] == 0


def test_resources_that_no_node_offers() -> None:
    """Resources that only pods request have no column, so that nodes can offer new ones."""
    columns = NodeColumns()
    columns.add_node(node("plain"))
    for number in range(10):
        columns.compile_pod(pod(requests={f"example.com/r{number}-{one}": "1" for one in range(400)}))
    row = columns.add_node(node("late", allocatable={"cpu": "1", "example.com/late": "7"}))
    assert columns.allocatable[:, row].tolist() == [1000, 0, 0, 0, 7]


def test_a_resource_that_a_node_offers_after_the_pod_is_bound() -> None:
    """The request of a bound pod counts once its node offers the resource."""
    columns = NodeColumns()
    row = columns.add_node(node("a"))
    info = columns.compile_pod(pod(requests={"example.com/gpu": "3"}))
    columns.add_pod(info, row)
    assert columns.requested_amount("example.com/gpu", row) == 3
    assert not columns.requested[:, row].any()
    columns.update_node(node("a", allocatable={"example.com/gpu": "8"}))
    column = present(columns.resources.find("example.com/gpu"))
    assert (columns.allocatable[column, row], columns.requested[column, row]) == (8, 3)
    columns.update_node(node("a"))
    columns.remove_pod(info)
    columns.update_node(node("a", allocatable={"example.com/gpu": "8"}))
    assert not columns.requested[:, row].any()


def test_sums_above_int64_belong_to_their_resource() -> None:
    """The excess of a clamped sum does not count for the next resource in the same column."""
    columns = NodeColumns()
    row = columns.add_node(node("a", allocatable={"example.com/a": "1"}))
    infos = [columns.compile_pod(pod(f"p{number}", requests={"example.com/a": "8E"})) for number in range(3)]
    for info in infos:
        columns.add_pod(info, row)
    columns.update_node(node("a", allocatable={"example.com/b": "1"}))
    other = columns.compile_pod(pod("other", requests={"example.com/b": "1"}))
    columns.add_pod(other, row)
    assert columns.requested_amount("example.com/b", row) == 1
    columns.update_node(node("a", allocatable={"example.com/a": "1"}))
    assert columns.requested_amount("example.com/a", row) == 3 * LARGEST_REQUEST
    for info in infos:
        columns.remove_pod(info)
    assert columns.requested_amount("example.com/a", row) == 0


def test_a_row_that_was_added_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """All arrays have the same length after the addition of a row was interrupted, and the row is used again."""
    nodes = NodeColumns()
    nodes.add_node(node("a"))
    faults, unbroken = [RuntimeError("no memory")], LabelColumns.resize

    def failing(labels: LabelColumns, capacity: int, size: int) -> None:
        if faults:
            raise faults.pop()
        unbroken(labels, capacity, size)

    monkeypatch.setattr(LabelColumns, "resize", failing)
    with pytest.raises(RuntimeError, match="no memory"):
        nodes.add_node(node("b"))
    assert len(nodes.unschedulable) == len(nodes.alive) == nodes.size
    assert nodes.row_of("b") == NO_ROW
    row = nodes.add_node(node("b"))
    assert (row, nodes.alive.tolist()) == (1, [True, True])


# -- the law of scalar resources: after any events, columns equal the sums over pods and nodes -------------------------


NODE_NAMES = st.sampled_from(["a", "b", "c"])
POD_NAMES = st.sampled_from([f"p{number}" for number in range(4)])
RESOURCES = tuple(f"example.com/{letter}" for letter in "abcde")
AMOUNTS = st.dictionaries(st.sampled_from([*RESOURCES, "cpu"]), st.integers(0, 3), max_size=4)


class ResourcesMachine(RuleBasedStateMachine):
    """Applies the same events to a cache and to dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.offers: dict[str, dict[str, int]] = {}
        self.pods: dict[str, tuple[str, dict[str, int]]] = {}
        self.waiting: dict[str, PodInfo] = {}

    @initialize(limit=st.sampled_from([1, 3, 1024]))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.cache = ClusterCache(SnapshotBounds(resources=limit))

    @rule(name=NODE_NAMES, amounts=AMOUNTS)
    def add_or_update_node(self, name: str, amounts: dict[str, int]) -> None:
        self.cache.add_node(node(name, allocatable={each: str(amount) for each, amount in amounts.items()}))
        self.offers[name] = amounts

    @rule(name=NODE_NAMES)
    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)
        self.offers.pop(name, None)

    @rule(name=POD_NAMES, amounts=AMOUNTS)
    def wait(self, name: str, amounts: dict[str, int]) -> None:
        self.waiting[name] = self.cache.columns.compile_pod(pod(name, requests=amounts))

    @rule(name=POD_NAMES, node_name=NODE_NAMES)
    def assume(self, name: str, node_name: str) -> None:
        if name in self.waiting and name not in self.pods:
            info = self.waiting.pop(name)
            self.cache.assume(info, node_name)
            self.pods[name] = node_name, dict(info.requests.accounted)

    @rule(name=POD_NAMES, node_name=NODE_NAMES, amounts=AMOUNTS)
    def watch(self, name: str, node_name: str, amounts: dict[str, int]) -> None:
        info = self.cache.add_pod(pod(name, node_name=node_name, requests=amounts))
        self.pods[name] = node_name, dict(info.requests.accounted)

    @rule(name=POD_NAMES)
    def remove_pod(self, name: str) -> None:
        self.cache.remove_pod(f"uid-of-default-{name}")
        self.pods.pop(name, None)

    @invariant()
    def columns_are_those_of_offered_resources(self) -> None:
        resources = self.cache.columns.resources
        offered = {name for amounts in self.offers.values() for name in amounts} - {"cpu"}
        known = {name for name in RESOURCES if resources.find(name) is not None}
        assert known <= offered
        assert len(known) == min(self.limit, len(offered))
        assert len(resources) <= min(self.limit, len(RESOURCES)) + UNOFFERED_COLUMN + 1
        assert len(self.cache.columns.allocatable) >= len(resources)

    @invariant()
    def amounts_are_the_sums(self) -> None:
        columns = self.cache.columns
        taken: Counter[tuple[str, str]] = Counter()
        for node_name, amounts in self.pods.values():
            for name, amount in amounts.items():
                taken[node_name, name] += amount
        allocatable, requested = np.zeros_like(columns.allocatable), np.zeros_like(columns.requested)
        for node_name, amounts in self.offers.items():
            row = columns.row_of(node_name)
            assert row != NO_ROW
            for name in ("cpu", *RESOURCES):
                column, unit = columns.resources.find(name), 1000 if name == "cpu" else 1
                assert columns.requested_amount(name, row) == taken[node_name, name]
                if column is not None:
                    allocatable[column, row] = amounts.get(name, 0) * unit
                    requested[column, row] = taken[node_name, name]
        assert (columns.allocatable == allocatable).all()
        assert (columns.requested == requested).all()

    @invariant()
    def pods_follow_their_columns(self) -> None:
        keys = self.cache.columns.resources.keys
        infos = [*self.waiting.values(), *(placed.info for placed in self.cache.placed_pods())]
        for info in infos:
            requested = info.requests.fit
            assert [amount for _, amount in info.fit] == [requested[name] for name in info.fit_names]
            assert all(keys[column] in ("", name) for (column, _), name in zip(info.fit, info.fit_names, strict=True))
            named = {keys[column]: amount for column, amount in info.accounted}
            known = {name for name in requested if name in keys}
            assert named == {name: amount for name, amount in requested.items() if amount and name in known}


TestScalarResources = ResourcesMachine.TestCase
TestScalarResources.settings = settings(stateful_step_count=40)
