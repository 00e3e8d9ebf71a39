"""Rows of the table of CEL's functions: name, overloads, implementation and cost; and the frame of an evaluation.

The overloads are those of Kubernetes' environment for stored expressions (k8s.io/apiserver/pkg/cel, which extends
cel-go's), in the order in which cel-go tries them; the parity program compares them with the reference's. Costs are
those of cel-go's tracker and Kubernetes' estimator (pkg/cel/library). An error has size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

from scheduler_core.cel.problems import AbortedError, CostLimitError
from scheduler_core.cel.value_types import Type, parse_type
from scheduler_core.cel.values import KUBERNETES_TYPES, MISSING, Duration, Mapping, Optional, Timestamp, go_type
from scheduler_core.step_counter import StepCounter

COST_LIMIT = 1_000_000
LIST_COST = 10
TRAVERSAL = 0.1
# Steps that evaluation does beside those that the reference's cost counts, such as copies of lists.
_MAX_WORK = 30_000_000
_COST_PER_STEP, _WORK_PER_STEP = 32, 500
_COST_BETWEEN_CHECKS, _WORK_BETWEEN_CHECKS = 8_000, 125_000


class Frame:
    """State of one evaluation.

    Attributes:
        work: Elements and characters processed so far that the reference does not count.
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

    def charge(self, amount: int) -> None:
        """Add to the cost; raise CostLimitError or, if the attempt took too many steps, AttemptLimitError."""
        self.cost += amount
        if self.cost > self.cost_to_check:
            self.check()

    def add_work(self, amount: int) -> None:
        """Count elements and characters; raise as :meth:`charge`."""
        self.work += amount
        if self.work > self._work_to_check:
            self.check()

    def check(self) -> None:
        """Count the steps since the last check; raise as :meth:`charge`."""
        if self.cost > COST_LIMIT or self.work > _MAX_WORK:
            raise CostLimitError
        if self._steps is not None:
            self.cost_to_check = min(self.cost + _COST_BETWEEN_CHECKS, COST_LIMIT)
            self._work_to_check = min(self.work + _WORK_BETWEEN_CHECKS, _MAX_WORK)
            self.count_steps(self._steps)

    def count_steps(self, steps: StepCounter) -> None:
        """Count the steps that were not counted yet; raise AttemptLimitError if the attempt took too many."""
        total = self.cost // _COST_PER_STEP + self.work // _WORK_PER_STEP
        # The reference takes the cost of a test of presence back.
        if total > self._counted:
            uncounted, self._counted = total - self._counted, total
            steps.spend_stored(uncounted)


# -- costs ----------------------------------------------------------------------------------------------------------

CallCost = int | Callable[[Sequence[Any], Any], int]
"""The cost of a call, or a function of its arguments and result."""

ERROR_VALUE: Any = type("ErrorValue", (), {"__slots__": ()})()
"""Stands for an argument or result whose evaluation failed."""


def _size(value: Any) -> int:
    """Return the size of a value: characters, bytes, elements or entries, 1 for all other types."""
    return len(value) if isinstance(value, (str, bytes, tuple, Mapping)) else getattr(value, "cel_size", 1)


def _inner_size(value: Any) -> int:
    while type(value) is Optional and value.value is not MISSING:
        value = value.value
    return _size(value)


def _allocated(elements: float) -> int:
    return int(elements) + 1 + LIST_COST


def first(factor: float) -> CallCost:
    """Return the cost of passes over the first argument."""
    return lambda args, _result: ceil(_size(args[0]) * factor)


def second(factor: float) -> CallCost:
    """Return the cost of passes over the second argument."""
    return lambda args, _result: ceil(_inner_size(args[1]) * factor)


def searched(added: float, factor: float) -> CallCost:
    """Return the cost of a search in a text, whose size is increased by *added*, for a text or pattern."""
    return lambda args, _result: ceil((added + _inner_size(args[0])) * TRAVERSAL) * ceil(_inner_size(args[1]) * factor)


REGEX = searched(1.0, 0.25)


def smaller(args: Sequence[Any], _result: Any) -> int:
    """Return the cost of a comparison up to the end of the smaller argument."""
    return ceil(min(_inner_size(args[0]), _inner_size(args[1])) * TRAVERSAL)


def equated(args: Sequence[Any], result: Any) -> int:
    """Return the cost of ``==``."""
    return 1 if isinstance(args[0], KUBERNETES_TYPES) else smaller(args, result)


def concatenated(args: Sequence[Any], _result: Any) -> int:
    """Return the cost of a pass over both arguments."""
    return ceil((_inner_size(args[0]) + _inner_size(args[1])) * TRAVERSAL)


def joined(_args: Sequence[Any], result: Any) -> int:
    """Return the cost of two passes over the result."""
    return ceil(_size(result) * 2 * TRAVERSAL)


def traversed(args: Sequence[Any], _result: Any) -> int:
    """Return the cost of a pass over the first argument and its elements."""
    return _traversal(args[0])


