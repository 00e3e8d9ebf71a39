"""Operators: equality, order and arithmetic of CEL values, with cel-go's error texts."""

from __future__ import annotations

import math
from typing import Any

from scheduler_core.cel.overloads import (
    Frame,
    Function,
    Implementation,
    concatenated,
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
    Duration,
    Mapping,
    NamedFormat,
    Optional,
    Quantity,
    Semver,
    Timestamp,
    Uint,
)

NANOS = 1_000_000_000
"""Nanoseconds of a second."""
_MIN_UNIX, _MAX_UNIX = -62_135_596_800, 253_402_300_799
_NUMBERS = frozenset({int, float, Uint})
_INTEGERS = frozenset({int, Uint})
_ADDABLE = frozenset({int, float, Uint, str, bytes, tuple})
_RECEIVERS = frozenset({str, Duration, Timestamp})
_COMPARISON_WORK = 8


def no_overload(name: str, receiver: Any) -> EvaluationError:
    if type(receiver) in _RECEIVERS:
        return EvaluationError("no such overload")
    return EvaluationError(f"no such overload: {name}")


def _mismatch() -> EvaluationError:
    return EvaluationError("no such overload")


def _unsupported(name: str, left: Any, kinds: frozenset[type] = _NUMBERS) -> EvaluationError:
    return _mismatch() if type(left) in kinds else no_overload(name, left)


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
    if kind in (bool, bytes, str):
        if type(right) is not kind:
            raise _mismatch()
        if kind is str:
            left, right = left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass")
        return int(left > right) - int(left < right)
    if kind in (Duration, Timestamp):
        if type(right) is not kind:
            raise _mismatch()
        return int(left.nanos > right.nanos) - int(left.nanos < right.nanos)
    raise no_overload(name, left)


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
    if kind not in _ADDABLE or type(right) is not kind:
        raise _unsupported("_+_", left, _ADDABLE)
    if kind in _INTEGERS:
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
    if type(left) not in _NUMBERS or type(right) is not type(left):
        raise _unsupported("_-_", left)
    return left - right if kind is float else checked(kind, int(left) - int(right))


def _multiply(left: Any, right: Any, _frame: Frame) -> Any:
    if type(left) not in _NUMBERS or type(right) is not type(left):
        raise _unsupported("_*_", left)
    return left * right if type(left) is float else checked(type(left), int(left) * int(right))


def _divide(left: Any, right: Any, _frame: Frame) -> Any:
    if type(left) not in _NUMBERS or type(right) is not type(left):
        raise _unsupported("_/_", left)
    if type(left) is float:
        if right == 0:
            sign = math.copysign(1, left) * math.copysign(1, right)
            return math.nan if left == 0 or math.isnan(left) else sign * math.inf
        return left / right
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    return checked(type(left), quotient if (left < 0) == (right < 0) else -quotient)


def _modulo(left: Any, right: Any, _frame: Frame) -> Any:
    if type(left) not in _INTEGERS or type(right) is not type(left):
        raise _unsupported("_%_", left, _INTEGERS)
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == MIN_INT and right == -1:
        raise EvaluationError("integer overflow")
    remainder = abs(int(left)) % abs(int(right))
    return checked(type(left), -remainder if left < 0 else remainder)


def _negate(value: Any, _frame: Frame) -> Any:
    if type(value) is int:
        return checked(int, -value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return duration(-value.nanos)
    raise _mismatch() if type(value) is bool else no_overload("-_", value)


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


# Operators without an implementation are compiled by the planner.
FUNCTIONS = [
    operator("!_", "(bool) -> bool", _not),
    operator("-_", "(double) -> double; (int) -> int", _negate),
    operator("@in", "(A, list(A)) -> bool", _in, second(1)),
    operator("@in", "(A, map(A, B)) -> bool", _in),
    operator("@not_strictly_false", "(bool) -> bool", lambda value, _frame: value is not False),
    function("_!=_", "(A, A) -> bool"),
    function("_==_", "(A, A) -> bool"),
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
]
