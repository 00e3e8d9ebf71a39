"""When cached numbers are refreshed, and for which rows."""

from collections.abc import Iterable

from scheduler_core.change_log import ChangeLog
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.row_cache import RowCache
from tests.support.builders import node, pod
from tests.support.columns import columns


class Journal(RowCache):
    """Writes down what it is asked for."""

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


def test_what_has_not_changed_is_not_looked_at() -> None:
    """All rows are found once; a second look finds nothing to do."""
    journal = Journal(_many())
    journal.refresh()
    journal.refresh()
    assert journal.done == ["all"]


def test_few_changed_rows_are_renewed() -> None:
    """Each once, though it has changed twice."""
    nodes = _many()
    journal = Journal(nodes)
    journal.refresh()
    _fill(nodes, 7, 290, 7)
    journal.refresh()
    assert journal.done == ["all", [7, 290]]


def test_many_changed_rows_are_all_computed_again() -> None:
    """Where there are more than a few, arrays are quicker."""
    nodes = _many()
    journal = Journal(nodes)
    journal.refresh()
    _fill(nodes, *range(9))
    journal.refresh()
    assert journal.done == ["all", "all"]


def test_new_rows_are_all_computed_again() -> None:
    """Arrays have to grow."""
    nodes = _many()
    journal = Journal(nodes)
    journal.refresh()
    nodes.add_node(node("late"))
    journal.refresh()
    assert journal.done == ["all", "all"]


def test_changes_that_are_forgotten_are_all_computed_again() -> None:
    """A truncated log has no single rows."""
    nodes = _many()
    nodes.changes = ChangeLog(limit=1)
    journal = Journal(nodes)
    journal.refresh()
    _fill(nodes, 1, 2, 3)
    journal.refresh()
    assert journal.done == ["all", "all"]


def test_all_rows_are_computed_again_when_resources_change_columns() -> None:
    """A column may then be another resource's, also on rows that have not changed."""
    nodes = _many()
    journal = Journal(nodes)
    journal.refresh()
    nodes.update_node(node("n7", allocatable={"cpu": "4", "example.com/gpu": "1"}))
    journal.refresh()
    assert journal.done == ["all", "all"]
