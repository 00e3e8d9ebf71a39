"""The cost of calls at run time, as cel-go and Kubernetes' estimator count it.

A cost is a number, or a function of the arguments and the result. An argument or result that is an error has size 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from scheduler_core.cel.formatting import go_type
from scheduler_core.cel.problems import AbortedError
from scheduler_core.cel.values import (
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
    Url,
)

IDENTIFIER_COST = 1
LIST_COST = 10
MAP_COST = 30
COST_LIMIT = 1_000_000
_TRAVERSAL = 0.1
_REGEX = 0.25
_ADDABLE = (int, float, str, bytes, Duration, Timestamp)
_UNIT_EQUALITY = (Cidr, IpAddress, NamedFormat, Quantity, Semver, Url)
_SIZED = (str, bytes, tuple, Mapping)

CallCost = int | Callable[[tuple[Any, ...], Any], int]


class ErrorValue:
    """Stands for an argument or result whose evaluation failed."""

    __slots__ = ()


ERROR_VALUE = ErrorValue()


def size(value: Any) -> int:
    """Return the size of a value: characters, bytes, elements or entries, 1 for all other types."""
    if isinstance(value, _SIZED):
        return len(value)
    sized = getattr(value, "cel_size", None)
    return 1 if sized is None else int(sized)


def _inner_size(value: Any) -> int:
    while type(value) is Optional and value.value is not MISSING:
        value = value.value
    return size(value)


def equality_cost(left: Any, right: Any) -> int:
    """Return the cost of ``==``."""
    if isinstance(left, _UNIT_EQUALITY):
        return 1
    return inequality_cost(left, right)


def inequality_cost(left: Any, right: Any) -> int:
    """Return the cost of ``!=``."""
    return ceil(min(_inner_size(left), _inner_size(right)) * _TRAVERSAL)


def _traversal(value: Any) -> int:
    if isinstance(value, str):
        return int(len(value.encode(errors="surrogatepass")) * _TRAVERSAL)
    if isinstance(value, bytes):
        return int(len(value) * _TRAVERSAL)
    if type(value) is tuple:
        return sum([_traversal(element) for element in value])
    if isinstance(value, Mapping):
        return sum([_traversal(key) + _traversal(value.find(key)) for key in value.iterate()])
    return 1


def _first(factor: float) -> CallCost:
    return lambda args, _result: ceil(size(args[0]) * factor)


def _smaller(args: tuple[Any, ...], _result: Any) -> int:
    return inequality_cost(args[0], args[1])


def _joined(_args: tuple[Any, ...], result: Any) -> int:
    return ceil(size(result) * 2 * _TRAVERSAL)


def _regex(args: tuple[Any, ...], _result: Any) -> int:
    return ceil((1.0 + _inner_size(args[0])) * _TRAVERSAL) * ceil(_inner_size(args[1]) * _REGEX)


def _contains(args: tuple[Any, ...], _result: Any) -> int:
    return ceil(_inner_size(args[0]) * _TRAVERSAL) * ceil(_inner_size(args[1]) * _TRAVERSAL)


def _concatenation(args: tuple[Any, ...], _result: Any) -> int:
    return ceil((_inner_size(args[0]) + _inner_size(args[1])) * _TRAVERSAL)


def _cidr_contains(*, parsed: bool, masked: bool) -> CallCost:
    def cost(args: tuple[Any, ...], _result: Any) -> int:
        width = size(args[0])
        total = ceil((width + width) * _TRAVERSAL)
        if masked:
            total += ceil(width * _TRAVERSAL) + 1
        return total + ceil(size(args[1]) * _TRAVERSAL) if parsed else total

    return cost


def _validation(args: tuple[Any, ...], _result: Any) -> int:
    pattern_size: int | None = getattr(args[0], "max_pattern_size", None)
    if pattern_size is None:
        return 1
    return ceil((1.0 + size(args[1])) * _TRAVERSAL) * ceil(pattern_size * _REGEX)


def _allocated(elements: float) -> int:
    return int(elements) + 1 + LIST_COST


def _result_list(_args: tuple[Any, ...], result: Any) -> int:
    return _allocated(size(result))


def _flatten(args: tuple[Any, ...], _result: Any) -> int:
    depth = args[1] if len(args) > 1 and type(args[1]) is int else 1
    return _allocated(size(args[0]) * float(depth if depth >= 0 else 1))


def _not_a_list(value: Any) -> str:
    name = "*types.Err" if isinstance(value, ErrorValue) else go_type(value)
    missing = "Contains" if isinstance(value, _ADDABLE) and not isinstance(value, bool) else "Add"
    return f"{name} is not traits.Lister: missing method {missing}"


def _self_compare(index: int) -> CallCost:
    def cost(args: tuple[Any, ...], _result: Any) -> int:
        elements = args[index]
        if type(elements) is not tuple:
            raise AbortedError(f"internal error: interface conversion: {_not_a_list(elements)}")
        count = len(elements)
        factor = 2.0
        if elements and type(elements[0]) in (str, bytes):
            factor += _TRAVERSAL
        return _allocated(count * count * factor)

    return cost


def _sets(factor: int) -> CallCost:
    return lambda args, _result: 1 + int(size(args[0]) * size(args[1]) * factor)


def _traversed(args: tuple[Any, ...], _result: Any) -> int:
    return _traversal(args[0])


_SORT_KINDS = (
    "int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes",
)  # fmt: skip
# Costs by overload precede those by function; what is in neither costs 1.
_BY_OVERLOAD_FIRST: dict[str, CallCost] = {
    "list_slice": _result_list,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _result_list,
    "list_reverse": _result_list,
    "list_distinct": _self_compare(0),
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    **{f"list_{kind}_sort": _self_compare(0) for kind in _SORT_KINDS},
    **{f"list_{kind}_sortByAssociatedKeys": _self_compare(1) for kind in _SORT_KINDS},
}
_BY_FUNCTION: dict[str, CallCost] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _traversed),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _first(_TRAVERSAL)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first(2 * _TRAVERSAL)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip"), _first(_TRAVERSAL)),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _first(_TRAVERSAL)),
    **dict.fromkeys(("find", "findAll"), _regex),
    "join": _joined,
    "validate": _validation,
    "containsIP": _cidr_contains(parsed=False, masked=False),
    "containsCIDR": _cidr_contains(parsed=False, masked=True),
    "check": 350_000,
}
_BY_OVERLOAD: dict[str, CallCost] = {
    "starts_with_string": lambda args, _result: ceil(_inner_size(args[1]) * _TRAVERSAL),
    "ends_with_string": lambda args, _result: ceil(_inner_size(args[1]) * _TRAVERSAL),
    **dict.fromkeys(("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _first(_TRAVERSAL)),
    "in_list": lambda args, _result: _inner_size(args[1]),
    **dict.fromkeys(
        [
            f"{order}_{kind}"
            for order in ("less", "less_equals", "greater", "greater_equals")
            for kind in ("string", "bytes")
        ],
        _smaller,
    ),
    "add_string": _concatenation,
    "add_bytes": _concatenation,
    "matches": _regex,
    "matches_string": _regex,
    "contains_string": _contains,
}
_EXACT: dict[str, CallCost] = {
    "cidr_ip": 1,
    "cidr_contains_ip_string": _cidr_contains(parsed=True, masked=False),
    "cidr_contains_cidr_string": _cidr_contains(parsed=True, masked=True),
}


def call_cost(function: str, overload: str) -> CallCost:
    """Return the cost of a call.

    Args:
        function: The name of the function.
        overload: The identifier of the overload, empty if the types leave several.
    """
    for table, key in (
        (_BY_OVERLOAD_FIRST, overload),
        (_EXACT, overload),
        (_BY_FUNCTION, function),
        (_BY_OVERLOAD, overload),
    ):
        if key in table:
            return table[key]
    return 1