def _traversal(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        encoded = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        return int(len(encoded) * TRAVERSAL)
    if type(value) is tuple:
        return sum([_traversal(element) for element in value])
    if isinstance(value, Mapping):
        return sum([_traversal(key) + _traversal(value.find(key)) for key in value.iterate()])
    return 1


def cidr_contains(*, parsed: bool = False, masked: bool = False) -> CallCost:
    """Return the cost of a test if a CIDR contains an address, or a CIDR (*masked*), which may be *parsed* first."""

    def cost(args: Sequence[Any], _result: Any) -> int:
        width, text_size = _size(args[0]), _size(args[1]) if parsed else 0
        mask = ceil(width * TRAVERSAL) + 1 if masked else 0
        return ceil(2 * width * TRAVERSAL) + mask + ceil(text_size * TRAVERSAL)

    return cost


def validation(args: Sequence[Any], _result: Any) -> int:
    """Return the cost of a match of a named format."""
    pattern_size: int | None = getattr(args[0], "max_pattern_size", None)
    return 1 if pattern_size is None else ceil((1.0 + _size(args[1])) * TRAVERSAL) * ceil(pattern_size * 0.25)


def result_list(_args: Sequence[Any], result: Any) -> int:
    return _allocated(_size(result))


def flattened(args: Sequence[Any], _result: Any) -> int:
    """Return the cost of a list that is flattened by a number of levels."""
    depth = args[1] if len(args) > 1 and type(args[1]) is int else 1
    return _allocated(_size(args[0]) * float(depth if depth >= 0 else 1))


def sets(factor: int) -> CallCost:
    """Return the cost of comparisons of all elements of two lists."""
    return lambda args, _result: 1 + int(_size(args[0]) * _size(args[1]) * factor)


def self_compared(index: int) -> CallCost:
    """Return the cost of the comparison of all elements of the list that is argument *index* with each other."""

    def cost(args: Sequence[Any], _result: Any) -> int:
        elements = args[index]
        if type(elements) is not tuple:
            name = "*types.Err" if elements is ERROR_VALUE else go_type(elements)
            addable = isinstance(elements, (int, float, str, bytes, Duration, Timestamp)) and type(elements) is not bool
            text = f"{name} is not traits.Lister: missing method {'Contains' if addable else 'Add'}"
            raise AbortedError(f"internal error: interface conversion: {text}")
        count = len(elements)
        return _allocated(count * count * (2.0 + TRAVERSAL if elements and type(elements[0]) in (str, bytes) else 2.0))

    return cost


# -- rows -----------------------------------------------------------------------------------------------------------

Implementation = Callable[..., Any]
"""Takes the evaluated arguments and the frame."""


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    """One signature of a function.

    Attributes:
        run: The implementation; None if calls fail, or if that of the function serves all overloads.
        cost: The cost if this is the only overload that matches by type, None for that of the function.
    """

    member: bool
    args: tuple[Type, ...]
    result: Type
    params: tuple[Type, ...]
    run: Implementation | None
    cost: CallCost | None


@dataclass(frozen=True, eq=False)
class Function:
    """A function or operator; one row of the table, or all rows of its name.

    Attributes:
        rows: Signatures, their implementation, and the cost if one of these overloads is the only one that matches.
        run: Implementation for all overloads, which checks types itself; None if the overloads have one each.
        cost: The cost if no overload has its own.
    """

    name: str
    rows: tuple[tuple[str, Implementation | None, CallCost | None], ...]
    run: Implementation | None = None
    cost: CallCost = 1

    @cached_property
    def overloads(self) -> tuple[Overload, ...]:
        """The overloads, in the order in which they are tried; parsed when the first expression uses the function."""
        return tuple(
            [
                _overload(form.strip(), signature.partition(" -> ")[2], run, cost)
                for signatures, run, cost in self.rows
                for signature in signatures.split(";")
                for form in signature.partition(" -> ")[0].split("|")
            ]
        )


def function(
    name: str,
    signatures: str,
    run: Implementation | None = None,
    cost: CallCost = 1,
    *,
    exact: CallCost | None = None,
) -> Function:
    """Return a row of the table; rows of one name follow each other.

    Args:
        signatures: Signatures such as ``(int) -> bool; string.(int) | string.() -> string``.
        exact: The cost of a call if one of these overloads is the only one that matches by type.
    """
    return Function(name, ((signatures, run, exact),), cost=cost)


def operator(name: str, signatures: str, run: Implementation, exact: CallCost | None = None) -> Function:
    """Return a row of an operator or function whose implementation serves all overloads and checks types itself."""
    return Function(name, ((signatures, None, exact),), run)


def merged(*rows: Function) -> dict[str, Function]:
    """Return the rows by name; rows of one name become one, in their order."""
    functions: dict[str, Function] = {}
    for row in rows:
        known = functions.get(row.name)
        functions[row.name] = replace(known, rows=known.rows + row.rows) if known else row
    return functions


def _overload(form: str, result: str, run: Implementation | None, cost: CallCost | None) -> Overload:
    target, dot, arguments = form.rpartition(".(")
    args = parse_type(f"arguments{'(' if dot else ''}{arguments}").params
    if target:
        args = (parse_type(target), *args)
    kind = parse_type(result)
    return Overload(bool(target), args, kind, tuple(dict.fromkeys(_params((*args, kind)))), run, cost)


def _params(kinds: tuple[Type, ...]) -> list[Type]:
    return [param for kind in kinds for param in ([kind] if kind.kind == "param" else _params(kind.params))]
