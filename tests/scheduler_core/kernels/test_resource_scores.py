"""The four resource scores, computed for all node rows at once."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.kernels.resource_scores import (
    ResourceUse,
    balanced_allocation,
    least_allocated,
    most_allocated,
    requested_to_capacity_ratio,
    scores_by_percentage,
)
from scheduler_core.model.pod_requests import LARGEST_CAPACITY, LARGEST_REQUEST
from tests.support.plain_scores import OneNode, plain_balanced, plain_least, plain_most, plain_ratio, plain_shape
from tests.support.tables import table

_FALLING = [(0, 100), (100, 0)]
_RISING = [(0, 0), (100, 100)]


def _uses(rows: Sequence[Sequence[OneNode]]) -> list[ResourceUse]:
    """Convert one list of resources per node to one ResourceUse per resource."""
    return [
        ResourceUse(
            np.array([each.capacity for each in column], dtype=np.int64),
            np.array([each.used for each in column], dtype=np.int64),
            column[0].added,
            column[0].weight,
        )
        for column in zip(*rows, strict=True)
    ]


_SMALL = st.integers(0, 40)
_LARGE = st.integers(0, 2**46)
_EXTREME = st.sampled_from([2**31, 2**53, 2**57, 2**61, LARGEST_CAPACITY])
_CAPACITIES = st.one_of(st.just(0), _SMALL, _LARGE, _EXTREME)
_AMOUNTS = st.one_of(_SMALL, _LARGE, _EXTREME, st.just(LARGEST_REQUEST))


@st.composite
def _rows(draw: st.DrawFn) -> list[list[OneNode]]:
    resources = draw(st.integers(1, 4))
    added = draw(st.lists(_AMOUNTS, min_size=resources, max_size=resources))
    weights = draw(st.lists(st.integers(1, 100), min_size=resources, max_size=resources))
    count = draw(st.integers(1, 5))
    return [
        [OneNode(draw(_CAPACITIES), draw(_AMOUNTS), added[index], weights[index]) for index in range(resources)]
        for _ in range(count)
    ]


@st.composite
def _points(draw: st.DrawFn) -> list[tuple[int, int]]:
    xs = sorted(draw(st.sets(st.integers(0, 100), min_size=1, max_size=5)))
    return [(x, 10 * draw(st.integers(0, 10))) for x in xs]


@table(
    "kernel, plain",
    ("least-allocated", least_allocated, plain_least),
    ("most-allocated", most_allocated, plain_most),
    ("balanced-allocation", balanced_allocation, plain_balanced),
)
@given(rows=_rows())
def test_scores_equal_the_plain_form(
    kernel: Callable[[Sequence[ResourceUse]], "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"],
    plain: Callable[[Sequence[OneNode]], int],
    rows: list[list[OneNode]],
) -> None:
    """Each row's score equals the formula for one node, for any number of resources."""
    assert kernel(_uses(rows)).tolist() == [plain(row) for row in rows]


@given(_rows(), _points())
def test_ratio_equals_the_plain_form(rows: list[list[OneNode]], points: list[tuple[int, int]]) -> None:
    """Each row's score equals the formula for one node, for any shape."""
    scores = requested_to_capacity_ratio(_uses(rows), scores_by_percentage(points))
    assert scores.tolist() == [plain_ratio(row, points) for row in rows]


@given(_points())
def test_the_table_equals_the_function(points: list[tuple[int, int]]) -> None:
    """The table stores the function's value at each of the 101 percentages."""
    assert scores_by_percentage(points).tolist() == [plain_shape(points, percentage) for percentage in range(101)]


@table(
    "row, least, most, rising",
    ("empty node, pod without requests", [OneNode(100, 0, 0)], 100, 0, 0),
    ("half full", [OneNode(100, 20, 30)], 50, 50, 50),
    ("more than full", [OneNode(100, 80, 30)], 0, 100, 100),
    ("fractions are rounded down", [OneNode(3, 1, 0)], 66, 33, 33),
    ("node lacks the only resource", [OneNode(0, 0, 5)], 0, 0, 0),
    ("a resource that the node lacks is ignored", [OneNode(100, 50, 0), OneNode(0, 0, 5)], 50, 50, 50),
    ("weights; a 0 does not count", [OneNode(100, 0, 0, 3), OneNode(100, 100, 0, 1)], 75, 25, 100),
)
def test_shares(row: list[OneNode], least: int, most: int, rising: int) -> None:
    """The scores are the free share, the used share, and a line through the used share."""
    assert least_allocated(_uses([row])).tolist() == [least]
    assert most_allocated(_uses([row])).tolist() == [most]
    assert requested_to_capacity_ratio(_uses([row]), scores_by_percentage(_RISING)).tolist() == [rising]


def test_halves_round_up() -> None:
    """A mean of 62.5 is rounded to 63 by the ratio, and to 62 by integer division."""
    row = [OneNode(100, 75, 0), OneNode(100, 50, 0)]
    assert requested_to_capacity_ratio(_uses([row]), scores_by_percentage(_RISING)).tolist() == [63]
    assert most_allocated(_uses([row])).tolist() == [62]


def test_a_falling_line_rounds_towards_zero() -> None:
    """Between (0, 100) and (3, 0), the fall of 33.3 is rounded to 33 and that of 66.6 to 66."""
    assert scores_by_percentage([(0, 100), (3, 0)])[:5].tolist() == [100, 67, 34, 0, 0]


def test_the_table_cannot_be_written() -> None:
    """A table is read-only because all pods of a profile share it."""
    with pytest.raises(ValueError, match="read-only"):
        scores_by_percentage(_FALLING)[0] = 1


@table(
    "row, score",
    ("stays balanced", [OneNode(100, 50, 0), OneNode(100, 50, 0)], 75),
    ("worst to best", [OneNode(100, 0, 100), OneNode(100, 100, 0)], 100),
    ("best to worst", [OneNode(100, 0, 100), OneNode(100, 0, 0)], 50),
    ("more than full counts as full", [OneNode(100, 900, 0), OneNode(100, 100, 0)], 75),
    ("one resource has no balance", [OneNode(100, 30, 30)], 75),
    ("node lacks one of two", [OneNode(100, 0, 90), OneNode(0, 0, 5)], 75),
    ("node lacks both", [OneNode(0, 0, 5), OneNode(0, 0, 5)], 75),
    ("node lacks one of three", [OneNode(100, 0, 100), OneNode(0, 0, 5), OneNode(100, 0, 0)], 50),
)
def test_balance(row: list[OneNode], score: int) -> None:
    """The score is 75 for no change, up to 100 for a better balance and down to 50 for a worse one."""
    assert balanced_allocation(_uses([row])).tolist() == [score]


def test_columns_are_only_read() -> None:
    """The kernels accept read-only views, because columns are read-only."""
    uses = _uses([[OneNode(100, 20, 30), OneNode(0, 1, 2), OneNode(7, 3, 1)]])
    for use in uses:
        use.capacity.flags.writeable = use.used.flags.writeable = False
    least_allocated(uses)
    most_allocated(uses)
    requested_to_capacity_ratio(uses, scores_by_percentage(_RISING))
    balanced_allocation(uses)
    assert [use.used.tolist() for use in uses] == [[20], [1], [3]]
