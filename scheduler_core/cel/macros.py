"""Expansion of CEL's macros into comprehensions and calls.

Expanded nodes carry the position of the macro call, as in cel-go.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.cel import syntax_tree as ast

_ACCUMULATOR = "@result"
_SORT_INPUT = "@__sortBy_input__"
_SIMPLE_NAME = "argument must be a simple name"
_IDENTIFIER = "argument is not an identifier"

_Macro = Callable[[int, ast.Node, list[ast.Node]], ast.Node | None]


class MacroError(Exception):
    """The arguments of a macro are not those that it expects."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def expand(offset: int, function: str, args: list[ast.Node], target: ast.Node | None) -> ast.Node | None:
    """Return the expansion of a call, None if the call is no macro.

    Raises:
        MacroError: The call is a macro with wrong arguments.
    """
    if target is None:
        return _has(offset, args[0]) if function == "has" and len(args) == 1 else None
    macro, counts = _MACROS.get(function, (None, ()))
    return macro(offset, target, args) if macro is not None and len(args) in counts else None


def _has(offset: int, operand: ast.Node) -> ast.Node:
    if type(operand) is not ast.Select:
        raise MacroError(
            operand.offset if type(operand) is not ast.Ident else offset, "invalid argument to has() macro"
        )
    return ast.Select(offset, operand.operand, operand.field, test_only=True)


def _variable(node: ast.Node, message: str) -> str:
    if type(node) is not ast.Ident:
        raise MacroError(node.offset, message)
    return node.name


def _variables(args: list[ast.Node], message: str) -> list[str]:
    names = [_variable(node, message) for node in args]
    if len(names) == 2 and names[0] == names[1]:
        raise MacroError(args[1].offset, f"duplicate variable name: {names[0]}")
    for name, node in zip(names, args, strict=True):
        if name in (_ACCUMULATOR, "__result__"):
            raise MacroError(node.offset, "iteration variable overwrites accumulator variable")
    return names


def _fold(
    target: ast.Node,
    names: list[str],
    initial: ast.Node,
    step: ast.Node,
    *,
    condition: ast.Node | None = None,
    result: ast.Node | None = None,
) -> ast.Node:
    """Return a comprehension over all elements whose result is the accumulator, unless others are given."""
    offset = initial.offset
    return ast.Comprehension(
        offset=offset,
        iter_range=target,
        iter_var=names[0],
        iter_var2=names[1] if len(names) > 1 else "",
        accumulator=_ACCUMULATOR,
        initial=initial,
        condition=condition or ast.Literal(offset, value=True),
        step=step,
        result=result or ast.Ident(offset, _ACCUMULATOR),
    )


