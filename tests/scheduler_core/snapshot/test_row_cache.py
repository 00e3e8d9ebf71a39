"""Refresh of a row cache: which rows are recomputed, and when all are."""

from collections.abc import Callable, Iterable

import pytest

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


@pytest.mark.parametrize(
    ("change", "log_limit"),
    [
        # Array operations are faster than many single rows.
        pytest.param(lambda nodes: _fill(nodes, *range(9)), None, id="many changed rows"),
        pytest.param(lambda nodes: nodes.add_node(node("late")), None, id="new row"),
        pytest.param(lambda nodes: _fill(nodes, 1, 2, 3), 1, id="truncated change log"),
        # The column may then belong to another resource, also on rows that have not changed.
        pytest.param(
            lambda nodes: nodes.update_node(node("n7", allocatable={"cpu": "4", "example.com/gpu": "1"})),
            None,
            id="changed resource columns",
        ),
    ],
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
