"""Pods of each priority on each row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.snapshot.indexes.priority_counts import PriorityCounts
from tests.support.builders import node, pod
from tests.support.columns import columns

ROWS = np.arange(4, dtype=np.intp)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.booleans())), st.integers(-3, 3))
def test_equals_the_pods_that_are_there(steps: list[tuple[int, int, bool]], priority: int) -> None:
    """Whatever came and went."""
    counts, there = PriorityCounts(), list[tuple[int, int]]()
    counts.resize(4)
    for row, of_pod, comes in steps:
        if comes:
            counts.add(row, of_pod)
            there.append((row, of_pod))
        elif (row, of_pod) in there:
            counts.remove(row, of_pod)
            there.remove((row, of_pod))
    expected = [any(at == row and other < priority for at, other in there) for row in range(4)]
    assert counts.below(priority, ROWS).tolist() == expected
    assert counts.below(priority, ROWS[2:]).tolist() == expected[2:]


def test_follows_the_columns() -> None:
    """Pods are counted as the columns take them up, also when these have grown, and when a node goes."""
    nodes = columns([node(f"n{index}") for index in range(100)], [pod("low", node_name="n90", priority=-1)])
    assert np.flatnonzero(nodes.priorities.below(0, np.arange(100))).tolist() == [90]
    nodes.remove_node("n90")
    assert not nodes.priorities.below(0, np.arange(100)).any()


def test_keeps_what_it_has_when_it_grows() -> None:
    """New rows begin empty."""
    counts = PriorityCounts()
    counts.resize(1)
    counts.add(0, 1)
    counts.resize(4)
    assert counts.below(2, ROWS).tolist() == [True, False, False, False]
