"""Schedules in cron's syntax with a time zone, as in CronJob; they are read as Debian's cron does.

A time that does not exist because a clock is set forward is the next one that does, and one that exists twice counts
once, unless minutes or hours begin with a star.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from scheduler_core.config.config_model import RuleProblem

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_VALUE = "([0-9]{1,2}|[A-Za-z]{3})"
_TERM = rf"(\*|{_VALUE}(-{_VALUE})?)(/[0-9]{{1,2}})?"
_FIELD = f"{_TERM}(,{_TERM})*"
PATTERN = f"^({_FIELD}( +{_FIELD}){{4}}|{'|'.join(_MACROS)})$"
MAX_LENGTH = 100
_REMEDY = 'write five fields, minute, hour, day of month, month and day of week, such as "0 2 * * *", or @daily'
_VALUES = {
    "minute": "write 0 to 59",
    "hour": "write 0 to 23",
    "day-of-month": "write 1 to 31, and a day that the months have",
    "month": "write 1 to 12, or JAN to DEC",
    "day-of-week": "write 0 to 7, or SUN to SAT",
}
_RANGES = "a range begins with its lower value, and a step is 1 or more"
MESSAGE = f"must be a schedule of cron: {_REMEDY}"


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """A valid schedule of five fields."""

    fields: str
    zone: tzinfo

    def first_after(self, moment: datetime) -> datetime:
        """Return the first time after a moment, in UTC."""
        # In the hour that a clock repeats, CronSim begins with the times of the hour before.
        return next(each for each in self._times(moment, reverse=False) if each > moment)

    def last_until(self, moment: datetime) -> datetime:
        """Return the last time that is not after a moment, in UTC."""
        found = next(self._times(moment, reverse=True))
        # Backwards, a time at the moment itself is left out, and so are some of the hour that a clock repeats.
        while (later := self.first_after(found)) <= moment:
            found = later
        return found

    def _times(self, moment: datetime, *, reverse: bool) -> Iterator[datetime]:
        found = CronSim(self.fields, moment.astimezone(self.zone), reverse=reverse)
        return (each.astimezone(UTC) for each in found)


def cron_schedule(schedule: str, time_zone: str | None) -> CronSchedule | list[RuleProblem]:
    """Return a schedule in an IANA time zone, None for UTC, or what is wrong in its two fields."""
    zone: tzinfo | None = UTC if time_zone is None else _zone(time_zone)
    problems = list(_problems(schedule))
    if zone is None:
        problems.append(RuleProblem(("timeZone",), f'unknown time zone "{time_zone}": write a name such as "Etc/UTC"'))
    return problems if zone is None or problems else CronSchedule(_MACROS.get(schedule, schedule), zone)


def _problems(schedule: str) -> Iterator[RuleProblem]:
    if not re.search(PATTERN, schedule) or schedule.endswith("\n"):
        yield RuleProblem(("schedule",), MESSAGE)
        return
    try:
        next(CronSim(_MACROS.get(schedule, schedule), datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        yield RuleProblem(("schedule",), f"invalid {field.replace('-', ' ')}: {_VALUES.get(field, _REMEDY)}; {_RANGES}")
    except StopIteration:
        yield RuleProblem(("schedule",), f"no time has this day and month: {_REMEDY}")


def _zone(name: str) -> tzinfo | None:
    """Return a time zone; None for an unknown one, a path, and the time zone of this machine."""
    if name.lower() in ("local", "localtime", ""):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
