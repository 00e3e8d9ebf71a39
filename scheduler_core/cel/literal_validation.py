"""Validation of literals that the type checker skips: durations, timestamps, patterns, mixed lists and maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from scheduler_core.cel.problems import EvaluationError, InvalidExpressionError, Problems
from scheduler_core.cel.regular_expressions import compile_pattern
from scheduler_core.cel.string_format import check_format
from scheduler_core.cel.syntax_tree import Call, ListLiteral, Literal, MapLiteral, Node, descendants
from scheduler_core.cel.timestamps import parse_duration, parse_timestamp
from scheduler_core.cel.value_types import Type


def validate(tree: Node, problems: Problems) -> None:
    """Record literals in a checked tree that are invalid where they stand."""
    exempt = _below_format(tree)
    for node in descendants(tree):
        if type(node) is Call:
            _validate_call(node, problems)
        elif type(node) is ListLiteral and id(node) not in exempt:
            _validate_list(node, problems)
        elif type(node) is MapLiteral and id(node) not in exempt:
            _validate_map(node, problems)


def _below_format(tree: Node) -> set[int]:
    """Return the identities of nodes in calls of ``format``, whose arguments may have different types."""
    return {
        id(inner)
        for node in descendants(tree)
        if type(node) is Call and node.function == "format"
        for inner in descendants(node)
    }


def _element_type(node: Node, *, optional: bool) -> Type:
    kind = cast("Type", node.type)
    if optional and not kind.params:
        # The reference panics here.
        raise InvalidExpressionError("compilation failed: optional element or entry of unknown type")
    return kind.params[0] if optional else kind


def _validate_list(node: ListLiteral, problems: Problems) -> None:
    first: Type | None = None
    for index, element in enumerate(node.elements):
        kind = _element_type(element, optional=index in node.optional)
        if first is not None and kind != first:
            problems.report(element.offset, f"expected type '{first}' but found '{kind}'")
            return
        first = first or kind


def _validate_map(node: MapLiteral, problems: Problems) -> None:
    first: tuple[Type, Type] | None = None
    for entry in node.entries:
        kinds = (_element_type(entry.key, optional=False), _element_type(entry.value, optional=entry.optional))
        if first is not None:
            for part, expected, kind in zip((entry.key, entry.value), first, kinds, strict=True):
                if kind != expected:
                    problems.report(part.offset, f"expected type '{expected}' but found '{kind}'")
        first = first or kinds


def _is_duration(text: str) -> bool:
    return parse_duration(text) is not None


def _is_timestamp(text: str) -> bool:
    return parse_timestamp(text) is not None


def _is_pattern(text: str) -> bool:
    try:
        compile_pattern(text)
    except EvaluationError:
        return False
    return True


_RULES: dict[str, tuple[int, Callable[[str], bool]]] = {
    "duration": (0, _is_duration),
    "timestamp": (0, _is_timestamp),
    "matches": (0, _is_pattern),
}


def _validate_format(node: Call, problems: Problems) -> None:
    template, arguments = node.target, node.args[0] if node.args else None
    if type(template) is not Literal or type(template.value) is not str or type(arguments) is not ListLiteral:
        return
    kinds = [cast("Type", element.type).name for element in arguments.elements]
    message, index = check_format(template.value, kinds)
    if message:
        problems.report(arguments.elements[index].offset if index >= 0 else node.offset, message)


def _validate_call(node: Call, problems: Problems) -> None:
    if node.function == "format":
        _validate_format(node, problems)
    rule = _RULES.get(node.function)
    if rule is None or len(node.args) <= rule[0]:
        return
    argument = node.args[rule[0]]
    if type(argument) is Literal and type(argument.value) is str and not rule[1](argument.value):
        problems.report(argument.offset, f"invalid {node.function} argument")
