"""Cached free amounts per resource column of NodeResourcesFit."""

import numpy as np

from scheduler_core.plugins.node_resources_fit.filtering import PLACES, FreeColumns
from scheduler_core.snapshot.interning import CPU_COLUMN
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from tests.support.builders import node, pod
from tests.support.columns import columns

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
        short = free.short(CPU_COLUMN, 2000, rows)
        assert short is not None
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
            column = nodes.resources.find(name)
            assert column is not None
            assert _short(free, column, amount) == expected
