"""Verdicts of selectors and values of derived attributes, evaluated once for each list of expressions and device.

Devices are distinct by what the expressions read, if that is known. Devices with a unique serial number share a verdict
unless an expression reads it.

A list is evaluated in order; the first expression that does not match, or fails, ends it: errors of later expressions
stay unnoticed, as in kube-scheduler. A derived attribute that fails does so only if a constraint reads its value.

Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1 ``structured/internal/experimental/allocator_experimental.go``
(``lookupAttribute``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import Struct

from scheduler_core.cel.device_selector import (
    AttributeValue,
    DerivedExpression,
    DeviceFacts,
    DeviceSelector,
    Scalar,
    SelectorCompileError,
    SelectorRuntimeError,
    Version,
    compile_derived_attribute,
    compile_selector,
)
from scheduler_core.devices.records import SelectedFacts
from scheduler_core.model.devices import DeviceAttribute
from scheduler_core.step_counter import StepCounter

K = TypeVar("K")
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Entries by key, the one used longest ago first.

    Args:
        max_bytes: Largest sum of the sizes; the number of entries, if each has the size 1.

    Attributes:
        stored_bytes: Sum of the sizes.
    """

    __slots__ = ("_entries", "_max_bytes", "stored_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.stored_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return an entry, which is then the one used last; None if there is none."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Store an entry that is new, or has another size now; it is evicted itself if it exceeds the bound alone."""
        previous = self._entries.pop(key, None)
        if previous is not None:
            self.stored_bytes -= previous[1]
        self._entries[key] = (value, size)
        self.stored_bytes += size
        while self.stored_bytes > self._max_bytes:
            _, (_, evicted) = self._entries.popitem(last=False)
            self.stored_bytes -= evicted


Expressions = tuple[str, ...]
Reads = frozenset[tuple[str, str]] | None
"""Domains and names that expressions read; None if they cannot be known."""

Store = SizedCache[Hashable, Any]
"""Compiled selectors by expression, verdicts by their list of expressions; derived attributes by a pair."""

MAX_VERDICT_BYTES = 64 << 20
_EXPRESSION_BYTES = (2048, 256)
"""Size of a compiled expression: of each, and of each of its characters."""
_ENTRY_BYTES, _READ_BYTES = 256, 128
"""Size of a verdict or derived value, and of each attribute by which it is stored."""


class Verdict(Struct, gc=False, frozen=True):
    """Result of a list of expressions for a device.

    Attributes:
        index: The expression that does not match or that failed.
        compile_error: Text of the error if it does not compile.
        runtime_error: Text of the error if it failed for the device.
    """

    matches: bool
    index: int = 0
    compile_error: str = ""
    runtime_error: str = ""

    @property
    def is_error(self) -> bool:
        return bool(self.compile_error or self.runtime_error)

    def error_text(self, owner: str, device: str) -> str:
        """Return the message of an error.

        Args:
            owner: ``class NAME`` or ``claim NAMESPACE/NAME``.
        """
        if self.compile_error:
            return f"{owner}: selector #{self.index}: CEL compile error: {self.compile_error}"
        return f"{owner}: selector #{self.index} on device {device}: CEL runtime error: {self.runtime_error}"


MATCHES = Verdict(matches=True)


@dataclass(slots=True, eq=False)
class _Results(Generic[K, V]):
    """Results of one source, by what it reads of a device; by the number of its facts if that is not known.

    Attributes:
        source: A compiled expression, or what a list of expressions reads.
    """

    source: K
    size: int
    by_device: dict[Hashable, V] = field(default_factory=dict)


class _ExpressionCache:
    """Compiled expressions and their results; those used longest ago are evicted.

    Args:
        store: Stores both; other caches may share it, so that one bound holds for all.
    """

    def __init__(self, store: Store | None = None, steps: StepCounter | None = None) -> None:
        self.steps = StepCounter() if steps is None else steps
        self._store = SizedCache(MAX_VERDICT_BYTES) if store is None else store
        self.evaluations = 0
        """Number of evaluations of expressions."""


class SelectorCache(_ExpressionCache):
    """Compiled selectors and their verdicts."""

    def verdict(self, expressions: Expressions, facts: SelectedFacts) -> Verdict:
        """Return the verdict of a list of expressions for a device.

        Raises:
            AttemptLimitError: The attempt took more steps than it may.
        """
        if not expressions:
            return MATCHES
        verdicts: _Results[Reads, Verdict] | None = self._store.get(expressions)
        if verdicts is None:
            verdicts = _Results(self.reads(expressions), _ENTRY_BYTES + sum(map(len, expressions)))
        key = facts.number if verdicts.source is None else facts.projection(verdicts.source)
        found = verdicts.by_device.get(key)
        if found is None:
            found = verdicts.by_device[key] = self._evaluate(expressions, facts)
            verdicts.size += entry_bytes(verdicts.source) + len(found.compile_error) + len(found.runtime_error)
            self._store.put(expressions, verdicts, verdicts.size)
        return found

    def reads(self, expressions: Expressions) -> Reads:
        """Return what expressions read of a device, those that do not compile nothing; None if that depends on it."""
        reads: set[tuple[str, str]] = set()
        for selector in map(self._compile, expressions):
            if isinstance(selector, Verdict):
                continue
            if selector.reads is None:
                return None
            reads |= selector.reads
        return frozenset(reads)

    def _evaluate(self, expressions: Expressions, facts: SelectedFacts) -> Verdict:
        device: DeviceFacts | None = None
        for index, expression in enumerate(expressions):
            selector = self._compile(expression)
            if isinstance(selector, Verdict):
                return Verdict(matches=False, index=index, compile_error=selector.compile_error)
            self.evaluations += 1
            try:
                device = device_facts(facts) if device is None else device
                matches = selector.matches(device, self.steps)
            except SelectorRuntimeError as problem:
                return Verdict(matches=False, index=index, runtime_error=str(problem))
            if not matches:
                return Verdict(matches=False, index=index)
        return MATCHES

    def _compile(self, expression: str) -> DeviceSelector | Verdict:
        found: DeviceSelector | Verdict | None = self._store.get(expression)
        if found is None:
            try:
                found = compile_selector(expression, self.steps)
            except SelectorCompileError as problem:
                found = Verdict(matches=False, compile_error=str(problem))
            text = found.compile_error if isinstance(found, Verdict) else ""
            self._store.put(expression, found, expression_bytes(expression) + len(text))
        return found


def expression_bytes(expression: str) -> int:
    """Return the size of a compiled expression, which is rarely exceeded."""
    fixed, of_character = _EXPRESSION_BYTES
    return fixed + of_character * len(expression)


def entry_bytes(reads: Reads) -> int:
    """Return the size of a verdict or value that is stored by what it reads."""
    return _ENTRY_BYTES + _READ_BYTES * (0 if reads is None else len(reads))


def device_facts(facts: SelectedFacts) -> DeviceFacts:
    """Return what selectors can read of a device; raise SelectorRuntimeError if an attribute has no value."""
    return DeviceFacts(
        driver=facts.driver,
        allow_multiple_allocations=bool(facts.allow_multiple_allocations),
        attributes={name: _value(name, attribute) for name, attribute in facts.attributes.items()},
        capacity={name: str(capacity.value) for name, capacity in facts.capacity.items()},
    )


def _value(name: str, attribute: DeviceAttribute) -> AttributeValue:
    scalar = attribute.scalar
    if scalar is not None:
        kind, value = scalar
        return Version(str(value)) if kind == "version" else value
    if attribute.version_values:
        return tuple(map(Version, attribute.version_values))
    values = attribute.int_values or attribute.bool_values or attribute.string_values
    if not values:
        raise SelectorRuntimeError(f"attribute {name}: unsupported attribute value")
    return values


class DerivationFailure(Struct, gc=False, frozen=True):
    """Why an expression has no value for a device.

    Attributes:
        is_compile_error: Whether the expression does not compile, and so has no value for any device.
    """

    text: str
    is_compile_error: bool

    def message(self, attribute: str, device: str) -> str:
        if self.is_compile_error:
            return f"compile derived attribute {attribute} failed: {self.text}"
        return f"evaluate derived attribute {attribute} on device {device} failed: {self.text}"


_DERIVED = None
"""Begins the keys of derived attributes; those of selectors are texts and tuples of texts."""

Derived = DeviceAttribute | DerivationFailure


_Values = _Results[DerivedExpression | DerivationFailure, Derived]


class DerivedAttributes(_ExpressionCache):
    """Compiled expressions of derived attributes and their values."""

    def value(self, expression: str, facts: SelectedFacts) -> Derived:
        """Return the value of an expression for a device, or why there is none.

        Raises:
            AttemptLimitError: The attempt took more steps than it may.
        """
        values = self._of(expression)
        compiled = values.source
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
        compiled = self._of(expression).source
        return frozenset() if isinstance(compiled, DerivationFailure) else compiled.reads

    def _of(self, expression: str) -> _Values:
        values: _Values | None = self._store.get((_DERIVED, expression))
        if values is None:
            compiled: DerivedExpression | DerivationFailure
            try:
                compiled = compile_derived_attribute(expression, self.steps)
            except SelectorCompileError as problem:
                compiled = DerivationFailure(str(problem), is_compile_error=True)
            text = compiled.text if isinstance(compiled, DerivationFailure) else ""
            values = _Results(compiled, expression_bytes(expression) + len(text))
            self._store.put((_DERIVED, expression), values, values.size)
        return values

    def _evaluated(self, compiled: DerivedExpression, facts: SelectedFacts) -> Derived:
        self.evaluations += 1
        try:
            return _attribute(compiled.value(device_facts(facts), self.steps))
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
