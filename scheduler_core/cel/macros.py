"""Expansion of CEL's macros into comprehensions and calls.

Expanded nodes carry the position of the macro call, as in cel-go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from scheduler_core.cel.syntax_tree import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select

ACCUMULATOR = "@result"
_OLD_ACCUMULATOR = "__result__"
_UNUSED = "#unused"
_SORT_INPUT = "@__sortBy_input__"


class MacroError(Exception):
    """The arguments of a macro are not those that it expects."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def expand(offset: int, function: str, args: list[Node], target: Node | None) -> Node | None:
    """Return the expansion of a call, None if the call is no macro.

    Raises:
        MacroError: The call is a macro with wrong arguments.
    """
    if target is None:
        if function == "has" and len(args) == 1:
            return _has(offset, args[0])
        return None
    macro = _RECEIVER_MACROS.get((function, len(args)))
    return None if macro is None else macro(offset, target, args)


def _has(offset: int, operand: Node) -> Node:
    if type(operand) is not Select:
        raise MacroError(operand.offset if type(operand) is not Ident else offset, "invalid argument to has() macro")
    return Select(offset, operand.operand, operand.field, test_only=True)


def _variable(node: Node, message: str) -> str:
    if type(node) is not Ident:
        raise MacroError(node.offset, message)
    return node.name


def _variables(args: list[Node], count: int, message: str) -> list[str]:
    names = [_variable(node, message) for node in args[:count]]
    if count == 2 and names[0] == names[1]:
        raise MacroError(args[1].offset, f"duplicate variable name: {names[0]}")
    for name, node in zip(names, args, strict=False):
        if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
            raise MacroError(node.offset, "iteration variable overwrites accumulator variable")
    return names


class _Iteration(NamedTuple):
    """What a comprehension runs over: the macro's offset, its target and the names of its variables."""

    offset: int
    target: Node
    names: list[str]


def _fold(over: _Iteration, *, initial: Node, condition: Node, step: Node, result: Node) -> Node:
    return Comprehension(
        over.offset,
        iter_range=over.target,
        iter_var=over.names[0],
        iter_var2=over.names[1] if len(over.names) > 1 else "",
        accumulator=ACCUMULATOR,
        initial=initial,
        condition=condition,
        step=step,
        result=result,
    )


def _collected(over: _Iteration, initial: Node, step: Node) -> Node:
    """Return a fold over all elements whose result is the accumulator."""
    always, result = Literal(over.offset, value=True), Ident(over.offset, ACCUMULATOR)
    return _fold(over, initial=initial, condition=always, step=step, result=result)


def _quantifier(kind: str, variables: int) -> Callable[[int, Node, list[Node]], Node]:
    def expand_quantifier(offset: int, target: Node, args: list[Node]) -> Node:
        names = _variables(args, variables, "argument must be a simple name")
        predicate = args[variables]
        result = Ident(offset, ACCUMULATOR)
        step_accumulator = Ident(offset, ACCUMULATOR)
        guard: Node = Ident(offset, ACCUMULATOR)
        if kind == "exists_one":
            added = Call(offset, "_+_", [Ident(offset, ACCUMULATOR), Literal(offset, 1)])
            step = Call(offset, "_?_:_", [predicate, added, step_accumulator])
            equal = Call(offset, "_==_", [result, Literal(offset, 1)])
            over = _Iteration(offset, target, names)
            always = Literal(offset, value=True)
            return _fold(over, initial=Literal(offset, 0), condition=always, step=step, result=equal)
        if kind == "exists":
            guard = Call(offset, "!_", [guard])
        condition = Call(offset, "@not_strictly_false", [guard])
        step = Call(offset, "_&&_" if kind == "all" else "_||_", [step_accumulator, predicate])
        initial = Literal(offset, kind == "all")
        return _fold(_Iteration(offset, target, names), initial=initial, condition=condition, step=step, result=result)

    return expand_quantifier


def _mapping(variables: int, *, filtered: bool, message: str) -> Callable[[int, Node, list[Node]], Node]:
    def expand_mapping(offset: int, target: Node, args: list[Node]) -> Node:
        names = _variables(args, variables, message)
        added = ListLiteral(offset, [args[-1]])
        step = Call(offset, "_+_", [Ident(offset, ACCUMULATOR), added])
        if filtered:
            step = Call(offset, "_?_:_", [args[variables], step, Ident(offset, ACCUMULATOR)])
        return _collected(_Iteration(offset, target, names), ListLiteral(offset, []), step)

    return expand_mapping


