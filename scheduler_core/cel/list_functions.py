"""Functions on lists: cel-go's lists and sets extensions and Kubernetes' list library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from scheduler_core.cel.cost import COST_LIMIT
from scheduler_core.cel.operators import Frame, add, compare, contains, duration, equal, no_overload
from scheduler_core.cel.problems import CostLimitError, EvaluationError
from scheduler_core.cel.values import MISSING, NONE, Duration, Optional, Timestamp, Uint, type_name

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
    depth, frame = (rest[0], rest[1]) if len(rest) > 1 else (1, rest[0])
    if type(elements) is not tuple or type(depth) is not int:
        kind = type_name(elements)
        raise EvaluationError(f"no such overload: {kind}.flatten({type_name(depth) if len(rest) > 1 else ''})")
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
    # The cost of the result alone exceeds the limit.
    if count > COST_LIMIT:
        raise CostLimitError
    return tuple(range(count))


def _reverse(elements: Any, _frame: Frame) -> Any:
    return elements[::-1]


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
        return _order(keys[one], keys[two])

    ordered = sorted(range(len(keys)), key=cmp_to_key(order))
    return tuple(elements[index] for index in ordered)


def _order(one: Any, two: Any) -> int:
    try:
        return compare(one, two, "sort")
    except EvaluationError:
        return 0


def _first(elements: Any, _frame: Frame) -> Any:
    return Optional(elements[0]) if elements else NONE


def _last(elements: Any, _frame: Frame) -> Any:
    return Optional(elements[-1]) if elements else NONE


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
    def total(elements: Any, frame: Frame) -> Any:
        result = zero
        for element in elements:
            result = add(result, element, frame)
        return result

    return total


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


def _index_of(elements: Any, value: Any, frame: Frame) -> int:
    frame.add_work(len(elements))
    for index, element in enumerate(elements):
        if _same(element, value, frame):
            return index
    return -1


def _last_index_of(elements: Any, value: Any, frame: Frame) -> int:
    frame.add_work(len(elements))
    for index in range(len(elements) - 1, -1, -1):
        if _same(elements[index], value, frame):
            return index
    return -1


def _same(one: Any, two: Any, frame: Frame) -> bool:
    try:
        return equal(one, two, frame)
    except EvaluationError:
        return False


def _includes(container: Any, value: Any, frame: Frame) -> bool:
    elements = container if type(container) is tuple else (container,)
    return _index_of(elements, value, frame) >= 0


def _sets_contains(elements: Any, wanted: Any, frame: Frame) -> bool:
    return all(contains(elements, element, frame) for element in wanted)


def _sets_intersects(one: Any, two: Any, frame: Frame) -> bool:
    return any(contains(two, element, frame) for element in one)


def _sets_equivalent(one: Any, two: Any, frame: Frame) -> bool:
    return _sets_contains(one, two, frame) and _sets_contains(two, one, frame)


_KINDS = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZEROS = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": duration(0)}

IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
    "list_first": _first,
    "list_last": _last,
    "optional_unwrap": _unwrap,
    "optional_unwrapOpt": _unwrap,
    "list_a_index_of_int": _index_of,
    "list_a_last_index_of_int": _last_index_of,
    "list_includes_dyn_dyn": _includes,
    "list_sets_contains_list": _sets_contains,
    "list_sets_intersects_list": _sets_intersects,
    "list_sets_equivalent_list": _sets_equivalent,
    **{f"list_{kind}_is_sorted_bool": _is_sorted for kind in _KINDS},
    **{f"list_{kind}_sum_{kind}": _sum(zero) for kind, zero in _ZEROS.items()},
    **{f"list_{kind}_max_{kind}": _extreme("max", 1) for kind in _KINDS},
    **{f"list_{kind}_min_{kind}": _extreme("min", -1) for kind in _KINDS},
}
SINGLETONS: dict[str, Callable[..., Any]] = {"sort": _sort, "@sortByAssociatedKeys": _sort_by}
