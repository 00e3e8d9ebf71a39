"""Go's integer division and natural logarithm."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_core.kernels.go_arithmetic import (
    LARGEST_EXACT_WHOLE,
    natural_logarithm,
    percentages,
    truncated_quotients,
)
from tests.support.tables import table

_INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


def _array(*numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(numbers, dtype=np.int64)


@table(
    "dividend, divisor, quotient",
    ("both positive", 7, 2, 3),
    ("negative dividend rounds towards zero", -7, 2, -3),
    ("negative divisor rounds towards zero", 7, -2, -3),
    ("both negative", -7, -2, 3),
    ("negative without a remainder", -8, 2, -4),
    ("nothing to divide", 0, 5, 0),
)
def test_quotients_round_towards_zero(dividend: int, divisor: int, quotient: int) -> None:
    """Division by an array and by a number equals Go's."""
    assert truncated_quotients(_array(dividend), _array(divisor)).tolist() == [quotient]
    assert truncated_quotients(_array(dividend), divisor).tolist() == [quotient]


@given(_INT64, _INT64.filter(bool))
def test_quotients_of_any_integers(dividend: int, divisor: int) -> None:
    """The quotient's magnitude is the quotient of the magnitudes."""
    magnitude = abs(dividend) // abs(divisor)
    expected = magnitude if (dividend < 0) == (divisor < 0) else -magnitude
    assert truncated_quotients(_array(dividend), _array(divisor)).tolist() == [expected]


@st.composite
def _part_and_whole(draw: st.DrawFn, largest: int) -> tuple[int, int]:
    whole = draw(st.integers(1, largest))
    near = draw(st.integers(0, 100)) * whole // 100 + draw(st.integers(-1, 1))
    return draw(st.sampled_from([min(max(near, 0), whole), draw(st.integers(0, whole))])), whole


@given(_part_and_whole(LARGEST_EXACT_WHOLE))
@example((LARGEST_EXACT_WHOLE - 1, LARGEST_EXACT_WHOLE))
@example((LARGEST_EXACT_WHOLE, LARGEST_EXACT_WHOLE))
def test_percentages_by_floats_are_exact(numbers: tuple[int, int]) -> None:
    """Up to the bound, float division never rounds up to the next percentage."""
    part, whole = numbers
    assert percentages(_array(part), _array(whole)).tolist() == [part * 100 // whole]


@given(_part_and_whole(2**63 // 100 - 1), _part_and_whole(10**6))
def test_percentages_of_huge_wholes_are_exact(huge: tuple[int, int], small: tuple[int, int]) -> None:
    """One whole beyond the bound switches all rows to integer division, which is exact."""
    parts, wholes = zip(huge, small, strict=True)
    expected = [part * 100 // whole for part, whole in (huge, small)]
    assert percentages(_array(*parts), _array(*wholes)).tolist() == expected


@given(_part_and_whole(2**63 - 1), _part_and_whole(2**63 - 1), _part_and_whole(2**60))
@example((2**62, 2**62), (2**63 - 2, 2**63 - 1), (2**53, 2**53))
def test_percentages_do_not_overflow(first: tuple[int, int], second: tuple[int, int], small: tuple[int, int]) -> None:
    """The percentage is exact if 100 times the part exceeds int64, and other rows are unaffected."""
    numbers = (first, second, small)
    parts, wholes = zip(*numbers, strict=True)
    assert percentages(_array(*parts), _array(*wholes)).tolist() == [part * 100 // whole for part, whole in numbers]


def test_percentages_of_no_rows() -> None:
    """No rows give no percentages."""
    assert percentages(_array(), _array()).shape == (0,)


@table(
    "number, bits",
    ("one", 1.0, "0x0.0p+0"),
    ("two", 2.0, "0x1.62e42fefa39efp-1"),
    ("three-where-the-c-library-differs", 3.0, "0x1.193ea7aad030ap+0"),
    ("fourteen-where-the-c-library-differs", 14.0, "0x1.51cca16d7bba8p+1"),
    ("forty-eight-where-the-c-library-differs", 48.0, "0x1.ef8383c50bb74p+1"),
    ("five-thousand-nodes", 5002.0, "0x1.10901f6dc84b9p+3"),
)
def test_natural_logarithm_equals_gos(number: float, bits: str) -> None:
    """The expected bits were printed by Go 1.26 on amd64."""
    assert natural_logarithm(number).hex() == bits


@given(number=st.floats(1e-300, 1e300))
def test_natural_logarithm_is_close_to_the_c_librarys(number: float) -> None:
    """The results differ by about one unit in the last place."""
    assert natural_logarithm(number) == pytest.approx(math.log(number), rel=4e-16, abs=4e-16)
