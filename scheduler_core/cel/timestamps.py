"""Timestamps and durations: parsing and text as in Go, and the accessors of CEL."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduler_core.cel.operators import NANOS, Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.values import MAX_INT, Duration, Timestamp

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": NANOS,
    "m": 60 * NANOS,
    "h": 3600 * NANOS,
}
_DURATION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_DURATION_PART = re.compile(r"(\d*)(?:\.(\d*))?(\D+)", re.ASCII)
# Python limits the length of text that it converts to a number.
_MAX_LENGTH = 4_000
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def parse_timestamp(text: str) -> Timestamp | None:
    """Return the timestamp in RFC 3339 *text*, None if it is none."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    offset = 0
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 24 or minutes > 59:
            return None
        offset = (hours * 3600 + minutes * 60) * (-1 if match[8] == "-" else 1)
    try:
        date = datetime(max(year, 1), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    if not year:
        date_nanos = -(2**62)
        return Timestamp(date_nanos * NANOS, offset)
    fraction = int((match[7] or "")[:9].ljust(9, "0"))
    seconds = (date - _EPOCH) // timedelta(seconds=1)
    return Timestamp((seconds - offset) * NANOS + fraction, offset)


def parse_duration(text: str) -> int | None:
    """Return the nanoseconds of Go's notation of a duration, such as ``1h30m``; None if it is none."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if len(rest) > _MAX_LENGTH:
        return None
    if rest == "0":
        return 0
    total = position = 0
    while position < len(rest):
        match = _DURATION.match(rest, position)
        if match is None:
            return None
        part = _DURATION_PART.fullmatch(match.group())
        assert part is not None
        unit = _UNITS[part[3]]
        fraction = part[2] or ""
        total += int(part[1] or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        position = match.end()
        if total > MAX_INT + (sign < 0):
            return None
    return sign * total if rest else None


def _local(value: Timestamp, seconds: int) -> datetime:
    # The zone may move the date out of the years that datetime represents.
    shifted = value.nanos // NANOS + seconds
    try:
        return _EPOCH + timedelta(seconds=shifted)
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None


def timestamp_text(value: Timestamp) -> str:
    """Return a timestamp in RFC 3339 with as many digits of the second as it has."""
    text = _local(value, value.offset).strftime("%Y-%m-%dT%H:%M:%S")
    text = text.rjust(19, "0")
    nanos = value.nanos % NANOS
    if nanos:
        text += f".{nanos:09d}".rstrip("0")
    if not value.offset:
        return text + "Z"
    minutes = abs(value.offset) // 60
    return f"{text}{'-' if value.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _zone_seconds(value: Timestamp, zone: str) -> int:
    if ":" not in zone:
        return _named_zone_seconds(value, zone)
    hours_text, _, minutes_text = zone.partition(":")
    numbers = []
    for part in (hours_text, minutes_text):
        if not _INTEGER.fullmatch(part):
            raise EvaluationError(f'strconv.Atoi: parsing "{part}": invalid syntax')
        if len(part) > _MAX_LENGTH or abs(int(part)) > MAX_INT:
            raise EvaluationError(f'strconv.Atoi: parsing "{part}": value out of range')
        numbers.append(int(part))
    hours, minutes = numbers
    if not 0 <= minutes <= 59:
        raise EvaluationError(f"timezone offset minutes out of range [0, 59]: {zone}")
    return (hours * 60 - minutes if zone.startswith("-") else hours * 60 + minutes) * 60


def _named_zone_seconds(value: Timestamp, zone: str) -> int:
    if zone in ("", "UTC", "Local"):
        return 0
    try:
        offset = _local(value, 0).astimezone(ZoneInfo(zone)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {zone}") from None
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None
    return int((offset or timedelta()).total_seconds())


_FIELDS: dict[str, Callable[[datetime], int]] = {
    "timestamp_to_year": lambda date: date.year,
    "timestamp_to_month": lambda date: date.month - 1,
    "timestamp_to_day_of_year": lambda date: date.timetuple().tm_yday - 1,
    "timestamp_to_day_of_month": lambda date: date.day - 1,
    "timestamp_to_day_of_month_1_based": lambda date: date.day,
    "timestamp_to_day_of_week": lambda date: date.isoweekday() % 7,
    "timestamp_to_hours": lambda date: date.hour,
    "timestamp_to_minutes": lambda date: date.minute,
    "timestamp_to_seconds": lambda date: date.second,
}


def _accessor(field: Callable[[datetime], int]) -> Callable[..., int]:
    def access(value: Timestamp, *rest: Any) -> int:
        seconds = _zone_seconds(value, rest[0]) if len(rest) > 1 else 0
        return field(_local(value, seconds))

    return access


def _milliseconds(value: Timestamp, *rest: Any) -> int:
    if len(rest) > 1:
        _zone_seconds(value, rest[0])
    return value.nanos % NANOS // 1_000_000


def _duration_part(unit: int) -> Callable[[Duration, Frame], int]:
    def part(value: Duration, _frame: Frame) -> int:
        whole = abs(value.nanos) // unit
        return -whole if value.nanos < 0 else whole

    return part


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    **{name: _accessor(field) for name, field in _FIELDS.items()},
    **{f"{name}_with_tz": _accessor(field) for name, field in _FIELDS.items()},
    "timestamp_to_seconds_tz": _accessor(_FIELDS["timestamp_to_seconds"]),
    "timestamp_to_milliseconds": _milliseconds,
    "timestamp_to_milliseconds_with_tz": _milliseconds,
    "duration_to_hours": _duration_part(3600 * NANOS),
    "duration_to_minutes": _duration_part(60 * NANOS),
    "duration_to_seconds": _duration_part(NANOS),
    "duration_to_milliseconds": _duration_part(1_000_000),
}
