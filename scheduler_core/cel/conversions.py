"""Conversions, optional values, and timestamps and durations, as cel-go and Go define them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduler_core.cel.operators import NANOS, checked, duration, timestamp
from scheduler_core.cel.overloads import TRAVERSAL, Frame, Function, first, function, operator
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    MISSING,
    NONE,
    Duration,
    Mapping,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    go_float,
    type_name,
)
from scheduler_core.config.config_model import duration_nanoseconds

# -- timestamps and durations -----------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
# Python limits the length of text that it converts to a number.
_MAX_LENGTH = 4_000


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
    nanos = duration_nanoseconds(text) if len(text) <= _MAX_LENGTH else None
    return nanos if nanos is not None and MIN_INT <= nanos <= MAX_INT else None


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


def _accessor(name: str, field: Callable[[datetime], int], of_duration: int = 0) -> list[Function]:
    """Return the rows of an accessor of timestamps, and of durations if *of_duration* is the unit to count."""

    def access(value: Timestamp, *rest: Any) -> int:
        seconds = _zone_seconds(value, rest[0]) if len(rest) > 1 else 0
        return field(_local(value, seconds))

    return _rows(name, access, of_duration)


def _rows(name: str, access: Callable[..., int], unit: int) -> list[Function]:
    def part(value: Duration, _frame: Frame) -> int:
        whole = abs(value.nanos) // unit
        return -whole if value.nanos < 0 else whole

    of_timestamp = function(name, "timestamp.() | timestamp.(string) -> int", access)
    return [of_timestamp, function(name, "duration.() -> int", part)] if unit else [of_timestamp]


def _milliseconds(value: Timestamp, *rest: Any) -> int:
    if len(rest) > 1:
        _zone_seconds(value, rest[0])
    return value.nanos % NANOS // 1_000_000


# -- conversions and optional values ----------------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII)
_REAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SPECIAL_REAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_MAX_DIGITS = 400
_NO_TIME = Duration(0)


def _failed(source: str, target: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{source}' to '{target}'")


def _to_int(value: Any, _frame: Frame) -> int:
    kind = type(value)
    if kind is float:
        # Whole numbers at the ends of the range do not round trip; the reference rejects them.
        if math.isnan(value) or math.isinf(value) or not float(MIN_INT) < value < float(MAX_INT):
            raise EvaluationError("integer overflow")
        return int(value)
    if kind is Uint:
        if value > MAX_INT:
            raise EvaluationError("integer overflow")
        return int(value)
    if kind is Duration:
        return int(value.nanos)
    if kind is Timestamp:
        return int(value.nanos // NANOS)
    if kind is str:
        if len(value) < _MAX_DIGITS and _INTEGER.fullmatch(value) and MIN_INT <= int(value) <= MAX_INT:
            return int(value)
        raise _failed("string", "int")
    return int(value)


def _to_uint(value: Any, _frame: Frame) -> Uint:
    kind = type(value)
    if kind is float:
        if math.isnan(value) or math.isinf(value) or value < 0 or value >= float(MAX_UINT):
            raise EvaluationError("unsigned integer overflow")
        return Uint(int(value))
    if kind is int:
        return Uint(checked(Uint, value))
    if kind is str:
        if len(value) < _MAX_DIGITS and _UNSIGNED.fullmatch(value) and int(value) <= MAX_UINT:
            return Uint(int(value))
        raise _failed("string", "uint")
    return Uint(value)


def _to_double(value: Any, _frame: Frame) -> float:
    if type(value) is str:
        if _REAL.fullmatch(value):
            real = float(value)
            if not math.isinf(real):
                return real
        elif _SPECIAL_REAL.fullmatch(value):
            return float(value)
        raise _failed("string", "double")
    return float(value)


def _to_bool(value: Any, _frame: Frame) -> bool:
    if type(value) is str:
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        raise _failed("string", "bool")
    return bool(value)


def _to_bytes(value: Any, _frame: Frame) -> bytes:
    return value.encode(errors="surrogatepass") if type(value) is str else bytes(value)


def to_string(value: Any, _frame: Frame) -> str:
    """Convert a value to a string; raise EvaluationError if bytes are not UTF-8."""
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is bytes:
        try:
            return str(value.decode())
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is float:
        return go_float(value)
    if kind is Duration:
        seconds, rest = divmod(abs(value.nanos), NANOS)
        total = float(seconds) + float(rest) / 1e9
        return go_float(-total if value.nanos < 0 else total, positional=True) + "s"
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is TypeValue:
        return str(value.name)
    if kind in (int, Uint):
        return str(int(value))
    return str(value)


def _to_duration(value: Any, _frame: Frame) -> Duration:
    if type(value) is Duration:
        return value
    nanos = parse_duration(value)
    if nanos is None:
        raise _failed("string", "google.protobuf.Duration")
    return duration(nanos)


def _to_timestamp(value: Any, _frame: Frame) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return timestamp(value * NANOS)
    parsed = parse_timestamp(value)
    if parsed is None:
        raise _failed("string", "google.protobuf.Timestamp")
    return timestamp(parsed.nanos, parsed.offset)


def _of_non_zero(value: Any, _frame: Frame) -> Optional:
    if value is None or value == _NO_TIME:
        return NONE
    if type(value) in (bool, int, Uint, float, str, bytes, tuple) or isinstance(value, Mapping):
        return Optional(value) if value else NONE
    return Optional(value)


def _value(optional: Optional, _frame: Frame) -> Any:
    if optional.value is MISSING:
        raise EvaluationError("optional.none() dereference")
    return optional.value


FUNCTIONS = [
    function("bool", "(bool) | (string) -> bool", _to_bool),
    function("bytes", "(bytes) -> bytes", _to_bytes),
    function("bytes", "(string) -> bytes", _to_bytes, exact=first(TRAVERSAL)),
    function("double", "(double) | (int) | (string) | (uint) -> double", _to_double),
    function("duration", "(duration) | (string) -> duration", _to_duration),
    operator("dyn", "(A) -> dyn", lambda value, _frame: value),
    function("int", "(int) | (double) | (duration) | (string) | (timestamp) | (uint) -> int", _to_int),
    function("string", "(string) | (bool) -> string", to_string),
    function("string", "(bytes) -> string", to_string, exact=first(TRAVERSAL)),
    function("string", "(double) | (duration) | (int) | (timestamp) | (uint) -> string", to_string),
    function("timestamp", "(timestamp) | (int) | (string) -> timestamp", _to_timestamp),
    operator("type", "(A) -> type(A)", lambda value, _frame: TypeValue(type_name(value))),
    function("uint", "(uint) | (double) | (int) | (string) -> uint", _to_uint),
    function("optional.none", "() -> optional(V)", lambda _frame: NONE),
    function("optional.of", "(V) -> optional(V)", lambda value, _frame: Optional(value)),
    function("optional.ofNonZeroValue", "(V) -> optional(V)", _of_non_zero),
    function("hasValue", "optional(V).() -> bool", lambda optional, _frame: optional.value is not MISSING),
    function("value", "optional(V).() -> V", _value),
    function("or", "optional(V).(optional(V)) -> optional(V)"),
    function("orValue", "optional(V).(V) -> V"),
    *_accessor("getFullYear", lambda date: date.year),
    *_accessor("getMonth", lambda date: date.month - 1),
    *_accessor("getDayOfYear", lambda date: date.timetuple().tm_yday - 1),
    *_accessor("getDayOfMonth", lambda date: date.day - 1),
    *_accessor("getDate", lambda date: date.day),
    *_accessor("getDayOfWeek", lambda date: date.isoweekday() % 7),
    *_accessor("getHours", lambda date: date.hour, 3600 * NANOS),
    *_accessor("getMinutes", lambda date: date.minute, 60 * NANOS),
    *_accessor("getSeconds", lambda date: date.second, NANOS),
    *_rows("getMilliseconds", _milliseconds, 1_000_000),
]
