"""Parsing and formatting of durations in Go's notation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.config_model import Duration, format_duration, parse_duration, seconds
from scheduler_core.errors import ConfigError
from tests.support.tables import table


@table(
    "text, nanoseconds, written",
    ("zero-needs-no-unit", "0", 0, "0s"),
    ("seconds", "15s", 15_000_000_000, "15s"),
    ("minutes-and-seconds", "1m30s", 90_000_000_000, "1m30s"),
    ("seconds-become-minutes", "90s", 90_000_000_000, "1m30s"),
    ("hours-show-minutes", "1h", 3_600_000_000_000, "1h0m0s"),
    ("milliseconds", "100ms", 100_000_000, "100ms"),
    ("fraction", "1.5s", 1_500_000_000, "1.5s"),
    ("milliseconds-become-seconds", "1500ms", 1_500_000_000, "1.5s"),
    ("leading-point", ".5h", 1_800_000_000_000, "30m0s"),
    ("trailing-point", "1.s", 1_000_000_000, "1s"),
    ("microseconds-in-letters", "2us", 2_000, "2µs"),
    ("micro-sign", "2µs", 2_000, "2µs"),
    ("greek-mu", "2μs", 2_000, "2µs"),
    ("nanoseconds", "7ns", 7, "7ns"),
    ("below-a-nanosecond-is-dropped", "0.3ns", 0, "0s"),
    ("negative", "-2s", -2_000_000_000, "-2s"),
    ("plus", "+2s", 2_000_000_000, "2s"),
    ("any-order", "1s1h", 3_601_000_000_000, "1h0m1s"),
    ("longest", "2562047h47m16.854775807s", 2**63 - 1, "2562047h47m16.854775807s"),
)
def test_parse_and_format(text: str, nanoseconds: int, written: str) -> None:
    """A duration is parsed to the nanosecond and formatted as in Go."""
    duration = parse_duration(text)
    assert (duration.nanoseconds, str(duration)) == (nanoseconds, written)


@table(
    "text, expected",
    ("empty", "", "write numbers with units"),
    ("no-unit", "15", "write numbers with units"),
    ("space", "15 s", "write numbers with units"),
    ("unknown-unit", "5sec", "write numbers with units"),
    ("no-number", "s", "write numbers with units"),
    ("point-alone", ".s", "write numbers with units"),
    ("two-signs", "--1s", "write numbers with units"),
    ("sign-inside", "1s-1s", "write numbers with units"),
    ("days", "1d", "write numbers with units"),
    ("digits-of-another-script", "٣s", "write numbers with units"),
    ("duration-too-long", "2562047h47m16.854775808s", "less than 292 years"),
    ("text-too-long", "9" * 5000 + "s", "at most 128 characters"),
)
def test_invalid_durations(text: str, expected: str) -> None:
    """The error states the valid notation and does not repeat long text."""
    with pytest.raises(ConfigError, match=expected) as raised:
        parse_duration(text)
    assert len(str(raised.value)) < 200


@given(st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1))
def test_formatted_durations_parse_to_the_same_value(nanoseconds: int) -> None:
    """Formatting and parsing does not change a duration."""
    assert parse_duration(format_duration(Duration(nanoseconds))).nanoseconds == nanoseconds


def test_seconds() -> None:
    """seconds() converts to nanoseconds, and the property ``seconds`` converts back."""
    assert (seconds(1.5), seconds(1.5).seconds) == (Duration(1_500_000_000), 1.5)
