"""Equality, order and arithmetic of CEL values, with cel-go's error texts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scheduler_core.cel.cost import COST_LIMIT
from scheduler_core.cel.problems import CostLimitError, EvaluationError
from scheduler_core.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    MISSING,
    Cidr,
    Duration,
    IpAddress,
    Mapping,
    NamedFormat,
    Optional,
    Quantity,
    Semver,
    Timestamp,
    Uint,
    Url,
)
from scheduler_core.step_counter import StepCounter

_NUMBERS = frozenset({int, float, Uint})
_TYPED_EQUALITY = frozenset({Cidr, IpAddress, NamedFormat, Url})
_RECEIVERS = frozenset({str, Duration, Timestamp})
MIN_UNIX, MAX_UNIX = -62_135_596_800, 253_402_300_799
NANOS = 1_000_000_000
# Steps that evaluation does beside those that the reference's cost counts, such as copies of lists.
_MAX_WORK = 30_000_000
_COMPARISON_WORK = 8
_COST_PER_STEP, _WORK_PER_STEP = 32, 500
_COST_BETWEEN_CHECKS, _WORK_BETWEEN_CHECKS = 8_000, 125_000


class Frame:
    """State of one evaluation.

    Attributes:
        cost: The cost so far, as the reference counts it.
        cost_to_check: Cost beyond which :meth:`check` is called.
        work: Elements and characters processed so far that the reference does not count.
        device: The variable ``device``.
        slots: Values of the variables of comprehensions.
    """

    __slots__ = ("_counted", "_steps", "_work_to_check", "cost", "cost_to_check", "device", "slots", "work")

    def __init__(self, device: Mapping, slots: int, steps: StepCounter | None = None) -> None:
        self.cost = 0
        self.work = 0
        self.device = device
        self.slots: list[Any] = [MISSING] * slots
        self._steps = steps
        self._counted = 0
        self.cost_to_check = COST_LIMIT if steps is None else _COST_BETWEEN_CHECKS
        self._work_to_check = _MAX_WORK if steps is None else _WORK_BETWEEN_CHECKS

    def add_work(self, amount: int) -> None:
        """Count elements and characters.

        Raises:
            AttemptLimitError: The attempt took more steps than it may.
            CostLimitError: The evaluation exceeds the bound on work.
        """
        self.work += amount
        if self.work > self._work_to_check:
            self.check()

    def check(self) -> None:
        """Count the steps since the last check.

        Raises:
            AttemptLimitError: The attempt took more steps than it may.
            CostLimitError: The evaluation exceeds the limit.
        """
        if self.cost > COST_LIMIT or self.work > _MAX_WORK:
            raise CostLimitError
        if self._steps is not None:
            self.cost_to_check = min(self.cost + _COST_BETWEEN_CHECKS, COST_LIMIT)
            self._work_to_check = min(self.work + _WORK_BETWEEN_CHECKS, _MAX_WORK)
            self.count_steps(self._steps)

    def count_steps(self, steps: StepCounter) -> None:
        """Count the steps that were not counted yet.

        Raises:
            AttemptLimitError: The attempt took more steps than it may.
        """
        total = self.cost // _COST_PER_STEP + self.work // _WORK_PER_STEP
        # The reference takes the cost of a test of presence back.
        if total > self._counted:
            uncounted, self._counted = total - self._counted, total
            steps.spend(uncounted)


def no_overload(function: str, receiver: Any) -> EvaluationError:
    """Return the error of an operator that the type of *receiver* does not support."""
    if type(receiver) in _RECEIVERS:
        return EvaluationError("no such overload")
    return EvaluationError(f"no such overload: {function}")


def _mismatch() -> EvaluationError:
    return EvaluationError("no such overload")


def equal(left: Any, right: Any, frame: Frame) -> bool:
    """Return whether two values are equal; values of different types are not, numbers excepted.

    Raises:
        EvaluationError: The left value is a quantity or a version and the right one is of another type.
    """
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
    if kind is Quantity:
        if type(right) is not Quantity or right.computed:
            raise _mismatch()
        return bool(left.nano == right.nano)
    if kind is Semver:
        if type(right) is not Semver:
            raise _mismatch()
        return bool(left.compare(right) == 0)
    if kind in _TYPED_EQUALITY and type(right) is not kind:
        raise _mismatch()
    if kind is NamedFormat:
        return bool(left.name == right.name)
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
    """Return whether a list contains *value*."""
    frame.add_work(len(elements) * _COMPARISON_WORK)
    for element in elements:
        try:
            if equal(value, element, frame):
                return True
        except EvaluationError:
            continue
    return False


def compare(left: Any, right: Any, function: str) -> int:
    """Return -1, 0 or 1 by the order of two values.

    Raises:
        EvaluationError: The types have no order, or a number is NaN.
    """
    kind = type(left)
    if kind in _NUMBERS:
        if kind is float and math.isnan(left):
            raise EvaluationError("NaN values cannot be ordered")
        if type(right) not in _NUMBERS:
            raise _mismatch()
        if type(right) is float and math.isnan(right):
            raise EvaluationError("NaN values cannot be ordered")
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
    raise no_overload(function, left)


def _less(left: Any, right: Any, _frame: Frame) -> bool:
    return compare(left, right, "_<_") < 0


def _less_equal(left: Any, right: Any, _frame: Frame) -> bool:
    return compare(left, right, "_<=_") <= 0


def _greater(left: Any, right: Any, _frame: Frame) -> bool:
    return compare(left, right, "_>_") > 0


def _greater_equal(left: Any, right: Any, _frame: Frame) -> bool:
    return compare(left, right, "_>=_") >= 0


def checked(kind: type, number: int) -> Any:
    """Return *number* as an int or Uint.

    Raises:
        EvaluationError: The number exceeds the type.
    """
    if kind is int:
        if MIN_INT <= number <= MAX_INT:
            return number
        raise EvaluationError("integer overflow")
    if 0 <= number <= MAX_UINT:
        return Uint(number)
    raise EvaluationError("unsigned integer overflow")


def duration(nanos: int) -> Duration:
    """Return a duration.

    Raises:
        EvaluationError: It exceeds an int64 of nanoseconds.
    """
    if MIN_INT <= nanos <= MAX_INT:
        return Duration(nanos)
    raise EvaluationError("duration overflow")


def timestamp(nanos: int, offset: int = 0) -> Timestamp:
    """Return a timestamp.

    Raises:
        EvaluationError: It lies outside the years 1 to 9999.
    """
    if MIN_UNIX <= nanos // NANOS <= MAX_UNIX:
        return Timestamp(nanos, offset)
    raise EvaluationError("timestamp overflow")


def add(left: Any, right: Any, frame: Frame) -> Any:
    """Return the sum, or the concatenation of strings, bytes and lists."""
    kind = type(left)
    if kind in (int, Uint):
        if type(right) is not kind:
            raise _mismatch()
        return checked(kind, int(left) + int(right))
    if kind in (str, bytes, tuple):
        if type(right) is not kind:
            raise _mismatch()
        frame.add_work(len(left) + len(right))
        return left + right
    if kind is float:
        if type(right) is not float:
            raise _mismatch()
        return left + right
    if kind is Duration:
        if type(right) is Duration:
            return duration(left.nanos + right.nanos)
        if type(right) is Timestamp:
            return timestamp(left.nanos + right.nanos, right.offset)
        raise _mismatch()
    if kind is Timestamp:
        if type(right) is not Duration:
            raise _mismatch()
        return timestamp(left.nanos + right.nanos, left.offset)
    raise no_overload("_+_", left)


def _subtract(left: Any, right: Any, _frame: Frame) -> Any:
    kind = type(left)
    if kind in (int, Uint, float, Duration):
        if type(right) is not kind:
            raise _mismatch()
        if kind is float:
            return left - right
        if kind is Duration:
            return duration(left.nanos - right.nanos)
        return checked(kind, int(left) - int(right))
    if kind is Timestamp:
        if type(right) is Duration:
            return timestamp(left.nanos - right.nanos, left.offset)
        if type(right) is Timestamp:
            return duration(left.nanos - right.nanos)
        raise _mismatch()
    raise no_overload("_-_", left)


def _multiply(left: Any, right: Any, _frame: Frame) -> Any:
    kind = type(left)
    if kind not in _NUMBERS:
        raise no_overload("_*_", left)
    if type(right) is not kind:
        raise _mismatch()
    return left * right if kind is float else checked(kind, int(left) * int(right))


def _divide(left: Any, right: Any, _frame: Frame) -> Any:
    kind = type(left)
    if kind not in _NUMBERS:
        raise no_overload("_/_", left)
    if type(right) is not kind:
        raise _mismatch()
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
    kind = type(left)
    if kind not in (int, Uint):
        raise no_overload("_%_", left)
    if type(right) is not kind:
        raise _mismatch()
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
    if type(value) is bool:
        raise _mismatch()
    raise no_overload("-_", value)


def _not(value: Any, _frame: Frame) -> bool:
    if type(value) is not bool:
        raise _mismatch()
    return not value


def _in(value: Any, container: Any, frame: Frame) -> bool:
    if type(container) is tuple:
        return contains(container, value, frame)
    if isinstance(container, Mapping):
        return container.contains(value)
    raise _mismatch()


OPERATORS: dict[str, Callable[..., Any]] = {
    "!_": _not,
    "-_": _negate,
    "@in": _in,
    "_%_": _modulo,
    "_*_": _multiply,
    "_+_": add,
    "_-_": _subtract,
    "_/_": _divide,
    "_<=_": _less_equal,
    "_<_": _less,
    "_>=_": _greater_equal,
    "_>_": _greater,
}
