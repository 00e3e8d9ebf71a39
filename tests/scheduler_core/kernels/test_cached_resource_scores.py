"""Resource scores computed from cached arrays, compared with the formulas that cache nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_core.kernels.resource_scores import (
    LARGEST_CAPACITY,
    LARGEST_SHARE,
    CachedBalance,
    CachedCapacityRatio,
    CachedLeastAllocated,
    CachedMostAllocated,
    CachedScores,
    ResourceUse,
    balanced_allocation,
    least_allocated,
    most_allocated,
    requested_to_capacity_ratio,
    rounded_up_factor,
    rounded_up_factors,
    scores_by_percentage,
)
from tests.support.presence import present

Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
_TABLE = scores_by_percentage([(0, 0), (40, 70), (100, 20)])
_BEYOND = 2**53 + 2


@dataclass(frozen=True)
class Form:
    """One score: its cached class, its plain formula, and how many resources it takes."""

    cached: Callable[[Sequence[int]], CachedScores]
    plain: Callable[[Sequence[ResourceUse]], Integers]
    resources: tuple[int, int]


FORMS = [
    pytest.param(Form(CachedLeastAllocated, least_allocated, (1, 3)), id="least-allocated"),
    pytest.param(Form(CachedMostAllocated, most_allocated, (1, 3)), id="most-allocated"),
    pytest.param(
        Form(
            lambda weights: CachedCapacityRatio(weights, _TABLE),
            lambda uses: requested_to_capacity_ratio(uses, _TABLE),
            (1, 3),
        ),
        id="capacity-ratio",
    ),
    pytest.param(Form(lambda _: CachedBalance(), balanced_allocation, (2, 2)), id="balanced-allocation"),
]

_WHOLES = st.one_of(
    st.integers(0, 40), st.integers(0, LARGEST_CAPACITY), st.sampled_from([0, LARGEST_CAPACITY - 1, LARGEST_CAPACITY])
)


@st.composite
def _use(draw: st.DrawFn) -> tuple[int, int]:
    """Return capacity and use. The use is often within 1 of a whole percentage, where rounding decides the score."""
    whole = draw(_WHOLES)
    near = draw(st.integers(0, 110)) * whole // 100 + draw(st.integers(-1, 1))
    return whole, draw(st.one_of(st.just(max(near, 0)), st.integers(0, LARGEST_SHARE)))


@st.composite
def _tables(draw: st.DrawFn, resources: tuple[int, int]) -> list[list[tuple[int, int]]]:
    count = draw(st.integers(*resources))
    rows = draw(st.integers(1, 5))
    return [[draw(_use()) for _ in range(rows)] for _ in range(count)]


def _array(table: list[list[tuple[int, int]]], part: int) -> Integers:
    return np.array([[use[part] for use in row] for row in table], dtype=np.int64)


def _plain(form: Form, table: list[list[tuple[int, int]]], added: list[int], weights: list[int]) -> list[int]:
    capacity, used = _array(table, 0), _array(table, 1)
    uses = [ResourceUse(*each) for each in zip(capacity, used, added, weights, strict=True)]
    scores: list[int] = form.plain(uses).tolist()
    return scores


@pytest.mark.parametrize("form", FORMS)
@given(st.data())
def test_cached_scores_equal_the_plain_formulas(form: Form, data: st.DataObject) -> None:
    """Cached scores equal the formula's exactly, whether rows are filled at once or put one by one."""
    table = data.draw(_tables(form.resources))
    added = [data.draw(st.one_of(_WHOLES, st.just(LARGEST_SHARE))) for _ in table]
    weights = [data.draw(st.integers(1, 100)) for _ in table]
    expected = _plain(form, table, added, weights)
    at_once, one_by_one = form.cached(weights), form.cached(weights)
    at_once.fill(_array(table, 0), _array(table, 1))
    one_by_one.fill(np.ones_like(_array(table, 0)), np.zeros_like(_array(table, 0)))
    for row, uses in enumerate(zip(*table, strict=True)):
        one_by_one.put(row, [use[0] for use in uses], [use[1] for use in uses])
    for cached in (at_once, one_by_one):
        for _ in range(2):
            scores = present(cached.scores(added))
            assert scores.dtype == np.int64
            assert scores.tolist() == expected


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_not_shared(form: Form) -> None:
    """The scores returned for one pod do not change when the next pod is scored."""
    cached = form.cached([1, 1])
    cached.fill(np.full((2, 3), 100), np.array([[0, 10, 20], [50, 60, 70]]))
    first = present(cached.scores([10, 0]))
    before = first.tolist()
    cached.scores([90, 3])
    assert first.tolist() == before


@pytest.mark.parametrize("form", FORMS)
def test_inexact_amounts_are_not_scored(form: Form) -> None:
    """scores() returns None while any sum or request exceeds the range of exact float arithmetic."""
    cached = form.cached([1, 1])
    cached.fill(np.full((2, 3), 100), np.array([[0, _BEYOND, 0], [0, 0, 0]]))
    assert cached.scores([1, 1]) is None
    cached.put(1, [100, 100], [0, 0])
    assert cached.scores([1, 1]) is not None
    assert cached.scores([1, _BEYOND]) is None
    cached.put(2, [100, 100], [0, _BEYOND])
    assert cached.scores([1, 1]) is None


@pytest.mark.parametrize("form", FORMS[:3])
def test_too_large_capacities_are_not_scored(form: Form) -> None:
    """scores() returns None for a capacity above LARGEST_CAPACITY, because its factor may be wrong."""
    cached = form.cached([1])
    cached.fill(np.array([[LARGEST_CAPACITY + 1, 1]]), np.array([[0, 0]]))
    assert cached.scores([1]) is None


@st.composite
def _part_and_whole(draw: st.DrawFn) -> tuple[int, int]:
    whole = draw(st.integers(1, LARGEST_CAPACITY))
    near = -(-draw(st.integers(0, 100)) * whole // 100) + draw(st.integers(-1, 1))
    return draw(st.sampled_from([min(max(near, 0), whole), draw(st.integers(0, whole))])), whole


@given(_part_and_whole())
@example((LARGEST_CAPACITY - 1, LARGEST_CAPACITY))
@example((LARGEST_CAPACITY, LARGEST_CAPACITY))
@example((49, 49))
def test_factors_replace_integer_division(numbers: tuple[int, int]) -> None:
    """The product with a factor, rounded down, equals integer division, even without a remainder."""
    part, whole = numbers
    assert int(100.0 * part * rounded_up_factor(whole)) == 100 * part // whole
    assert rounded_up_factors(np.array([whole], dtype=np.float64)).tolist() == [rounded_up_factor(whole)]


def test_factors_are_rounded_up() -> None:
    """Without rounding up, 49 times the nearest float to 1/49 is below 1."""
    assert 49 * (1 / 49) < 1
    assert int(100 * 49 * rounded_up_factor(49)) == 100
