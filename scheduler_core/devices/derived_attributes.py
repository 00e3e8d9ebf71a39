"""Derived attributes: values that expressions of a request compute for a device, for constraints to compare.

Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1 ``structured/internal/experimental/allocator_experimental.go``
(``lookupAttribute``). An expression that fails does so only if a constraint reads its value.
"""

from __future__ import annotations

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
from scheduler_core.devices.selector_cache import (
    MAX_VERDICT_BYTES,
    Reads,
    Store,
    device_facts,
    entry_bytes,
    expression_bytes,
)
from scheduler_core.devices.sized_cache import SizedCache
from scheduler_core.model.devices import DeviceAttribute
from scheduler_core.step_counter import StepCounter


class DerivationFailure(Struct, gc=False, frozen=True):
    """Why an expression has no value for a device.

    Attributes:
        text: The error.
        is_compile_error: Whether the expression does not compile, and so has no value for any device.
    """

    text: str
    is_compile_error: bool

    def message(self, attribute: str, device: str) -> str:
        """Return the message of the scheduling attempt."""
        if self.is_compile_error:
            return f"compile derived attribute {attribute} failed: {self.text}"
        return f"evaluate derived attribute {attribute} on device {device} failed: {self.text}"


_DERIVED = None
"""Begins the keys of derived attributes; those of selectors are texts and tuples of texts."""

Derived = DeviceAttribute | DerivationFailure


class _Values:
    """Values of one expression, by what it reads of a device; by the number of its facts if that is not known."""

    __slots__ = ("by_device", "expression", "size")

    def __init__(self, expression: DerivedExpression | DerivationFailure, size: int) -> None:
        self.expression = expression
        self.by_device: dict[Hashable, Derived] = {}
        self.size = size


class DerivedAttributes:
    """Compiled expressions and their values; those used longest ago are evicted.

    Args:
        store: Stores both; other caches may share it, so that one bound holds for all.
    """

    def __init__(self, store: Store | None = None, steps: StepCounter | None = None) -> None:
        self._steps = StepCounter() if steps is None else steps
        self._store = SizedCache(MAX_VERDICT_BYTES) if store is None else store
        self.evaluations = 0
        """Number of evaluations of expressions."""

    def value(self, expression: str, facts: SelectedFacts) -> Derived:
        """Return the value of an expression for a device, or why there is none.

        Raises:
            AttemptLimitError: The attempt took more steps than it may.
        """
        values = self._of(expression)
        compiled = values.expression
        if isinstance(compiled, DerivationFailure):
            return compiled
        key = facts.number if compiled.reads is None else facts.projection(compiled.reads)
        found = values.by_device.get(key)
        if found is None:
            found = values.by_device[key] = self._evaluated(compiled, facts)
            values.size += entry_bytes(compiled.reads) + _value_bytes(found)
            self._store.put((_DERIVED, expression), values, values.size)
        return found

    def reads(self, expression: str) -> Reads:
        """Return what an expression reads of a device; None if that depends on it."""
        compiled = self._of(expression).expression
        return frozenset() if isinstance(compiled, DerivationFailure) else compiled.reads

    def _of(self, expression: str) -> _Values:
        values: _Values | None = self._store.get((_DERIVED, expression))
        if values is None:
            compiled: DerivedExpression | DerivationFailure
            try:
                compiled = compile_derived_attribute(expression, self._steps)
            except SelectorCompileError as problem:
                compiled = DerivationFailure(str(problem), is_compile_error=True)
            text = compiled.text if isinstance(compiled, DerivationFailure) else ""
            values = _Values(compiled, expression_bytes(expression) + len(text))
            self._store.put((_DERIVED, expression), values, values.size)
        return values

    def _evaluated(self, compiled: DerivedExpression, facts: SelectedFacts) -> Derived:
        self.evaluations += 1
        try:
            return _attribute(compiled.value(device_facts(facts), self._steps))
        except SelectorRuntimeError as problem:
            return DerivationFailure(str(problem), is_compile_error=False)


def _value_bytes(value: Derived) -> int:
    if isinstance(value, DerivationFailure):
        return len(value.text)
    texts = (value.string_value, value.version_value, *value.string_values, *value.version_values)
    return sum(len(text) for text in texts if text) + 8 * (len(value.int_values) + len(value.bool_values))


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