def _filter(offset: int, target: Node, args: list[Node]) -> Node:
    names = _variables(args, 1, "argument is not an identifier")
    added = Call(offset, "_+_", [Ident(offset, ACCUMULATOR), ListLiteral(offset, [args[0]])])
    step = Call(offset, "_?_:_", [args[1], added, Ident(offset, ACCUMULATOR)])
    return _collected(_Iteration(offset, target, names), ListLiteral(offset, []), step)


def _transform_map(*, filtered: bool, entries: bool) -> Callable[[int, Node, list[Node]], Node]:
    def expand_transform(offset: int, target: Node, args: list[Node]) -> Node:
        names = _variables(args, 2, "argument must be a simple name")
        inserted = [args[-1]] if entries else [Ident(offset, names[0]), args[-1]]
        step = Call(offset, "cel.@mapInsert", [Ident(offset, ACCUMULATOR), *inserted])
        if filtered:
            step = Call(offset, "_?_:_", [args[2], step, Ident(offset, ACCUMULATOR)])
        return _collected(_Iteration(offset, target, names), MapLiteral(offset, []), step)

    return expand_transform


def _binding(offset: int, name: str, value: Node, result: Node) -> Comprehension:
    return Comprehension(
        offset,
        iter_range=ListLiteral(offset, []),
        iter_var=_UNUSED,
        accumulator=name,
        initial=value,
        condition=Literal(offset, value=False),
        step=Ident(offset, name),
        result=result,
    )


def _bind(offset: int, target: Node, args: list[Node]) -> Node | None:
    if type(target) is not Ident or target.name != "cel":
        return None
    name = _variable(args[0], "cel.bind() variable names must be simple identifiers")
    return _binding(offset, name, args[1], args[2])


def _optional_map(function: str) -> Callable[[int, Node, list[Node]], Node]:
    def expand_optional(offset: int, target: Node, args: list[Node]) -> Node:
        name = _variable(args[0], f"{function}() variable name must be a simple identifier")
        result: Node = _binding(offset, name, Call(offset, "value", [], target), args[1])
        if function == "optMap":
            result = _namespaced(offset, "optional.of", [result])
        present = Call(offset, "hasValue", [], target)
        return Call(offset, "_?_:_", [present, result, _namespaced(offset, "optional.none", [])])

    return expand_optional


def _namespaced(offset: int, function: str, args: list[Node]) -> Call:
    return Call(offset, function, args)


def _sort_by(offset: int, target: Node, args: list[Node]) -> Node:
    if type(target) not in (Ident, Select, ListLiteral, Comprehension, Call):
        raise MacroError(
            target.offset, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    _variable(args[0], "argument must be a simple name")
    names = _variables(args, 1, "argument is not an identifier")
    added = Call(offset, "_+_", [Ident(offset, ACCUMULATOR), ListLiteral(offset, [args[1]])])
    keys = _collected(_Iteration(offset, Ident(offset, _SORT_INPUT), names), ListLiteral(offset, []), added)
    call = Call(offset, "@sortByAssociatedKeys", [keys], Ident(offset, _SORT_INPUT))
    return _binding(offset, _SORT_INPUT, target, call)


_RECEIVER_MACROS: dict[tuple[str, int], Callable[[int, Node, list[Node]], Node | None]] = {
    ("all", 2): _quantifier("all", 1),
    ("all", 3): _quantifier("all", 2),
    ("bind", 3): _bind,
    ("exists", 2): _quantifier("exists", 1),
    ("exists", 3): _quantifier("exists", 2),
    ("exists_one", 2): _quantifier("exists_one", 1),
    ("exists_one", 3): _quantifier("exists_one", 2),
    ("existsOne", 2): _quantifier("exists_one", 1),
    ("existsOne", 3): _quantifier("exists_one", 2),
    ("filter", 2): _filter,
    ("map", 2): _mapping(1, filtered=False, message="argument is not an identifier"),
    ("map", 3): _mapping(1, filtered=True, message="argument is not an identifier"),
    ("optFlatMap", 2): _optional_map("optFlatMap"),
    ("optMap", 2): _optional_map("optMap"),
    ("sortBy", 2): _sort_by,
    ("transformList", 3): _mapping(2, filtered=False, message="argument must be a simple name"),
    ("transformList", 4): _mapping(2, filtered=True, message="argument must be a simple name"),
    ("transformMap", 3): _transform_map(filtered=False, entries=False),
    ("transformMap", 4): _transform_map(filtered=True, entries=False),
    ("transformMapEntry", 3): _transform_map(filtered=False, entries=True),
    ("transformMapEntry", 4): _transform_map(filtered=True, entries=True),
}
