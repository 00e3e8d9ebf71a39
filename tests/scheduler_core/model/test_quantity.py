"""Quantities are parsed exactly and rounded away from zero."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import QuantityError
from scheduler_core.model.pod_requests import NANO, canonical_text, milli_units, nano, notation, value, whole_units
from tests.support.tables import table

LARGEST = 2**63 - 1


@table(
    "text, nano_units",
    ("zero", "0", 0),
    ("one", "1", NANO),
    ("plus", "+1", NANO),
    ("negative", "-1", -NANO),
    ("leading-zeros", "007", 7 * NANO),
    ("fraction", "1.5", 1_500_000_000),
    ("fraction-alone", ".5", 500_000_000),
    ("point-last", "1.", NANO),
    ("nano", "1n", 1),
    ("micro", "1u", 1_000),
    ("milli", "250m", 250_000_000),
    ("kilo", "2k", 2_000 * NANO),
    ("mega", "2M", 2 * 10**6 * NANO),
    ("giga", "2G", 2 * 10**9 * NANO),
    ("tera", "2T", 2 * 10**12 * NANO),
    ("peta", "2P", 2 * 10**15 * NANO),
    ("exa", "2E", 2 * 10**18 * NANO),
    ("kibi", "2Ki", 2 * 1024 * NANO),
    ("gibi-fraction", "1.5Gi", 3 * 2**29 * NANO),
    ("exbi", "1Ei", 2**60 * NANO),
    ("exponent", "1e3", 1000 * NANO),
    ("exponent-in-upper-case", "1E3", 1000 * NANO),
    ("negative-exponent", "12e-1", 1_200_000_000),
    ("exponent-with-plus", "1e+2", 100 * NANO),
    ("below-nano-is-rounded-up", "0.1n", 1),
    ("below-nano-is-rounded-down-below-zero", "-0.1n", -1),
    ("precision-ends-at-nano", "1.0000000001", NANO + 1),
    ("tiny", "1e-100", 1),
    ("zero-of-any-size", "0e100", 0),
    ("largest", "9223372036854775807", LARGEST * NANO),
    ("limited-to-the-largest", "9223372036854775808", LARGEST * NANO),
    ("limited-with-a-suffix", "8Ei", LARGEST * NANO),
    ("limited-below-zero", "-9Ei", -LARGEST * NANO),
    ("hostile-exponent", "1e999999999", LARGEST * NANO),
    ("bare-integer", 2, 2 * NANO),
    ("bare-float", 0.5, 500_000_000),
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


@table(
    "text, whole, milli",
    ("whole", "1", 1, 1000),
    ("half", "500m", 1, 500),
    ("nano", "1n", 1, 1),
    ("just-above", "1.0001", 2, 1001),
    ("negative-half", "-500m", -1, -500),
    ("negative-nano", "-1n", -1, -1),
    ("zero", "0", 0, 0),
    ("milli-is-limited-to-int64", "9223372036854775807", LARGEST, LARGEST),
    ("milli-is-limited-below-zero", "-9223372036854775807", -LARGEST, -LARGEST),
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
