"""Values that are cached per row: limits of CSI drivers, and free amounts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.change_log import ChangeLog
from scheduler_core.model.pod_requests import LARGEST_CAPACITY, PODS
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.row_cache import CsiNodeColumns, RowCache, free_amount
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.presence import present
from tests.support.storage import columns_with_storage, csi_node
from tests.support.tables import table


class Journal(RowCache):
    """Row cache that records its calls."""

    def __init__(self, nodes: NodeColumns) -> None:
        super().__init__(nodes)
        self.done: list[str | list[int]] = []

    def _rebuild(self) -> None:
        self.done.append("all")

    def _refresh_rows(self, rows: Iterable[int]) -> None:
        self.done.append(sorted(rows))


def _many() -> NodeColumns:
    return columns(node(f"n{row}") for row in range(300))


def _fill(nodes: NodeColumns, *rows: int) -> None:
    for number, row in enumerate(rows):
        nodes.add_pod(nodes.compile_pod(pod(f"p{row}-{number}")), row)


def test_unchanged_rows_are_not_recomputed() -> None:
    """The first refresh computes all rows; a second one computes none."""
    journal = Journal(_many())
    journal.refresh()
    journal.refresh()
    assert journal.done == ["all"]


def test_few_changed_rows_are_recomputed() -> None:
    """Each changed row is recomputed once, even if it changed twice."""
    nodes = _many()
    journal = Journal(nodes)
    journal.refresh()
    _fill(nodes, 7, 290, 7)
    journal.refresh()
    assert journal.done == ["all", [7, 290]]


@table(
    "change, log_limit",
    # Array operations are faster than many single rows.
    ("many changed rows", lambda nodes: _fill(nodes, *range(9)), None),
    ("new row", lambda nodes: nodes.add_node(node("late")), None),
    ("truncated change log", lambda nodes: _fill(nodes, 1, 2, 3), 1),
    # The column may then belong to another resource, also on rows that have not changed.
    (
        "changed resource columns",
        lambda nodes: nodes.update_node(node("n7", allocatable={"cpu": "4", "example.com/gpu": "1"})),
        None,
    ),
)
def test_changes_that_cause_a_rebuild(change: Callable[[NodeColumns], object], log_limit: int | None) -> None:
    """The second refresh recomputes all rows."""
    nodes = _many()
    if log_limit is not None:
        nodes.changes = ChangeLog(limit=log_limit)
    journal = Journal(nodes)
    journal.refresh()
    change(nodes)
    journal.refresh()
    assert journal.done == ["all", "all"]


def test_limits_and_migration_by_row() -> None:
    """A node without a CSINode has no limits, and a CSINode without a node is ignored."""
    nodes = columns_with_storage(
        [node("a"), node("b"), node("c")],
        [csi_node("a", {"d": 3, "e": None}, migrated="p,q"), csi_node("c", {"d": 0}), csi_node("x", {"d": 9})],
    )
    found = CsiNodeColumns(nodes)
    limits, migrated = found.limits("d"), found.migrated("q")
    assert limits is not None
    assert migrated is not None
    assert (found.present().tolist(), limits.tolist()) == ([True, False, True], [3, -1, 0])
    assert migrated.tolist() == [True, False, False]
    assert (found.limits("e"), found.migrated("r")) == (None, None)


def test_columns_follow_changes() -> None:
    """Changed CSINodes and added or removed nodes change the columns."""
    nodes = columns_with_storage([node("a")], [csi_node("a", {"d": 3})])
    found = CsiNodeColumns(nodes)
    assert found.present().tolist() == [True]
    nodes.storage.assign(csi_node("a", {"d": 4}))
    limits = present(found.limits("d"))
    assert limits.tolist() == [4]
    nodes.add_node(node("b"))
    nodes.storage.assign(csi_node("b"))
    nodes.remove_node("a")
    assert found.present().tolist() == [False, True]
    assert found.limits("d") is None


NODES = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=4)), max_size=4
)


@given(NODES)
def test_the_sum_over_nodes(generated: list[tuple[int, list[tuple[int, bool]]]]) -> None:
    """The sum has each node's free amount, at least 0, after the simulated removal of pods."""
    cache = ClusterCache()
    removed = []
    cpu = slots = 0
    for number, (capacity, pods) in enumerate(generated):
        cache.add_node(node(f"n{number}", allocatable={"cpu": capacity, "pods": 2}))
        for index, (requested, is_removed) in enumerate(pods):
            info = cache.add_pod(pod(f"p{number}-{index}", node_name=f"n{number}", requests={"cpu": requested}))
            removed += [info] if is_removed else []
        remaining = [requested for requested, is_removed in pods if not is_removed]
        cpu += max(0, capacity - sum(remaining))
        slots += max(0, 2 - len(remaining))
    with ColumnsOverlay(cache.columns) as overlay:
        overlay.remove(removed)
        assert free_amount(cache.columns, "cpu") == 1000 * cpu
        assert free_amount(cache.columns, PODS) == slots


def test_resources_that_no_node_offers() -> None:
    """The free amount is 0 if there are no nodes or no node offers the resource."""
    cache = ClusterCache()
    assert free_amount(cache.columns, "cpu") == 0
    cache.add_node(node("n0"))
    assert free_amount(cache.columns, "example.com/gpu") == 0


def test_a_removed_node() -> None:
    """The row of a removed node does not count."""
    cache = ClusterCache()
    cache.add_node(node("n0"))
    cache.remove_node("n0")
    assert free_amount(cache.columns, "cpu") == free_amount(cache.columns, PODS) == 0


def test_more_than_int64() -> None:
    """The sum of several nodes may exceed int64."""
    cache = ClusterCache()
    for number in range(3):
        cache.add_node(node(f"n{number}", allocatable={"example.com/gpu": str(2**63 - 1)}))
    assert free_amount(cache.columns, "example.com/gpu") == 3 * LARGEST_CAPACITY
