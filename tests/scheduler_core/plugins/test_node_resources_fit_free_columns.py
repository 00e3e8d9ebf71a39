"""What NodeResourcesFit keeps of what is free."""

import numpy as np

from scheduler_core.plugins.node_resources_fit.free_columns import PLACES, FreeColumns
from scheduler_core.snapshot.interning import CPU_COLUMN
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from tests.support.builders import node, pod
from tests.support.columns import columns

COUNT = 300
"""Nodes: so many that a changed row is renewed alone."""


def _alike() -> NodeColumns:
    return columns(node(f"n{row}", allocatable={"cpu": "4", "pods": "1"}) for row in range(COUNT))


def _short(free: FreeColumns, column: int, amount: int) -> list[int]:
    short = free.short(column, amount, ALL_ROWS)
    return [] if short is None else np.flatnonzero(short).tolist()


def test_a_row_that_fills_up_is_short_from_then_on() -> None:
    """While every node had enough none was looked at; that ends with the first that has not."""
    nodes = _alike()
    free = FreeColumns(nodes)
    assert _short(free, CPU_COLUMN, 4000) == []
    assert _short(free, PLACES, 1) == []
    nodes.add_pod(nodes.compile_pod(pod(requests={"cpu": "1m"})), 17)
    assert _short(free, CPU_COLUMN, 4000) == [17]
    assert _short(free, PLACES, 1) == [17]


def test_a_row_that_gets_free_again_is_short_no_more() -> None:
    """The bound that it left behind is put right once nothing is short."""
    nodes = _alike()
    free = FreeColumns(nodes)
    info = nodes.compile_pod(pod(requests={"cpu": "3"}))
    nodes.add_pod(info, 17)
    assert _short(free, CPU_COLUMN, 2000) == [17]
    nodes.remove_pod(info)
    assert _short(free, CPU_COLUMN, 2000) == []
    assert _short(free, CPU_COLUMN, 4000) == []
    assert _short(free, CPU_COLUMN, 4001) == list(range(COUNT))


def test_chosen_rows_are_answered_in_their_order() -> None:
    """Many chosen rows are picked from what is kept, and a few from the columns: the answer is the same."""
    nodes = _alike()
    free = FreeColumns(nodes)
    nodes.add_pod(nodes.compile_pod(pod(requests={"cpu": "3"})), 17)
    for rows in (np.arange(10, 20), np.arange(10, COUNT)):
        short = free.short(CPU_COLUMN, 2000, rows)
        assert short is not None
        assert rows[short].tolist() == [17]


def test_no_rows_are_never_short() -> None:
    """Columns without nodes have nowhere to fall short."""
    assert FreeColumns(NodeColumns()).short(CPU_COLUMN, 1, ALL_ROWS) is None
    assert FreeColumns(_alike()).short(CPU_COLUMN, 5000, np.empty(0, dtype=np.intp)) is None


def test_more_resources_than_are_kept_are_answered_all_the_same() -> None:
    """Those that were kept first are let go."""
    names = [f"example.com/r{number}" for number in range(20)]
    nodes = columns([node(allocatable=dict.fromkeys(names, "2"))])
    free = FreeColumns(nodes)
    for amount, expected in ((2, []), (3, [0])):
        for name in names:
            column = nodes.resources.find(name)
            assert column is not None
            assert _short(free, column, amount) == expected