def _quantifier(kind: str) -> _Macro:
    def expand_quantifier(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
        names = _variables(args[:-1], _SIMPLE_NAME)
        accumulator, other = ast.Ident(offset, _ACCUMULATOR), ast.Ident(offset, _ACCUMULATOR)
        if kind == "exists_one":
            added = ast.Call(offset, "_+_", [accumulator, ast.Literal(offset, 1)])
            step = ast.Call(offset, "_?_:_", [args[-1], added, other])
            result = ast.Call(offset, "_==_", [ast.Ident(offset, _ACCUMULATOR), ast.Literal(offset, 1)])
            return _fold(target, names, ast.Literal(offset, 0), step, result=result)
        guard = accumulator if kind == "all" else ast.Call(offset, "!_", [accumulator])
        step = ast.Call(offset, "_&&_" if kind == "all" else "_||_", [other, args[-1]])
        condition = ast.Call(offset, "@not_strictly_false", [guard])
        return _fold(target, names, ast.Literal(offset, kind == "all"), step, condition=condition)

    return expand_quantifier


def _collected(target: ast.Node, args: list[ast.Node], names: list[str], initial: ast.Node, step: ast.Node) -> ast.Node:
    """Return a fold that adds to a list or map, for the elements that meet the condition between names and value."""
    if len(args) > len(names) + 1:
        step = ast.Call(initial.offset, "_?_:_", [args[len(names)], step, ast.Ident(initial.offset, _ACCUMULATOR)])
    return _fold(target, names, initial, step)


def _to_list(variables: int, message: str) -> _Macro:
    def expand_mapping(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
        names = _variables(args[:variables], message)
        step = ast.Call(offset, "_+_", [ast.Ident(offset, _ACCUMULATOR), ast.ListLiteral(offset, [args[-1]])])
        return _collected(target, args, names, ast.ListLiteral(offset, []), step)

    return expand_mapping


def _to_map(*, entries: bool) -> _Macro:
    def expand_transform(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
        names = _variables(args[:2], _SIMPLE_NAME)
        inserted = [args[-1]] if entries else [ast.Ident(offset, names[0]), args[-1]]
        step = ast.Call(offset, "cel.@mapInsert", [ast.Ident(offset, _ACCUMULATOR), *inserted])
        return _collected(target, args, names, ast.MapLiteral(offset, []), step)

    return expand_transform


_map = _to_list(1, _IDENTIFIER)


def _filter(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node | None:
    return _map(offset, target, [*args, args[0]])


def _binding(offset: int, name: str, value: ast.Node, result: ast.Node) -> ast.Comprehension:
    return ast.Comprehension(
        offset=offset,
        iter_range=ast.ListLiteral(offset, []),
        iter_var="#unused",
        accumulator=name,
        initial=value,
        condition=ast.Literal(offset, value=False),
        step=ast.Ident(offset, name),
        result=result,
    )


def _bind(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node | None:
    if type(target) is not ast.Ident or target.name != "cel":
        return None
    name = _variable(args[0], "cel.bind() variable names must be simple identifiers")
    return _binding(offset, name, args[1], args[2])


def _optional_map(function: str) -> _Macro:
    def expand_optional(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
        name = _variable(args[0], f"{function}() variable name must be a simple identifier")
        result: ast.Node = _binding(offset, name, ast.Call(offset, "value", [], target), args[1])
        if function == "optMap":
            result = ast.Call(offset, "optional.of", [result])
        present = ast.Call(offset, "hasValue", [], target)
        return ast.Call(offset, "_?_:_", [present, result, ast.Call(offset, "optional.none", [])])

    return expand_optional


def _sort_by(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
    if type(target) not in (ast.Ident, ast.Select, ast.ListLiteral, ast.Comprehension, ast.Call):
        raise MacroError(
            target.offset, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    _variable(args[0], _SIMPLE_NAME)
    keys = _map(offset, ast.Ident(offset, _SORT_INPUT), args)
    assert keys is not None
    call = ast.Call(offset, "@sortByAssociatedKeys", [keys], ast.Ident(offset, _SORT_INPUT))
    return _binding(offset, _SORT_INPUT, target, call)


# By name: the expansion of a call with a target, and the numbers of arguments with which the call is a macro.
_MACROS: dict[str, tuple[_Macro | None, tuple[int, ...]]] = {
    "all": (_quantifier("all"), (2, 3)),
    "bind": (_bind, (3,)),
    "exists": (_quantifier("exists"), (2, 3)),
    "exists_one": (_quantifier("exists_one"), (2, 3)),
    "existsOne": (_quantifier("exists_one"), (2, 3)),
    "filter": (_filter, (2,)),
    "map": (_map, (2, 3)),
    "optFlatMap": (_optional_map("optFlatMap"), (2,)),
    "optMap": (_optional_map("optMap"), (2,)),
    "sortBy": (_sort_by, (2,)),
    "transformList": (_to_list(2, _SIMPLE_NAME), (3, 4)),
    "transformMap": (_to_map(entries=False), (3, 4)),
    "transformMapEntry": (_to_map(entries=True), (3, 4)),
}
