"""Evaluation of comprehensions, into which CEL's macros expand.

The initial value of an accumulator is evaluated when the accumulator is first read: ``cel.bind`` depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scheduler_core.cel.attributes import Run
from scheduler_core.cel.calls import charge
from scheduler_core.cel.cost import IDENTIFIER_COST
from scheduler_core.cel.formatting import go_text, go_type
from scheduler_core.cel.operators import Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.values import MISSING, Mapping, type_name


class _Unread:
    """An accumulator whose initial value has not been read yet."""

    __slots__ = ("initial",)

    def __init__(self, initial: Run) -> None:
        self.initial = initial


class _Growing:
    """A list that its comprehension still appends to."""

    __slots__ = ("elements",)

    def __init__(self) -> None:
        self.elements: list[Any] = []


class _Failed:
    """An accumulator whose initial value failed, or whose last step did."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error = error


class Slots:
    """Assignment of the variables of nested comprehensions to slots of the frame."""

    def __init__(self) -> None:
        self.count = 0
        self._open: list[tuple[str, int]] = []

    def open(self, name: str) -> int:
        """Return a new slot for *name*."""
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


@dataclass(frozen=True)
class Fold:
    """The parts of a comprehension.

    Attributes:
        iter_range: Evaluates the list or map.
        accumulator: Slot of the accumulator.
        first: Slot of the first variable.
        second: Slot of the second variable; None if there is one variable.
        initial: Evaluates the initial value.
        initial_constant: The initial value if it is constant, else MISSING.
        condition: Evaluates whether to go on.
        condition_constant: The condition if it is constant, else MISSING.
        step: Evaluates the next value of the accumulator.
        result: Evaluates the result.
    """

    iter_range: Run
    accumulator: int
    first: int
    second: int | None
    initial: Run
    initial_constant: Any
    condition: Run
    condition_constant: Any
    step: Run
    result: Run


def plan_fold(fold: Fold) -> Run:
    """Return a function that evaluates a comprehension."""
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
        charge(frame, 0)
        return result(frame)

    return evaluate


def _start(fold: Fold) -> Any:
    initial = fold.initial_constant
    if initial is MISSING:
        return _Unread(fold.initial)
    if initial == ():
        return _Growing()
    if type(initial) is Mapping and not len(initial):
        return Mapping()
    return initial


def _iterate(fold: Fold, frame: Frame, iterated: Any) -> None:
    slots = frame.slots
    accumulator, first, second = fold.accumulator, fold.first, fold.second
    condition, step = fold.condition, fold.step
    always = fold.condition_constant is True
    for one, two in _entries(iterated, two=second is not None):
        slots[first] = one
        if second is not None:
            slots[second] = two
        if not always:
            try:
                if condition(frame) is False:
                    return
            except EvaluationError:
                pass
        try:
            slots[accumulator] = step(frame)
        except EvaluationError as error:
            slots[accumulator] = _Failed(error)
        charge(frame, 0)


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
        charge(frame, 1)
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
                _evaluate_for_cost(args[0], frame)
                charge(frame, 1)
            raise current.error
        values = []
        for index, arg in enumerate(args):
            try:
                values.append(arg(frame))
            except EvaluationError:
                if index == len(args) - 1:
                    charge(frame, 1)
                raise
        charge(frame, 1)
        if len(values) == 2:
            _insert_new(current, values[0], values[1])
            return current
        if not isinstance(values[0], Mapping):
            raise EvaluationError(f"no such overload: cel.@mapInsert(map, {type_name(values[0])})")
        for key in values[0].iterate():
            _insert_new(current, key, values[0].find(key))
        return current

    return step


def _evaluate_for_cost(run: Run, frame: Frame) -> None:
    try:
        run(frame)
    except EvaluationError:
        return


def _insert_new(target: Mapping, key: Any, value: Any) -> None:
    if target.contains(key):
        raise EvaluationError(f"insert failed: key {go_text(key)} already exists")
    target.insert(key, value)


# Steps that grow the accumulator of a macro in place, by function.
ACCUMULATING: dict[str, Callable[[int, list[Run]], Run]] = {"_+_": _append, "cel.@mapInsert": _insert}
