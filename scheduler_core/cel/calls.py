"""Calls of functions: evaluation of arguments, choice of the overload at run time, and cost.

An error in one argument does not stop the evaluation of the others of an operator, because they count towards the cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler_core.cel import (
    conversions,
    list_functions,
    named_formats,
    network_functions,
    quantity_functions,
    string_functions,
    timestamps,
)
from scheduler_core.cel.attributes import Run
from scheduler_core.cel.cost import ERROR_VALUE, CallCost, call_cost, equality_cost, inequality_cost
from scheduler_core.cel.declarations import Overload, functions
from scheduler_core.cel.operators import OPERATORS, Frame, equal
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.string_functions import UNGUARDED
from scheduler_core.cel.value_types import Type
from scheduler_core.cel.values import Mapping, type_name

Implementation = Callable[..., Any]

IMPLEMENTATIONS: dict[str, Implementation] = {  # by overload
    **conversions.IMPLEMENTATIONS,
    **list_functions.IMPLEMENTATIONS,
    **named_formats.IMPLEMENTATIONS,
    **network_functions.IMPLEMENTATIONS,
    **quantity_functions.IMPLEMENTATIONS,
    **string_functions.IMPLEMENTATIONS,
    **timestamps.IMPLEMENTATIONS,
}
SINGLETONS: dict[str, Implementation] = {
    **OPERATORS,
    **conversions.SINGLETONS,
    **list_functions.SINGLETONS,
    **string_functions.SINGLETONS,
}
"""By name; a singleton serves all overloads of its function or operator and checks types itself."""


def plan_call(function: str, overloads: tuple[str, ...], args: list[Run], *, constant_pattern: bool = False) -> Run:
    """Return a function that evaluates a call.

    Args:
        function: The resolved name.
        overloads: Identifiers of the overloads that match by type.
        args: Evaluate the arguments, the receiver first.
        constant_pattern: Whether the call searches for a constant pattern, which the reference compiles beforehand.
    """
    overload = overloads[0] if len(overloads) == 1 else ""
    if function in SINGLETONS:
        implementation, several = SINGLETONS[function], False
    else:
        implementation, several = _dispatcher(function, overload, unguarded=constant_pattern)
    cost = call_cost(function, overload)
    if len(args) == 1:
        return _unary(args[0], implementation, cost)
    if len(args) == 2 and not several and not constant_pattern:
        return _binary(args[0], args[1], implementation, cost)
    return _sequence(args, implementation, cost)


def _dispatcher(function: str, overload: str, *, unguarded: bool) -> tuple[Implementation, bool]:
    """Return the implementation, and whether it takes any number of arguments, which decides how errors are handled."""
    declared = [one for one in functions()[function] if one.identifier in IMPLEMENTATIONS]
    if overload or len(declared) == 1:
        found = next((one for one in declared if one.identifier == overload), declared[0] if declared else None)
        if found is None:
            return _missing(function), False
        guarded = IMPLEMENTATIONS[found.identifier] if unguarded else _guarded(function, found)
        return guarded, len(found.args) > 2
    candidates = [(one, IMPLEMENTATIONS[one.identifier]) for one in declared]

    def dispatch(*args: Any) -> Any:
        values = args[:-1]
        for candidate, implementation in candidates:
            if len(candidate.args) == len(values) and _matches(candidate, values):
                return implementation(*args)
        raise _no_match(function, values)

    return dispatch, True


def _missing(function: str) -> Implementation:
    def fail(*args: Any) -> Any:
        raise _no_match(function, args[:-1])

    return fail


def _guarded(function: str, overload: Overload) -> Implementation:
    implementation = IMPLEMENTATIONS[overload.identifier]
    if function in UNGUARDED:
        return implementation

    def call(*args: Any) -> Any:
        values = args[:-1]
        if not _matches(overload, values):
            raise _no_match(function, values)
        return implementation(*args)

    return call


def _matches(overload: Overload, values: tuple[Any, ...]) -> bool:
    return all(matches_type(kind, value) for kind, value in zip(overload.args, values, strict=True))


def matches_type(kind: Type, value: Any) -> bool:
    """Return whether a value is of a type; of a list or map the first element or entry decides."""
    if kind.kind in ("param", "dyn", "any"):
        return True
    if kind.name != type_name(value):
        return False
    if kind.kind == "list" and value:
        return matches_type(kind.params[0], value[0])
    if kind.kind == "map" and isinstance(value, Mapping) and len(value):
        key = next(iter(value.iterate()))
        return matches_type(kind.params[0], key) and matches_type(kind.params[1], value.find(key))
    return True


def _no_match(function: str, values: tuple[Any, ...]) -> EvaluationError:
    return EvaluationError(f"no such overload: {function}({', '.join([type_name(value) for value in values])})")


def charge(frame: Frame, amount: int) -> None:
    """Add to the cost.

    Raises:
        CostLimitError: The cost exceeds the limit.
    """
    frame.cost += amount
    if frame.cost > frame.cost_to_check:
        frame.check()


def _charge_call(frame: Frame, cost: CallCost, args: tuple[Any, ...], result: Any) -> None:
    charge(frame, cost if isinstance(cost, int) else cost(args, result))


def _unary(arg: Run, implementation: Implementation, cost: CallCost) -> Run:
    def evaluate(frame: Frame) -> Any:
        try:
            value = arg(frame)
        except EvaluationError:
            _charge_call(frame, cost, (ERROR_VALUE,), ERROR_VALUE)
            raise
        try:
            result = implementation(value, frame)
        except EvaluationError:
            _charge_call(frame, cost, (value,), ERROR_VALUE)
            raise
        _charge_call(frame, cost, (value,), result)
        return result

    return evaluate


def _right_for_cost(right: Run, frame: Frame) -> Any:
    """Evaluate the right side of an operator whose left side failed."""
    try:
        return right(frame)
    except EvaluationError:
        return ERROR_VALUE


def _binary(left: Run, right: Run, implementation: Implementation, cost: CallCost) -> Run:
    fixed = cost if isinstance(cost, int) else -1

    def evaluate(frame: Frame) -> Any:
        one: Any = ERROR_VALUE
        two: Any = ERROR_VALUE
        result: Any = ERROR_VALUE
        try:
            one = left(frame)
            two = right(frame)
            result = implementation(one, two, frame)
        except EvaluationError:
            if one is ERROR_VALUE:
                two = _right_for_cost(right, frame)
            _charge_call(frame, cost, (one, two), ERROR_VALUE)
            raise
        if fixed >= 0:
            frame.cost += fixed
            if frame.cost > frame.cost_to_check:
                frame.check()
        else:
            _charge_call(frame, cost, (one, two), result)
        return result

    return evaluate


def _sequence(args: list[Run], implementation: Implementation, cost: CallCost) -> Run:
    last = len(args) - 1

    def evaluate(frame: Frame) -> Any:
        values = []
        for index, arg in enumerate(args):
            try:
                values.append(arg(frame))
            except EvaluationError:
                # The reference counts a call only if it finds all arguments evaluated.
                if index == last:
                    _charge_call(frame, cost, (*values, ERROR_VALUE), ERROR_VALUE)
                raise
        try:
            result = implementation(*values, frame)
        except EvaluationError:
            _charge_call(frame, cost, tuple(values), ERROR_VALUE)
            raise
        _charge_call(frame, cost, tuple(values), result)
        return result

    return evaluate


def plan_equality(left: Run, right: Run, *, negated: bool) -> Run:
    """Return a function that evaluates ``==`` or ``!=``."""
    cost = inequality_cost if negated else equality_cost

    def evaluate(frame: Frame) -> bool:
        one: Any = ERROR_VALUE
        two: Any = ERROR_VALUE
        try:
            one = left(frame)
            two = right(frame)
        except EvaluationError:
            if one is ERROR_VALUE:
                two = _right_for_cost(right, frame)
            charge(frame, cost(one, two))
            raise
        if type(one) is str and type(two) is str:
            frame.cost += (min(len(one), len(two)) + 9) // 10
            return (one == two) is not negated
        charge(frame, cost(one, two))
        try:
            return equal(one, two, frame) is not negated
        except EvaluationError:
            if negated:
                return True
            raise

    return evaluate
