"""Unmet conditions: which parts of a selector a device does not meet, in words.

A selector is split at its top-level ``&&``. A comparison of one attribute or capacity with a constant is described by
its value and the required one; any other part by the values that it reads. Only explanations use this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scheduler_core.cel import syntax_tree as ast
from scheduler_core.cel.device_selector import (
    AttributeValue,
    DeviceFacts,
    DeviceSelector,
    SelectorCompileError,
    SelectorRuntimeError,
    Version,
    compile_conditions,
    compile_selector,
)

ATTRIBUTES, CAPACITY, DRIVER, MULTIPLE = "attributes", "capacity", "driver", "allowMultipleAllocations"
_WORDS = {
    "_==_": "must be {}",
    "_!=_": "must not be {}",
    "_>=_": "must be at least {}",
    "_>_": "must be more than {}",
    "_<=_": "must be at most {}",
    "_<_": "must be less than {}",
    "@in": "must be one of {}",
    "isGreaterThan": "must be more than {}",
    "isLessThan": "must be less than {}",
    "startsWith": "must start with {}",
    "endsWith": "must end with {}",
    "contains": "must contain {}",
    "matches": "must match {}",
}
_MIRRORED = {"_==_": "_==_", "_!=_": "_!=_", "_>=_": "_<=_", "_>_": "_<_", "_<=_": "_>=_", "_<_": "_>_"}
_OPPOSITE = {"_==_": "_!=_", "_!=_": "_==_", "_>=_": "_<_", "_>_": "_<=_", "_<=_": "_>_", "_<_": "_>=_"}
_SETTING = frozenset({"_==_", "_>=_", "_<=_", "@in"})
"""Operators that the value on their right side meets itself."""

Constant = bool | int | str | Version | tuple["Constant", ...]


@dataclass(frozen=True, slots=True)
class Property:
    """What a part of a selector reads: the driver, or an attribute or capacity by domain and name."""

    kind: str
    domain: str = ""
    name: str = ""

    def label(self, driver: str) -> str:
        """Return the name to display; the domain of the driver is left out."""
        if not self.name:
            return self.kind
        return self.name if self.domain in ("", driver) else f"{self.domain}/{self.name}"


@dataclass(frozen=True, slots=True)
class UnmetCondition:
    """A part of a selector that a device does not meet.

    Attributes:
        text: Description, such as ``model is a100, must be h100``.
        read: What the part compares; None if it is no comparison of one property with a constant.
        suitable: A value of ``read`` that meets the part; None if that is not known.
    """

    text: str
    read: Property | None = None
    suitable: Constant | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """A part with its selector, and the comparison that it is, if it is one."""

    selector: DeviceSelector
    comparison: _Comparison | None


@dataclass(frozen=True, slots=True)
class _Comparison:
    read: Property
    words: str
    suitable: Constant | None


def unmet_conditions(expression: str, facts: DeviceFacts) -> tuple[UnmetCondition, ...]:
    """Return the parts of a selector that a device does not meet, in order.

    Args:
        facts: The device, which does not match.

    Returns:
        At least one condition. An expression that does not compile or that fails is described by its error.
    """
    try:
        parts = _parts(expression)
    except SelectorCompileError as problem:
        return (UnmetCondition(f"the selector does not compile: {problem}"),)
    found: list[UnmetCondition] = []
    for part in parts:
        try:
            if part.selector.matches(facts):
                continue
            found.append(_described(part, facts))
        except SelectorRuntimeError as problem:
            if part.comparison is not None and _value(part.comparison.read, facts) is None:
                found.append(_described(part, facts))
            else:
                found.append(UnmetCondition(f"the selector fails: {problem}"))
    return tuple(found) or (UnmetCondition("the selector does not match"),)


def selector_reads(expressions: Sequence[str]) -> ast.Reads:
    """Return the pairs of domain and name that selectors read; None if they are not known."""
    found: frozenset[tuple[str, str]] = frozenset()
    for expression in expressions:
        try:
            reads = compile_selector(expression).reads
        except SelectorCompileError:
            continue
        if reads is None:
            return None
        found |= reads
    return found


@lru_cache(maxsize=256)
def _parts(expression: str) -> tuple[_Part, ...]:
    return tuple([_Part(selector, _comparison(tree)) for tree, selector in compile_conditions(expression)])


# -- comparisons ----------------------------------------------------------------------------------------------------


def _comparison(tree: ast.Node) -> _Comparison | None:
    """Return the comparison of one property with a constant that a part is; None for anything else."""
    if type(tree) is ast.Call and tree.function == "!_":
        return _negated(tree.args[0])
    read = _property(tree)
    if read is not None:
        return _Comparison(read, "must be true", suitable=True)
    if type(tree) is ast.Select and tree.test_only:
        read = _property(ast.Select(tree.offset, tree.operand, tree.field))
        return None if read is None else _Comparison(read, "", suitable=None)
    if type(tree) is not ast.Call:
        return None
    if tree.target is not None and len(tree.args) == 1 and tree.function in _WORDS:
        return _compared(tree.function, tree.target, tree.args[0])
    if len(tree.args) != 2:
        return None
    left, right = tree.args
    if tree.function == "@in":
        return _membership(left, right)
    ordered = _ordered(left) if _constant(right) == 0 else None
    if ordered is not None:
        return _compared(tree.function, *ordered)
    found = _compared(tree.function, left, right)
    if found is None and tree.function in _MIRRORED:
        found = _compared(_MIRRORED[tree.function], right, left)
    return found


def _negated(tree: ast.Node) -> _Comparison | None:
    read = _property(tree)
    if read is not None:
        return _Comparison(read, "must be false", suitable=False)
    if type(tree) is ast.Call and tree.function in _OPPOSITE:
        return _comparison(ast.Call(tree.offset, _OPPOSITE[tree.function], tree.args, tree.target))
    return None


def _membership(left: ast.Node, right: ast.Node) -> _Comparison | None:
    found = _compared("@in", left, right)
    if found is None and type(left) is ast.Literal and type(left.value) is str:
        # "name" in device.attributes["domain"]
        read = _property(ast.Call(left.offset, "_[_]", [right, left]))
        return None if read is None else _Comparison(read, "", suitable=None)
    return found


def _ordered(tree: ast.Node) -> tuple[ast.Node, ast.Node] | None:
    """Return both sides of ``x.compareTo(y)``."""
    if type(tree) is ast.Call and tree.function == "compareTo" and tree.target is not None and len(tree.args) == 1:
        return tree.target, tree.args[0]
    return None


def _compared(function: str, left: ast.Node, right: ast.Node) -> _Comparison | None:
    read, value = _property(left), _constant(right)
    if read is None or value is None or function not in _WORDS:
        return None
    suitable: Constant | None = None
    if function in _SETTING:
        suitable = value[0] if isinstance(value, tuple) and value else value
    return _Comparison(read, _WORDS[function].format(_text(value)), suitable)


def _constant(tree: ast.Node) -> Constant | None:
    if type(tree) is ast.Literal and isinstance(tree.value, bool | int | str):
        return tree.value
    if (
        type(tree) is ast.Call
        and tree.function in ("quantity", "semver")
        and tree.target is None
        and len(tree.args) == 1
    ):
        inner = _constant(tree.args[0])
        return Version(inner) if tree.function == "semver" and isinstance(inner, str) else inner
    if type(tree) is ast.ListLiteral and tree.elements:
        values = [_constant(element) for element in tree.elements]
        known = tuple(value for value in values if value is not None)
        return known if len(known) == len(values) else None
    return None


def _property(tree: ast.Node) -> Property | None:
    """Return the property that a path of selections from ``device`` reads."""
    path: list[str] = []
    while type(tree) is not ast.Ident:
        step = _step(tree)
        if step is None:
            return None
        tree, key = step
        path.insert(0, key)
    if tree.name != "device":
        return None
    match path:
        case [("driver" | "allowMultipleAllocations") as field]:
            return Property(field)
        case [("attributes" | "capacity") as field, domain, name]:
            return Property(field, domain, name)
    return None


def _step(tree: ast.Node) -> tuple[ast.Node, str] | None:
    if type(tree) is ast.Select and not tree.test_only:
        return tree.operand, tree.field
    if type(tree) is ast.Call and tree.function in ast.SELECTIONS:
        key = ast.constant_key(tree)
        return None if key is None else (tree.args[0], key)
    if type(tree) is ast.Call and tree.function == "orValue" and tree.target is not None:
        return _step(tree.target)
    return None


# -- words ----------------------------------------------------------------------------------------------------------


def _described(part: _Part, facts: DeviceFacts) -> UnmetCondition:
    found = part.comparison
    if found is not None:
        state = _state(found.read, facts)
        words = f", {found.words}" if found.words else ""
        return UnmetCondition(state + words, found.read, found.suitable)
    reads = part.selector.reads
    if not reads:
        return UnmetCondition("the selector does not match")
    states = [_state(_read_property(domain, name, facts), facts) for domain, name in sorted(reads)]
    return UnmetCondition(", ".join(states))


def _read_property(domain: str, name: str, facts: DeviceFacts) -> Property:
    read = Property(CAPACITY, domain, name)
    return read if _value(read, facts) is not None else Property(ATTRIBUTES, domain, name)


def _state(read: Property, facts: DeviceFacts) -> str:
    value, label = _value(read, facts), read.label(facts.driver)
    return f"{label} is not set" if value is None else f"{label} is {_text(value)}"


def _value(read: Property, facts: DeviceFacts) -> AttributeValue | None:
    if read.kind == DRIVER:
        return facts.driver
    if read.kind == MULTIPLE:
        return facts.allow_multiple_allocations
    values = facts.attributes if read.kind == ATTRIBUTES else facts.capacity
    found = values.get(f"{read.domain}/{read.name}")
    return values.get(read.name) if found is None and read.domain == facts.driver else found


def _text(value: Constant | AttributeValue) -> str:
    if isinstance(value, Version):
        return value.text
    if isinstance(value, tuple):
        elements: Sequence[Constant | AttributeValue] = value
        return ", ".join(map(_text, elements))
    return str(value).lower() if isinstance(value, bool) else str(value)
