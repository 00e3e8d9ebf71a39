"""Conversions between types, as cel-go defines them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from scheduler_core.cel.formatting import go_fixed, go_float
from scheduler_core.cel.operators import NANOS, Frame, checked, duration, timestamp
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.timestamps import parse_duration, parse_timestamp, timestamp_text
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
    type_name,
)

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII)
_REAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SPECIAL_REAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_MAX_DIGITS = 400


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
    """Convert a value to a string.

    Raises:
        EvaluationError: Bytes are not UTF-8.
    """
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
        return duration_text(value)
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is TypeValue:
        return str(value.name)
    if kind in (int, Uint):
        return str(int(value))
    return str(value)


def duration_text(value: Duration) -> str:
    """Return a duration in seconds, such as ``1.5s``."""
    seconds, rest = divmod(abs(value.nanos), NANOS)
    total = float(seconds) + float(rest) / 1e9
    return go_fixed(-total if value.nanos < 0 else total) + "s"


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


def _type(value: Any, _frame: Frame) -> TypeValue:
    return TypeValue(type_name(value))


def _dyn(value: Any, _frame: Frame) -> Any:
    return value


def _of_non_zero(value: Any, _frame: Frame) -> Optional:
    if value is None or value is False:
        return NONE
    if type(value) in (int, Uint, float) and value == 0:
        return NONE
    if type(value) in (str, bytes, tuple) or isinstance(value, Mapping):
        return Optional(value) if len(value) else NONE
    if type(value) is Duration and not value.nanos:
        return NONE
    if type(value) is Optional and value.value is MISSING:
        return NONE
    return Optional(value)


def _value(optional: Optional, _frame: Frame) -> Any:
    if optional.value is MISSING:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _not_strictly_false(value: Any, _frame: Frame) -> bool:
    return value is not False


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("bool_to_bool", "string_to_bool"), _to_bool),
    **dict.fromkeys(("bytes_to_bytes", "string_to_bytes"), _to_bytes),
    **dict.fromkeys(("double_to_double", "int64_to_double", "string_to_double", "uint64_to_double"), _to_double),
    **dict.fromkeys(("duration_to_duration", "string_to_duration"), _to_duration),
    **dict.fromkeys(
        (
            "int64_to_int64", "double_to_int64", "duration_to_int64", "string_to_int64", "timestamp_to_int64",
            "uint64_to_int64",
        ),
        _to_int,
    ),
    **dict.fromkeys(
        (
            "string_to_string", "bool_to_string", "bytes_to_string", "double_to_string", "duration_to_string",
            "int64_to_string", "timestamp_to_string", "uint64_to_string",
        ),
        to_string,
    ),
    **dict.fromkeys(("timestamp_to_timestamp", "int64_to_timestamp", "string_to_timestamp"), _to_timestamp),
    **dict.fromkeys(("uint64_to_uint64", "double_to_uint64", "int64_to_uint64", "string_to_uint64"), _to_uint),
    "optional_of": lambda value, _frame: Optional(value),
    "optional_ofNonZeroValue": _of_non_zero,
    "optional_none": lambda _frame: NONE,
    "optional_value": _value,
    "optional_hasValue": lambda optional, _frame: optional.value is not MISSING,
    "not_strictly_false": _not_strictly_false,
}  # fmt: skip
SINGLETONS: dict[str, Callable[..., Any]] = {"type": _type, "dyn": _dyn, "@not_strictly_false": _not_strictly_false}
