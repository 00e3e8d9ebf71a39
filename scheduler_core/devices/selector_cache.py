"""Verdicts of selectors, evaluated once for each list of expressions and each distinct device.

Devices are distinct by what the expressions read, if that is known. Devices with a unique serial number share a verdict
unless an expression reads it.

A list is evaluated in order; the first expression that does not match, or fails, ends it: errors of later expressions
stay unnoticed, as in kube-scheduler.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from msgspec import Struct

from scheduler_core.cel.device_selector import (
    AttributeValue,
    DeviceFacts,
    DeviceSelector,
    SelectorCompileError,
    SelectorRuntimeError,
    Version,
    compile_selector,
)
from scheduler_core.devices.records import SelectedFacts
from scheduler_core.model.devices import DeviceAttribute

Expressions = tuple[str, ...]
Reads = frozenset[tuple[str, str]] | None
"""Domains and names that expressions read; None if they cannot be known."""

_MAX_EXPRESSIONS = 4096
_MAX_VERDICTS = 500_000


class Verdict(Struct, gc=False, frozen=True):
    """Result of a list of expressions for a device.

    Attributes:
        matches: Whether all match.
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
        """Whether the expression failed."""
        return bool(self.compile_error or self.runtime_error)

    def error_text(self, owner: str, device: str) -> str:
        """Return the message of an error.

        Args:
            owner: ``class NAME`` or ``claim NAMESPACE/NAME``.
            device: ``driver/pool/device``.
        """
        if self.compile_error:
            return f"{owner}: selector #{self.index}: CEL compile error: {self.compile_error}"
        return f"{owner}: selector #{self.index} on device {device}: CEL runtime error: {self.runtime_error}"


MATCHES = Verdict(matches=True)


class _Verdicts:
    """Verdicts of one list of expressions, by what they read of a device; by its number if that is not known."""

    __slots__ = ("by_device", "reads")

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self.by_device: dict[Hashable, Verdict] = {}


class SelectorCache:
    """Compiled selectors and their verdicts.

    Args:
        max_expressions: Number of compiled expressions.
        max_verdicts: Number of verdicts; the lists of expressions used longest ago are evicted.
    """

    def __init__(self, max_expressions: int = _MAX_EXPRESSIONS, max_verdicts: int = _MAX_VERDICTS) -> None:
        self._max_expressions = max_expressions
        self._max_verdicts = max_verdicts
        self._stored = 0
        self._compiled: OrderedDict[str, DeviceSelector | Verdict] = OrderedDict()
        self._verdicts: OrderedDict[Expressions, _Verdicts] = OrderedDict()
        self.evaluations = 0
        """Number of evaluations of expressions."""

    def verdict(self, expressions: Expressions, facts: SelectedFacts) -> Verdict:
        """Return the verdict of a list of expressions for a device."""
        if not expressions:
            return MATCHES
        verdicts = self._verdicts.get(expressions)
        if verdicts is None:
            verdicts = self._verdicts[expressions] = _Verdicts(self.reads(expressions))
        key = facts.number if verdicts.reads is None else facts.projection(verdicts.reads)
        found = verdicts.by_device.get(key)
        if found is None:
            self._verdicts.move_to_end(expressions)
            found = self._evaluate(expressions, facts)
            while self._stored >= self._max_verdicts:
                _, evicted = self._verdicts.popitem(last=False)
                self._stored -= len(evicted.by_device)
            # The list itself can be among the evicted ones.
            self._verdicts.setdefault(expressions, _Verdicts(verdicts.reads)).by_device[key] = found
            self._stored += 1
        return found

    def reads(self, expressions: Expressions) -> Reads:
        """Return what expressions read of a device, up to one that does not compile; None if that depends on it."""
        reads: set[tuple[str, str]] = set()
        for expression in expressions:
            selector = self._compile(expression)
            if isinstance(selector, Verdict):
                break
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
                matches = selector.matches(device)
            except SelectorRuntimeError as problem:
                return Verdict(matches=False, index=index, runtime_error=str(problem))
            if not matches:
                return Verdict(matches=False, index=index)
        return MATCHES

    def _compile(self, expression: str) -> DeviceSelector | Verdict:
        found = self._compiled.get(expression)
        if found is None:
            try:
                found = compile_selector(expression)
            except SelectorCompileError as problem:
                found = Verdict(matches=False, compile_error=str(problem))
            self._compiled[expression] = found
            if len(self._compiled) > self._max_expressions:
                self._compiled.popitem(last=False)
        return found


def device_facts(facts: SelectedFacts) -> DeviceFacts:
    """Return what selectors can read of a device.

    Raises:
        SelectorRuntimeError: An attribute has no value.
    """
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
