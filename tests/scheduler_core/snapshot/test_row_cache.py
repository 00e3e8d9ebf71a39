"""Refresh of a row cache: which rows are recomputed, and when all are."""

from collections.abc import Iterable

from scheduler_core.change_log import ChangeLog
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.row_cache import RowCache
from tests.support.builders import node, pod
from tests.support.columns import columns


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


def test_many_changed_rows_cause_a_rebuild() -> None:
    """Above a number of changed rows, all rows are recomputed because array operations are faster."""
    nodes = _many()
    journal = Journal(nodes)
    journal.refresh()
    _fill(nodes, *range(9))
    journal.refresh()
    assert journal.done == ["all", "all"]


def test_new_rows_cause_a_rebuild() -> None:
    """All rows are recomputed when the arrays must grow."""
    nodes = _many()
    journal = Journal(nodes)
    journal.refresh()
    nodes.add_node(node("late"))
    journal.refresh()
    assert journal.done == ["all", "all"]


def test_a_truncated_change_log_causes_a_rebuild() -> None:
    """All rows are recomputed if the log no longer has all changes."""
    nodes = _many()
    nodes.changes = ChangeLog(limit=1)
    journal = Journal(nodes)
    journal.refresh()
    _fill(nodes, 1, 2, 3)
    journal.refresh()
    assert journal.done == ["all", "all"]


def test_changed_resource_columns_cause_a_rebuild() -> None:
    """All rows are recomputed when a column may belong to another resource."""
    nodes = _many()
    journal = Journal(nodes)
    journal.refresh()
    nodes.update_node(node("n7", allocatable={"cpu": "4", "example.com/gpu": "1"}))
    journal.refresh()
    assert journal.done == ["all", "all"]
