"""CEL's standard functions: operators, conversions, optional values, timestamps and durations.

Results and error texts are those of cel-go and Go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduler_core.cel.overloads import (
    TRAVERSAL,
    Frame,
    Function,
    Implementation,
    concatenated,
    equated,
    first,
    function,
    operator,
    second,
    smaller,
)
from scheduler_core.cel.problems import AbortedError, EvaluationError
from scheduler_core.cel.values import (
    KUBERNETES_TYPES,
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    MISSING,
    NONE,
    Duration,
    Mapping,
    NamedFormat,
    Optional,
    Quantity,
    Semver,
    Timestamp,
    TypeValue,
    Uint,
    go_float,
    go_text,
    type_name,
)
from scheduler_core.config.config_model import duration_nanoseconds

# -- operators: equality, order and arithmetic ----------------------------------------------------------------------

NANOS = 1_000_000_000
"""Nanoseconds of a second."""
_MIN_UNIX, _MAX_UNIX = -62_135_596_800, 253_402_300_799
_NUMBERS = frozenset({int, float, Uint})
_INTEGERS = frozenset({int, Uint})
_ADDABLE = frozenset({int, float, Uint, str, bytes, tuple})
_RECEIVERS = frozenset({str, Duration, Timestamp})
ORDERED = _NUMBERS | {bool, bytes, str, Duration, Timestamp}
"""Types with an order."""
_COMPARISON_WORK = 8


def no_overload(name: str, receiver: Any, kinds: frozenset[type] = frozenset()) -> EvaluationError:
    """Return the error of a call whose receiver, or an argument of a receiver of these types, has another type."""
    return _mismatch() if type(receiver) in kinds | _RECEIVERS else EvaluationError(f"no such overload: {name}")


def _mismatch() -> EvaluationError:
    return EvaluationError("no such overload")


def _common_type(name: str, left: Any, right: Any, kinds: frozenset[type] = _NUMBERS) -> type:
    if type(left) not in kinds or type(right) is not type(left):
        raise no_overload(name, left, kinds)
    return type(left)


def equal(left: Any, right: Any, frame: Frame) -> bool:
    """Return whether values are equal: not if types differ, except numbers; an error beside a quantity or version."""
    kind = type(left)
    if kind is str:
        return type(right) is str and left == right
    if left is None or right is None:
        return left is right
    if kind in _NUMBERS:
        return type(right) in _NUMBERS and bool(left == right)
    if kind is tuple:
        return _equal_lists(left, right, frame)
    if isinstance(left, Mapping):
        return _equal_maps(left, right, frame)
    if kind is Optional:
        if type(right) is not Optional or left.value is MISSING or right.value is MISSING:
            return type(right) is Optional and left.value is right.value
        return equal(left.value, right.value, frame)
    if kind in KUBERNETES_TYPES:
        if type(right) is not kind or (kind is Quantity and right.computed):
            raise _mismatch()
        if kind is Quantity:
            return bool(left.nano == right.nano)
        if kind is Semver:
            return bool(left.compare(right) == 0)
        return bool(left.name == right.name if kind is NamedFormat else left == right)
    if kind is Timestamp:
        return type(right) is Timestamp and left.nanos == right.nanos
    return kind is type(right) and bool(left == right)


def _not_equal(left: Any, right: Any, frame: Frame) -> bool:
    try:
        return not equal(left, right, frame)
    except EvaluationError:
        return True


def _equal_elements(left: Any, right: Any, frame: Frame) -> bool:
    # The reference counts an error as equal inside a list or map.
    try:
        return equal(left, right, frame)
    except EvaluationError:
        return True


def _equal_lists(left: tuple[Any, ...], right: Any, frame: Frame) -> bool:
    if type(right) is not tuple or len(left) != len(right):
        return False
    frame.add_work(len(left) * _COMPARISON_WORK)
    return all(_equal_elements(one, two, frame) for one, two in zip(left, right, strict=True))


def _equal_maps(left: Mapping, right: Any, frame: Frame) -> bool:
    if not isinstance(right, Mapping) or len(left) != len(right):
        return False
    frame.add_work(len(left) * _COMPARISON_WORK)
    for key in left.iterate():
        other = right.find(key)
        if other is MISSING or not _equal_elements(left.find(key), other, frame):
            return False
    return True


def contains(elements: tuple[Any, ...], value: Any, frame: Frame) -> bool:
    frame.add_work(len(elements) * _COMPARISON_WORK)
    for element in elements:
        try:
            if equal(value, element, frame):
                return True
        except EvaluationError:
            continue
    return False


def compare(left: Any, right: Any, name: str) -> int:
    """Return -1, 0 or 1 by the order of two values; raise EvaluationError if there is none."""
    kind = type(left)
    if kind in _NUMBERS:
        if left != left or (type(right) is float and right != right):  # noqa: PLR0124
            raise EvaluationError("NaN values cannot be ordered")
        if type(right) not in _NUMBERS:
            raise _mismatch()
        return int(left > right) - int(left < right)
    if kind not in ORDERED:
        raise no_overload(name, left)
    if type(right) is not kind:
        raise _mismatch()
    if kind in (Duration, Timestamp):
        left, right = left.nanos, right.nanos
    return int(left > right) - int(left < right)


def checked(kind: type, number: int) -> Any:
    """Return *number* as an int or Uint. Raises EvaluationError: the number exceeds the type."""
    if kind is int:
        if MIN_INT <= number <= MAX_INT:
            return number
        raise EvaluationError("integer overflow")
    if 0 <= number <= MAX_UINT:
        return Uint(number)
    raise EvaluationError("unsigned integer overflow")


def duration(nanos: int) -> Duration:
    """Return a duration; raise EvaluationError if it exceeds an int64 of nanoseconds."""
    if MIN_INT <= nanos <= MAX_INT:
        return Duration(nanos)
    raise EvaluationError("duration overflow")


def timestamp(nanos: int, offset: int = 0) -> Timestamp:
    """Return a timestamp; raise EvaluationError if it lies outside the years 1 to 9999."""
    if _MIN_UNIX <= nanos // NANOS <= _MAX_UNIX:
        return Timestamp(nanos, offset)
    raise EvaluationError("timestamp overflow")


def add(left: Any, right: Any, frame: Frame) -> Any:
    """Return the sum, or the concatenated of strings, bytes and lists."""
    kind = type(left)
    if kind in (Duration, Timestamp):
        other = type(right)
        if other is Duration:
            total = left.nanos + right.nanos
            return duration(total) if kind is Duration else timestamp(total, left.offset)
        if kind is Duration and other is Timestamp:
            return timestamp(left.nanos + right.nanos, right.offset)
        raise _mismatch()
    if _common_type("_+_", left, right, _ADDABLE) in _INTEGERS:
        return checked(kind, int(left) + int(right))
    if kind is not float:
        frame.add_work(len(left) + len(right))
    return left + right


def _subtract(left: Any, right: Any, _frame: Frame) -> Any:
    kind = type(left)
    if kind in (Duration, Timestamp):
        if type(right) is kind:
            return duration(left.nanos - right.nanos)
        if type(right) is Duration:
            return timestamp(left.nanos - right.nanos, left.offset)
        raise _mismatch()
    kind = _common_type("_-_", left, right)
    return left - right if kind is float else checked(kind, int(left) - int(right))


def _multiply(left: Any, right: Any, _frame: Frame) -> Any:
    kind = _common_type("_*_", left, right)
    return left * right if kind is float else checked(kind, int(left) * int(right))


def _divide(left: Any, right: Any, _frame: Frame) -> Any:
    kind = _common_type("_/_", left, right)
    if kind is float:
        if right == 0:
            sign = math.copysign(1, left) * math.copysign(1, right)
            return math.nan if left == 0 or math.isnan(left) else sign * math.inf
        return left / right
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    return checked(kind, quotient if (left < 0) == (right < 0) else -quotient)


def _modulo(left: Any, right: Any, _frame: Frame) -> Any:
    kind = _common_type("_%_", left, right, _INTEGERS)
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == MIN_INT and right == -1:
        raise EvaluationError("integer overflow")
    remainder = abs(int(left)) % abs(int(right))
    return checked(kind, -remainder if left < 0 else remainder)


def _negate(value: Any, _frame: Frame) -> Any:
    if type(value) is int:
        return checked(int, -value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return duration(-value.nanos)
    raise no_overload("-_", value, frozenset({bool}))


def _not(value: Any, _frame: Frame) -> bool:
    if type(value) is not bool:
        raise _mismatch()
    return not value


def _in(value: Any, container: Any, frame: Frame) -> bool:
    if type(container) is tuple:
        return contains(container, value, frame)
    if isinstance(container, Mapping):
        if type(container) is Mapping and container.entries:
            require_hashable(value)
        return container.contains(value)
    raise _mismatch()


def require_hashable(value: Any) -> None:
    """Abort where the reference fails because a value cannot be a key."""
    name = {bytes: "types.Bytes", NamedFormat: "cel.Format", Semver: "cel.Semver"}.get(type(value))
    if name is not None:
        raise AbortedError(f"internal error: runtime error: hash of unhashable type {name}")


_NUMERIC = "(double, double) -> double; (int, int) -> int"
_ORDERED = (
    "(bool, bool) | (int, int) | (int, double) | (int, uint) | (uint, uint) | (uint, double) | (uint, int) "
    "| (double, double) | (double, int) | (double, uint) -> bool"
)


def _order(name: str, run: Implementation) -> list[Function]:
    return [
        operator(name, _ORDERED, run),
        operator(name, "(string, string) | (bytes, bytes) -> bool", run, smaller),
        operator(name, "(timestamp, timestamp) | (duration, duration) -> bool", run),
    ]


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
        return Timestamp(-(2**62) * NANOS, offset)
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
    text = _local(value, value.offset).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
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
    for part in zone.split(":", 1):
        if not _INTEGER.fullmatch(part):
            raise EvaluationError(f'strconv.Atoi: parsing "{part}": invalid syntax')
        if len(part) > _MAX_LENGTH or abs(int(part)) > MAX_INT:
            raise EvaluationError(f'strconv.Atoi: parsing "{part}": value out of range')
    hours, minutes = map(int, zone.split(":", 1))
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


def _accessor(name: str, field: Callable[[datetime], int] | None, unit: int = 0) -> list[Function]:
    """Return the rows of a field of timestamps, None for milliseconds, and of durations in whole *unit* if not 0."""

    def of_timestamp(value: Timestamp, *rest: Any) -> int:
        seconds = _zone_seconds(value, rest[0]) if len(rest) > 1 else 0
        return value.nanos % NANOS // unit if field is None else field(_local(value, seconds))

    def of_duration(value: Duration, _frame: Frame) -> int:
        return abs(value.nanos) // unit * (-1 if value.nanos < 0 else 1)

    row = function(name, "timestamp.() | timestamp.(string) -> int", of_timestamp)
    return [row, function(name, "duration.() -> int", of_duration)] if unit else [row]


# -- conversions and optional values ----------------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII)
_REAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SPECIAL_REAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_MAX_DIGITS = 400
_NO_TIME = Duration(0)


def _failed(target: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from 'string' to '{target}'")


def _to_int(value: Any, _frame: Frame) -> int:
    kind = type(value)
    if kind is float:
        # Whole numbers at the ends of the range do not round trip; the reference rejects them.
        if not float(MIN_INT) < value < float(MAX_INT):
            raise EvaluationError("integer overflow")
        return int(value)
    if kind is Duration:
        return int(value.nanos)
    if kind is Timestamp:
        return int(value.nanos // NANOS)
    if kind is str:
        if len(value) < _MAX_DIGITS and _INTEGER.fullmatch(value) and MIN_INT <= int(value) <= MAX_INT:
            return int(value)
        raise _failed("int")
    return int(checked(int, int(value)))


def _to_uint(value: Any, _frame: Frame) -> Uint:
    kind = type(value)
    if kind is float:
        if not 0 <= value < float(MAX_UINT):
            raise EvaluationError("unsigned integer overflow")
        return Uint(int(value))
    if kind is str:
        if len(value) < _MAX_DIGITS and _UNSIGNED.fullmatch(value) and int(value) <= MAX_UINT:
            return Uint(int(value))
        raise _failed("uint")
    return Uint(checked(Uint, int(value)))


def _to_double(value: Any, _frame: Frame) -> float:
    if type(value) is str:
        if _REAL.fullmatch(value):
            real = float(value)
            if not math.isinf(real):
                return real
        elif _SPECIAL_REAL.fullmatch(value):
            return float(value)
        raise _failed("double")
    return float(value)


def _to_bool(value: Any, _frame: Frame) -> bool:
    found = _BOOLS.get(value) if type(value) is str else value
    if found is None:
        raise _failed("bool")
    return bool(found)


def _to_bytes(value: Any, _frame: Frame) -> bytes:
    return value.encode(errors="surrogatepass") if type(value) is str else bytes(value)


def to_string(value: Any, _frame: Frame) -> str:
    """Convert a value to a string; raise EvaluationError if bytes are not UTF-8."""
    kind = type(value)
    if kind is bytes:
        try:
            return str(value.decode())
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is Duration:
        seconds, rest = divmod(abs(value.nanos), NANOS)
        total = float(seconds) + float(rest) / 1e9
        return go_float(-total if value.nanos < 0 else total, positional=True) + "s"
    if kind is Timestamp:
        return timestamp_text(value)
    return str(value.name) if kind is TypeValue else go_text(value)


def _to_duration(value: Any, _frame: Frame) -> Duration:
    if type(value) is Duration:
        return value
    nanos = parse_duration(value)
    if nanos is None:
        raise _failed("google.protobuf.Duration")
    return duration(nanos)


def _to_timestamp(value: Any, _frame: Frame) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return timestamp(value * NANOS)
    parsed = parse_timestamp(value)
    if parsed is None:
        raise _failed("google.protobuf.Timestamp")
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


# Operators without an implementation are compiled by the planner.
FUNCTIONS = [
    operator("!_", "(bool) -> bool", _not),
    operator("-_", "(double) -> double; (int) -> int", _negate),
    operator("@in", "(A, list(A)) -> bool", _in, second(1)),
    operator("@in", "(A, map(A, B)) -> bool", _in),
    operator("@not_strictly_false", "(bool) -> bool", lambda value, _frame: value is not False),
    operator("_!=_", "(A, A) -> bool", _not_equal, smaller),
    operator("_==_", "(A, A) -> bool", equal, equated),
    function("_&&_", "(bool, bool) -> bool"),
    function("_||_", "(bool, bool) -> bool"),
    operator("_%_", "(int, int) -> int; (uint, uint) -> uint", _modulo),
    operator("_*_", f"{_NUMERIC}; (uint, uint) -> uint", _multiply),
    operator("_/_", f"{_NUMERIC}; (uint, uint) -> uint", _divide),
    operator("_+_", "(bytes, bytes) -> bytes", add, concatenated),
    operator("_+_", "(double, double) -> double; (duration, duration) -> duration", add),
    operator("_+_", "(duration, timestamp) | (timestamp, duration) -> timestamp", add),
    operator("_+_", "(int, int) -> int; (list(A), list(A)) -> list(A)", add),
    operator("_+_", "(string, string) -> string", add, concatenated),
    operator("_+_", "(uint, uint) -> uint", add),
    operator("_-_", "(double, double) -> double; (duration, duration) -> duration", _subtract),
    operator("_-_", "(int, int) -> int; (timestamp, duration) -> timestamp", _subtract),
    operator("_-_", "(timestamp, timestamp) -> duration; (uint, uint) -> uint", _subtract),
    *_order("_<=_", lambda left, right, _frame: compare(left, right, "_<=_") <= 0),
    *_order("_<_", lambda left, right, _frame: compare(left, right, "_<_") < 0),
    *_order("_>=_", lambda left, right, _frame: compare(left, right, "_>=_") >= 0),
    *_order("_>_", lambda left, right, _frame: compare(left, right, "_>_") > 0),
    function("_?_:_", "(bool, A, A) -> A"),
    function("cel.@mapInsert", "(map(K, V), K, V) | (map(K, V), map(K, V)) -> map(K, V)"),
    function("_?._", "(dyn, string) -> optional(V)"),
    function(
        "_[?_]", "(list(V), int) | (optional(list(V)), int) | (map(K, V), K) | (optional(map(K, V)), K) -> optional(V)"
    ),
    function(
        "_[_]",
        "(list(A), int) -> A; (map(A, B), A) -> B; (optional(list(V)), int) | (optional(map(K, V)), K) -> optional(V)",
    ),
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
    *_accessor("getMilliseconds", None, 1_000_000),
]
