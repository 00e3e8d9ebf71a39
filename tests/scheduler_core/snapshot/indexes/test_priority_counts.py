"""Number of pods of each priority on each row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.snapshot.indexes.row_indexes import PriorityCounts
from tests.support.builders import node, pod
from tests.support.columns import columns

ROWS = np.arange(4, dtype=np.intp)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.booleans())), st.integers(-3, 3))
def test_counts_equal_the_pods(steps: list[tuple[int, int, bool]], priority: int) -> None:
    """below() equals a search over the pods, after any sequence of additions and removals."""
    counts, present = PriorityCounts(), list[tuple[int, int]]()
    counts.resize(4)
    for row, of_pod, is_added in steps:
        if is_added:
            counts.add(row, of_pod)
            present.append((row, of_pod))
        elif (row, of_pod) in present:
            counts.remove(row, of_pod)
            present.remove((row, of_pod))
    expected = [any(at == row and other < priority for at, other in present) for row in range(4)]
    assert counts.below(priority, ROWS).tolist() == expected
    assert counts.below(priority, ROWS[2:]).tolist() == expected[2:]


def test_counts_follow_the_columns() -> None:
    """Pods are counted when the columns add them, and not counted after their node is removed."""
    nodes = columns([node(f"n{index}") for index in range(100)], [pod("low", node_name="n90", priority=-1)])
    assert np.flatnonzero(nodes.priorities.below(0, np.arange(100))).tolist() == [90]
    nodes.remove_node("n90")
    assert not nodes.priorities.below(0, np.arange(100)).any()


def test_resize_does_not_lose_counts() -> None:
    """Counts of new rows are 0."""
    counts = PriorityCounts()
    counts.resize(1)
    counts.add(0, 1)
    counts.resize(4)
    assert counts.below(2, ROWS).tolist() == [True, False, False, False]
