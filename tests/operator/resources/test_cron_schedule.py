"""Schedules in cron's syntax: their times, time zones, and what is wrong in invalid ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from bayplan.resources.cron_schedule import CronSchedule, cron_schedule
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import table


def at(text: str) -> datetime:
    """Return a time of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def valid(schedule: str, zone: str | None = None) -> CronSchedule:
    """Return a valid schedule."""
    found = cron_schedule(schedule, zone)
    assert isinstance(found, CronSchedule)
    return found


@table(
    "schedule, zone, moment, first",
    ("day", "0 2 * * *", None, "2026-06-01T02:00", "2026-06-02T02:00"),
    ("before", "0 2 * * *", None, "2026-06-01T01:59:59.5", "2026-06-01T02:00"),
    ("macro", "@monthly", None, "2026-06-01T00:00", "2026-07-01T00:00"),
    ("names", "30 6 * jan mon-fri/2", None, "2026-06-01T00:00", "2027-01-01T06:30"),
    ("day-or-weekday", "0 0 13 * 5", None, "2026-06-06T00:00", "2026-06-12T00:00"),
    ("zone", "0 2 * * *", "Europe/Berlin", "2026-06-01T01:00", "2026-06-02T00:00"),
    ("set-forward", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T01:00"),
    ("set-back", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:30", "2026-10-26T01:30"),
    ("in-the-repeated-hour", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:09", "2026-10-26T01:30"),
    ("minutes-of-it", "*/20 * * * *", "Europe/Berlin", "2026-10-25T01:09", "2026-10-25T01:20"),
)
def test_the_first_time(schedule: str, zone: str | None, moment: str, first: str) -> None:
    """The first time is after the moment, also where a clock is set."""
    assert valid(schedule, zone).first_after(at(moment)) == at(first)


@table(
    "schedule, zone, location, text",
    ("empty", "", None, "schedule", "must be a schedule of cron"),
    ("words", "each night", None, "schedule", "must be a schedule of cron"),
    ("six-fields", "0 0 2 * * *", None, "schedule", "must be a schedule of cron"),
    ("interval", "@every 1h", None, "schedule", "must be a schedule of cron"),
    ("last-day", "0 0 L * *", None, "schedule", "must be a schedule of cron"),
    ("line", "0 2 * * *\n", None, "schedule", "must be a schedule of cron"),
    ("zone-in-it", "TZ=UTC 0 2 * * *", None, "schedule", "must be a schedule of cron"),
    ("hour", "0 24 * * *", None, "schedule", "invalid hour: write 0 to 23; a range begins"),
    ("name", "0 0 * foo *", None, "schedule", "invalid month: write 1 to 12, or JAN to DEC"),
    ("never", "0 0 31 2 *", None, "schedule", "invalid day of month: write 1 to 31, and a day that the months have"),
    ("range", "30-10 2 * * *", None, "schedule", "invalid minute: write 0 to 59; a range begins with its lower value"),
    ("step", "0 2 * * 1-5/0", None, "schedule", "invalid day of week: write 0 to 7, or SUN to SAT"),
    ("zone", "0 2 * * *", "Mars/Base", "timeZone", 'unknown time zone "Mars/Base": write a name'),
    ("path", "0 2 * * *", "../../etc/passwd", "timeZone", "unknown time zone"),
    ("folder", "0 2 * * *", "Europe", "timeZone", "unknown time zone"),
    ("machine", "0 2 * * *", "Local", "timeZone", "unknown time zone"),
    ("no-name", "0 2 * * *", "", "timeZone", "unknown time zone"),
    ("zero", "0 2 * * *", "a\0b", "timeZone", "unknown time zone"),
    ("long", "0 2 * * *", "a" * 5000, "timeZone", "unknown time zone"),
)
def test_invalid_schedules(schedule: str, zone: str | None, location: str, text: str) -> None:
    """A problem names the field, and what to write."""
    found = cron_schedule(schedule, zone)
    assert isinstance(found, list)
    (problem,) = found
    assert problem.location == (location,)
    assert problem.message.startswith(text)


_VALUES = st.sampled_from(("*", "0", "7", "*/5", "1-5", "1,3", "59", "31", "12", "2-10/3", "mon", "FEB", "99", "5-1"))

_NEAR_REPEATED_HOURS = st.builds(
    lambda text, seconds: int(at(text).timestamp()) + seconds,
    st.sampled_from(("2026-10-25T01:00", "2018-02-18T02:00", "2026-04-04T15:00")),
    st.integers(-7200, 7200),
)
"""Times at which a clock of one of the zones is set back, and those around them."""


@given(
    st.lists(_VALUES, min_size=5, max_size=5),
    st.integers(1_577_836_800, 2_208_988_800) | _NEAR_REPEATED_HOURS,
    st.sampled_from((None, "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe")),
)
def test_times_of_a_schedule(fields: list[str], seconds: int, zone: str | None) -> None:
    """The last time until a moment is not after it, the first one is, and no time is between."""
    found, moment = cron_schedule(" ".join(fields), zone), datetime.fromtimestamp(seconds, UTC)
    if isinstance(found, list):
        return
    first, last = found.first_after(moment), found.last_until(moment)
    assert last <= moment < first
    assert found.first_after(last) == first
    assert found.first_after(first - timedelta(seconds=1)) == first


@given(st.text(max_size=40))
def test_any_text(text: str) -> None:
    """No text raises."""
    cron_schedule(text, text)


@pytest.mark.parametrize("schedule", ["* * * * *", "0 0 29 2 *"])
def test_a_schedule_is_computed_quickly(schedule: str) -> None:
    """Rare times are found, too."""
    assert valid(schedule).last_until(at("2026-06-01T00:00")) <= at("2026-06-01T00:00")
