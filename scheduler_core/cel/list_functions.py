"""Functions on lists: cel-go's lists and sets extensions and Kubernetes' list library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key, reduce
from itertools import pairwise
from typing import Any

from scheduler_core.cel.operators import add, compare, contains, equal, no_overload
from scheduler_core.cel.overloads import (
    COST_LIMIT,
    KINDS,
    Frame,
    Function,
    Implementation,
    flattened,
    function,
    operator,
    result_list,
    self_compared,
    sets,
    traversed,
)
from scheduler_core.cel.problems import CostLimitError, EvaluationError
from scheduler_core.cel.values import MISSING, NONE, Duration, Optional, Timestamp, Uint, type_name

_MAX_RANGE = 1_000_000
_COMPARABLE = frozenset({bool, bytes, float, int, str, Duration, Timestamp, Uint})


def _slice(elements: Any, start: int, end: int, _frame: Frame) -> Any:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(elements) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def _flatten(elements: Any, *rest: Any) -> Any:
    depth, frame = rest if len(rest) > 1 else (1, rest[0])
    if type(elements) is not tuple or type(depth) is not int:
        text = f"{type_name(elements)}.flatten({type_name(depth) if len(rest) > 1 else ''})"
        raise EvaluationError(f"no such overload: {text}")
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Any] = []
    _flatten_into(flat, elements, depth, frame)
    return tuple(flat)


def _flatten_into(flat: list[Any], elements: tuple[Any, ...], depth: int, frame: Frame) -> None:
    frame.add_work(len(elements))
    for element in elements:
        if type(element) is tuple and depth:
            _flatten_into(flat, element, depth - 1, frame)
        else:
            flat.append(element)


def _range(count: int, _frame: Frame) -> Any:
    if count < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {count}")
    if count > _MAX_RANGE:
        raise EvaluationError(f"lists.range: size {count} exceeds maximum allowed ({_MAX_RANGE})")
    return tuple(range(count))


def _distinct(elements: Any, frame: Frame) -> Any:
    if len(elements) ** 2 * 2 > COST_LIMIT:
        raise CostLimitError
    distinct: list[Any] = []
    for element in elements:
        if not contains(tuple(distinct), element, frame):
            distinct.append(element)
    return tuple(distinct)


def _sort(elements: Any, frame: Frame) -> Any:
    if type(elements) is not tuple:
        raise no_overload("sort", elements)
    return _sort_by(elements, elements, frame)


def _sort_by(elements: Any, keys: Any, _frame: Frame) -> Any:
    if type(elements) is not tuple or type(keys) is not tuple:
        raise no_overload("@sortByAssociatedKeys", elements)
    if len(elements) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got "
            f"{len(elements)} and {len(keys)} elements respectively"
        )
    if not elements:
        return elements
    if len(elements) ** 2 * 2 > COST_LIMIT:
        raise CostLimitError
    if type(keys[0]) not in _COMPARABLE:
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")

    def order(one: int, two: int) -> int:
        try:
            return compare(keys[one], keys[two], "sort")
        except EvaluationError:
            return 0

    ordered = sorted(range(len(keys)), key=cmp_to_key(order))
    return tuple(elements[index] for index in ordered)


def _unwrap(elements: Any, frame: Frame) -> Any:
    frame.add_work(len(elements))
    unwrapped = []
    for element in elements:
        if type(element) is not Optional:
            raise EvaluationError(f"value {element} is not optional")
        if element.value is not MISSING:
            unwrapped.append(element.value)
    return tuple(unwrapped)


def _is_sorted(elements: Any, _frame: Frame) -> bool:
    for one, two in pairwise(elements):
        if type(one) not in _COMPARABLE:
            raise EvaluationError("no such overload")
        if compare(one, two, "isSorted") > 0:
            return False
    return True


def _sum(zero: Any) -> Callable[[Any, Frame], Any]:
    return lambda elements, frame: reduce(lambda total, element: add(total, element, frame), elements, zero)


def _extreme(name: str, sign: int) -> Callable[[Any, Frame], Any]:
    def extreme(elements: Any, _frame: Frame) -> Any:
        if not elements:
            raise EvaluationError(f"{name} called on empty list")
        best = elements[0]
        for element in elements[1:]:
            if type(element) not in _COMPARABLE:
                raise EvaluationError("no such overload")
            if compare(element, best, name) * sign > 0:
                best = element
        return best

    return extreme


def _find(indices: range, elements: Any, value: Any, frame: Frame) -> int:
    frame.add_work(len(elements))
    for index in indices:
        try:
            if equal(elements[index], value, frame):
                return index
        except EvaluationError:
            continue
    return -1


def _includes(container: Any, value: Any, frame: Frame) -> bool:
    elements = container if type(container) is tuple else (container,)
    return _find(range(len(elements)), elements, value, frame) >= 0


def _includes_all(elements: Any, wanted: Any, frame: Frame) -> bool:
    return all(contains(elements, element, frame) for element in wanted)


def _by_kind(name: str, result: str, run: Implementation) -> Function:
    signatures = "; ".join([f"list({kind}).() -> {result.format(kind)}" for kind in KINDS])
    return function(name, signatures, run, traversed)


_TWO_LISTS = "(list(T), list(T)) -> bool"
_SORTED = "; ".join([f"list({kind}).() -> list({kind})" for kind in KINDS])
_SORTED_BY = " | ".join([f"list(T).(list({kind}))" for kind in KINDS])

FUNCTIONS = [
    operator("@sortByAssociatedKeys", f"{_SORTED_BY} -> list(T)", _sort_by, self_compared(1)),
    function("distinct", "list(T).() -> list(T)", _distinct, self_compared(0)),
    function("first", "list(V).() -> optional(V)", lambda items, _frame: Optional(items[0]) if items else NONE),
    function(
        "flatten", "list(list(T)).() -> list(T); list(dyn).(int) -> list(dyn)", _flatten, flattened, guarded=False
    ),
    function("includes", "dyn.(dyn) -> bool", _includes, traversed),
    function("indexOf", "list(A).(A) -> int", lambda a, b, f: _find(range(len(a)), a, b, f), traversed),
    _by_kind("isSorted", "bool", _is_sorted),
    function("last", "list(V).() -> optional(V)", lambda items, _frame: Optional(items[-1]) if items else NONE),
    function("lastIndexOf", "list(A).(A) -> int", lambda a, b, f: _find(range(len(a))[::-1], a, b, f), traversed),
    function("lists.range", "(int) -> list(int)", _range, result_list),
    _by_kind("max", "{}", _extreme("max", 1)),
    _by_kind("min", "{}", _extreme("min", -1)),
    function("optional.unwrap", "(list(optional(V))) -> list(V)", _unwrap),
    function("reverse", "list(T).() -> list(T)", lambda elements, _frame: elements[::-1], result_list),
    function("sets.contains", _TWO_LISTS, _includes_all, sets(1)),
    function("sets.equivalent", _TWO_LISTS, lambda a, b, f: _includes_all(a, b, f) and _includes_all(b, a, f), sets(2)),
    function("sets.intersects", _TWO_LISTS, lambda a, b, f: any(contains(b, each, f) for each in a), sets(1)),
    function("slice", "list(T).(int, int) -> list(T)", _slice, result_list),
    operator("sort", _SORTED, _sort, self_compared(0)),
    function("sum", "list(int).() -> int", _sum(0), traversed),
    function("sum", "list(uint).() -> uint", _sum(Uint(0)), traversed),
    function("sum", "list(double).() -> double", _sum(0.0), traversed),
    function("sum", "list(duration).() -> duration", _sum(Duration(0)), traversed),
    function("unwrapOpt", "list(optional(V)).() -> list(V)", _unwrap),
]
