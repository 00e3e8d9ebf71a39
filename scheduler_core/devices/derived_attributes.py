"""Derived attributes: values that expressions of a request compute for a device, for constraints to compare.

Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1 ``structured/internal/experimental/allocator_experimental.go``
(``lookupAttribute``). An expression that fails does so only if a constraint reads its value.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from msgspec import Struct

from scheduler_core.cel.device_selector import (
    AttributeValue,
    DerivedExpression,
    Scalar,
    SelectorCompileError,
    SelectorRuntimeError,
    Version,
    compile_derived_attribute,
)
from scheduler_core.devices.records import SelectedFacts
from scheduler_core.devices.selector_cache import Reads, device_facts
from scheduler_core.model.devices import DeviceAttribute

_MAX_EXPRESSIONS = 4096
_MAX_VALUES = 500_000


class DerivationFailure(Struct, gc=False, frozen=True):
    """Why an expression has no value for a device.

    Attributes:
        text: The error.
        is_compile_error: Whether the expression does not compile, and so has no value for any device.
    """

    text: str
    is_compile_error: bool

    def message(self, attribute: str, device: str) -> str:
        """Return the message of the scheduling attempt.

        Args:
            attribute: Name of the attribute.
            device: ``driver/pool/device``.
        """
        if self.is_compile_error:
            return f"compile derived attribute {attribute} failed: {self.text}"
        return f"evaluate derived attribute {attribute} on device {device} failed: {self.text}"


Derived = DeviceAttribute | DerivationFailure


class _Values:
    """Values of one expression, by what it reads of a device; by the number of its facts if that is not known."""

    __slots__ = ("by_device", "expression")

    def __init__(self, expression: DerivedExpression | DerivationFailure) -> None:
        self.expression = expression
        self.by_device: dict[Hashable, Derived] = {}


class DerivedAttributes:
    """Compiled expressions and their values.

    Args:
        max_expressions: Number of expressions with stored values; the one used longest ago is evicted.
        max_values: Number of values of each expression.
    """

    def __init__(self, max_expressions: int = _MAX_EXPRESSIONS, max_values: int = _MAX_VALUES) -> None:
        self._max_expressions = max_expressions
        self._max_values = max_values
        self._values: OrderedDict[str, _Values] = OrderedDict()
        self.evaluations = 0
        """Number of evaluations of expressions."""

    def value(self, expression: str, facts: SelectedFacts) -> Derived:
        """Return the value of an expression for a device, or why there is none."""
        values = self._of(expression)
        compiled = values.expression
        if isinstance(compiled, DerivationFailure):
            return compiled
        key = facts.number if compiled.reads is None else facts.projection(compiled.reads)
        found = values.by_device.get(key)
        if found is None:
            if len(values.by_device) >= self._max_values:
                values.by_device.clear()
            found = values.by_device[key] = self._evaluated(compiled, facts)
        return found

    def reads(self, expression: str) -> Reads:
        """Return what an expression reads of a device; None if that depends on it."""
        compiled = self._of(expression).expression
        return frozenset() if isinstance(compiled, DerivationFailure) else compiled.reads

    def _of(self, expression: str) -> _Values:
        values = self._values.get(expression)
        if values is None:
            try:
                values = _Values(compile_derived_attribute(expression))
            except SelectorCompileError as problem:
                values = _Values(DerivationFailure(str(problem), is_compile_error=True))
            self._values[expression] = values
            if len(self._values) > self._max_expressions:
                self._values.popitem(last=False)
        else:
            self._values.move_to_end(expression)
        return values

    def _evaluated(self, compiled: DerivedExpression, facts: SelectedFacts) -> Derived:
        self.evaluations += 1
        try:
            return _attribute(compiled.value(device_facts(facts)))
        except SelectorRuntimeError as problem:
            return DerivationFailure(str(problem), is_compile_error=False)


def _attribute(value: AttributeValue) -> DeviceAttribute:
    if isinstance(value, tuple):
        plain: dict[str, Any] = {f"{_kind(value[0])}_values": tuple(map(_plain, value))} if value else {}
    else:
        plain = {f"{_kind(value)}_value": _plain(value)}
    return DeviceAttribute(**plain)


def _plain(value: Scalar) -> bool | int | str:
    return value.text if isinstance(value, Version) else value


def _kind(value: Scalar) -> str:
    return {Version: "version", bool: "bool", int: "int", str: "string"}[type(value)]
