"""Evaluation of comprehensions, into which CEL's macros expand.

The initial value of an accumulator is evaluated when the accumulator is first read: ``cel.bind`` depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from scheduler_core.cel.attributes import Run
from scheduler_core.cel.overloads import IDENTIFIER_COST, Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.values import MISSING, Mapping, go_text, go_type, type_name


@dataclass(slots=True, eq=False)
class _Unread:
    """An accumulator whose initial value has not been read yet."""

    initial: Run


@dataclass(slots=True, eq=False)
class _Growing:
    """A list that its comprehension still appends to."""

    elements: list[Any]


@dataclass(slots=True, eq=False)
class _Failed:
    """An accumulator whose initial value failed, or whose last step did."""

    error: EvaluationError


class Slots:
    """Assignment of the variables of nested comprehensions to slots of the frame."""

    def __init__(self) -> None:
        self.count = 0
        self._open: list[tuple[str, int]] = []

    def open(self, name: str) -> int:
        self._open.append((name, self.count))
        self.count += 1
        return self.count - 1

    def close(self, number: int) -> None:
        """End the scope of the *number* variables opened last."""
        del self._open[-number:]

    def reader(self, name: str) -> Run:
        """Return a function that reads the variable *name* of the innermost scope."""
        slot = next(slot for known, slot in reversed(self._open) if known == name)

        def read(frame: Frame) -> Any:
            value = frame.slots[slot]
            kind = type(value)
            if kind is _Unread:
                return _initialize(frame, slot, value)
            if kind is _Failed:
                raise value.error
            return tuple(value.elements) if kind is _Growing else value

        return read


def _initialize(frame: Frame, slot: int, unread: _Unread) -> Any:
    try:
        value = unread.initial(frame)
    except EvaluationError as error:
        frame.slots[slot] = _Failed(error)
        raise
    frame.slots[slot] = value
    return value


@dataclass(frozen=True, slots=True)
class Fold:
    """The parts of a comprehension; variables are slots.

    Attributes:
        second: The second variable; None if there is one variable.
        initial_constant: The initial value if it is constant, else MISSING.
        condition: Evaluates whether to go on; None for always.
    """

    iter_range: Run
    accumulator: int
    first: int
    second: int | None
    initial: Run
    initial_constant: Any
    condition: Run | None
    step: Run
    result: Run


def plan_fold(fold: Fold) -> Run:
    accumulator, result = fold.accumulator, fold.result

    def evaluate(frame: Frame) -> Any:
        iterated = fold.iter_range(frame)
        frame.slots[accumulator] = _start(fold)
        if iterated != ():
            _iterate(fold, frame, iterated)
        value = frame.slots[accumulator]
        if type(value) is _Growing:
            frame.add_work(len(value.elements))
            frame.slots[accumulator] = tuple(value.elements)
        frame.charge(0)
        return result(frame)

    return evaluate


def _start(fold: Fold) -> Any:
    initial = fold.initial_constant
    if initial is MISSING:
        return _Unread(fold.initial)
    if initial == ():
        return _Growing([])
    if type(initial) is Mapping and not len(initial):
        return Mapping()
    return initial


def _iterate(fold: Fold, frame: Frame, iterated: Any) -> None:
    slots = frame.slots
    accumulator, first, second = fold.accumulator, fold.first, fold.second
    condition, step = fold.condition, fold.step
    for one, two in _entries(iterated, two=second is not None):
        slots[first] = one
        if second is not None:
            slots[second] = two
        if condition is not None:
            try:
                if condition(frame) is False:
                    return
            except EvaluationError:
                pass
        try:
            slots[accumulator] = step(frame)
        except EvaluationError as error:
            slots[accumulator] = _Failed(error)
        frame.charge(0)


def _entries(iterated: Any, *, two: bool) -> Any:
    if type(iterated) is tuple:
        return enumerate(iterated) if two else zip(iterated, iterated, strict=True)
    if isinstance(iterated, Mapping):
        return [(key, iterated.find(key)) for key in iterated.iterate()]
    if two:
        raise EvaluationError(f"unsupported comprehension range type: {go_type(iterated)}")
    raise EvaluationError(f"got '{go_type(iterated)}', expected iterable type")


def _append(accumulator: int, args: list[Run]) -> Run:
    (added,) = args

    def step(frame: Frame) -> Any:
        current = frame.slots[accumulator]
        frame.cost += IDENTIFIER_COST
        error: EvaluationError | None = current.error if type(current) is _Failed else None
        elements: Any = ()
        try:
            elements = added(frame)
        except EvaluationError as failure:
            error = error or failure
        frame.charge(1)
        if error is not None:
            raise error
        if type(current) is _Growing:
            current.elements.extend(elements)
            return current
        frame.add_work(len(current))
        return (*current, *elements)

    return step


def _insert(accumulator: int, args: list[Run]) -> Run:
    def step(frame: Frame) -> Any:
        current = frame.slots[accumulator]
        frame.cost += IDENTIFIER_COST
        if type(current) is _Failed:
            if len(args) == 1:
                with suppress(EvaluationError):
                    args[0](frame)
                frame.charge(1)
            raise current.error
        values = []
        try:
            for arg in args:
                values.append(arg(frame))  # noqa: PERF401 - what was evaluated before an error counts
        except EvaluationError:
            if len(values) == len(args) - 1:
                frame.charge(1)
            raise
        frame.charge(1)
        if len(values) == 2:
            _insert_new(current, values[0], values[1])
            return current
        if not isinstance(values[0], Mapping):
            raise EvaluationError(f"no such overload: cel.@mapInsert(map, {type_name(values[0])})")
        for key in values[0].iterate():
            _insert_new(current, key, values[0].find(key))
        return current

    return step


def _insert_new(target: Mapping, key: Any, value: Any) -> None:
    if target.contains(key):
        raise EvaluationError(f"insert failed: key {go_text(key)} already exists")
    target.insert(key, value)


# Steps that grow the accumulator of a macro in place, by function.
ACCUMULATING: dict[str, Callable[[int, list[Run]], Run]] = {"_+_": _append, "cel.@mapInsert": _insert}
