"""Quantities are parsed exactly and rounded away from zero."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import QuantityError
from scheduler_core.model.pod_requests import NANO, canonical_text, milli_units, nano, notation, value, whole_units

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "nano_units"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("1", NANO, id="one"),
        pytest.param("+1", NANO, id="plus"),
        pytest.param("-1", -NANO, id="negative"),
        pytest.param("007", 7 * NANO, id="leading-zeros"),
        pytest.param("1.5", 1_500_000_000, id="fraction"),
        pytest.param(".5", 500_000_000, id="fraction-alone"),
        pytest.param("1.", NANO, id="point-last"),
        pytest.param("1n", 1, id="nano"),
        pytest.param("1u", 1_000, id="micro"),
        pytest.param("250m", 250_000_000, id="milli"),
        pytest.param("2k", 2_000 * NANO, id="kilo"),
        pytest.param("2M", 2 * 10**6 * NANO, id="mega"),
        pytest.param("2G", 2 * 10**9 * NANO, id="giga"),
        pytest.param("2T", 2 * 10**12 * NANO, id="tera"),
        pytest.param("2P", 2 * 10**15 * NANO, id="peta"),
        pytest.param("2E", 2 * 10**18 * NANO, id="exa"),
        pytest.param("2Ki", 2 * 1024 * NANO, id="kibi"),
        pytest.param("1.5Gi", 3 * 2**29 * NANO, id="gibi-fraction"),
        pytest.param("1Ei", 2**60 * NANO, id="exbi"),
        pytest.param("1e3", 1000 * NANO, id="exponent"),
        pytest.param("1E3", 1000 * NANO, id="exponent-in-upper-case"),
        pytest.param("12e-1", 1_200_000_000, id="negative-exponent"),
        pytest.param("1e+2", 100 * NANO, id="exponent-with-plus"),
        pytest.param("0.1n", 1, id="below-nano-is-rounded-up"),
        pytest.param("-0.1n", -1, id="below-nano-is-rounded-down-below-zero"),
        pytest.param("1.0000000001", NANO + 1, id="precision-ends-at-nano"),
        pytest.param("1e-100", 1, id="tiny"),
        pytest.param("0e100", 0, id="zero-of-any-size"),
        pytest.param("9223372036854775807", LARGEST * NANO, id="largest"),
        pytest.param("9223372036854775808", LARGEST * NANO, id="limited-to-the-largest"),
        pytest.param("8Ei", LARGEST * NANO, id="limited-with-a-suffix"),
        pytest.param("-9Ei", -LARGEST * NANO, id="limited-below-zero"),
        pytest.param("1e999999999", LARGEST * NANO, id="hostile-exponent"),
        pytest.param(2, 2 * NANO, id="bare-integer"),
        pytest.param(0.5, 500_000_000, id="bare-float"),
    ],
)
def test_nano(text: str | float, nano_units: int) -> None:
    """nano() reads every notation of the API and limits the value to int64."""
    assert nano(text) == nano_units


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "1 ",
        " 1",
        "1i",
        "1mi",
        "1 Gi",
        "1KI",
        "1K",
        "1e",
        "1e1.5",
        "1.1.1",
        "--1",
        "1GiB",
        "0x10",
        "1,5",
        "nan",
    ],
)
def test_invalid_quantities(text: str) -> None:
    """The error contains the text."""
    with pytest.raises(QuantityError, match=f'"{text}"'):
        nano(text)


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        pytest.param("1", 1, 1000, id="whole"),
        pytest.param("500m", 1, 500, id="half"),
        pytest.param("1n", 1, 1, id="nano"),
        pytest.param("1.0001", 2, 1001, id="just-above"),
        pytest.param("-500m", -1, -500, id="negative-half"),
        pytest.param("-1n", -1, -1, id="negative-nano"),
        pytest.param("0", 0, 0, id="zero"),
        pytest.param("9223372036854775807", LARGEST, LARGEST, id="milli-is-limited-to-int64"),
        pytest.param("-9223372036854775807", -LARGEST, -LARGEST, id="milli-is-limited-below-zero"),
    ],
)
def test_units(text: str, whole: int, milli: int) -> None:
    """Units are rounded away from zero."""
    assert (value(text), milli_units(nano(text))) == (whole, milli)


_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "Ki": Fraction(1024),
    "Mi": Fraction(1024**2),
    "Gi": Fraction(1024**3),
    "Ti": Fraction(1024**4),
    "Ei": Fraction(1024**6),
    "e5": Fraction(10**5),
    "E-3": Fraction(1, 1000),
    "e-12": Fraction(1, 10**12),
}


def away_from_zero(amount: Fraction) -> int:
    return math.ceil(amount) if amount >= 0 else math.floor(amount)


@given(
    st.sampled_from(["", "+", "-"]),
    st.from_regex(r"[0-9]{1,20}(\.[0-9]{0,12})?", fullmatch=True).filter(str.isascii),
    st.sampled_from(sorted(_SUFFIXES)),
)
def test_nano_equals_exact_fractions(sign: str, number: str, suffix: str) -> None:
    """The value is the exact product of number and suffix, rounded once and then limited to int64."""
    exact = Fraction(number.rstrip(".")) * _SUFFIXES[suffix] * (-1 if sign == "-" else 1)
    limit = LARGEST * NANO
    expected = max(-limit, min(limit, away_from_zero(exact * NANO)))
    assert nano(sign + number + suffix) == expected
    assert value(sign + number + suffix) == away_from_zero(Fraction(expected, NANO))
    milli = away_from_zero(Fraction(expected * 1000, NANO))
    assert milli_units(nano(sign + number + suffix)) == max(-LARGEST, min(LARGEST, milli))


@given(st.integers(-(10**30), 10**30))
def test_rounding_is_symmetric(amount: int) -> None:
    """A negative amount is rounded to the negative of the rounded positive amount."""
    assert whole_units(-amount) == -whole_units(amount)
    assert milli_units(-amount) == -milli_units(amount)


def test_sums_are_rounded_once() -> None:
    """The sum of two halves is one."""
    assert whole_units(nano("500m") + nano("500m")) == 1


def test_too_long_text_is_rejected() -> None:
    """Text of 10,000 digits is rejected before conversion, which Python does slowly or not at all."""
    with pytest.raises(QuantityError, match="too long"):
        nano("9" * 10_000)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("10240Mi", "10Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("512Ki", "512Ki"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
        ("1000", "1k"),
        ("1500m", "1500m"),
        ("2000m", "2"),
        ("1e3", "1e3"),
        ("1500e3", "1500e3"),
        ("2E", "2E"),
        ("100n", "100n"),
        ("-3Mi", "-3Mi"),
        ("2048.5Ki", "2097664"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert canonical_text(nano(text), notation(text)) == canonical
