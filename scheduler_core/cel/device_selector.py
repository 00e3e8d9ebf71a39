"""CEL selectors of devices (``resource.k8s.io`` requests and device classes), as kube-scheduler v1.37.1 evaluates them.

Nothing is cached here: a caller keeps its ``DeviceSelector`` by expression and bounds that cache. It keeps errors of
an expression too, so an exception that depends on the stack or on memory, such as RecursionError, must not become one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as AbstractMapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from scheduler_core.cel.checker import check, validate_literals
from scheduler_core.cel.evaluation import Run, compile_tree
from scheduler_core.cel.kubernetes_functions import parse_quantity, parse_semver
from scheduler_core.cel.overloads import Frame
from scheduler_core.cel.parser import parse
from scheduler_core.cel.problems import AbortedError, EvaluationError, InvalidExpressionError, Problems
from scheduler_core.cel.syntax_tree import Call, Node, Reads, attribute_reads
from scheduler_core.cel.value_types import Type
from scheduler_core.cel.values import (
    MISSING,
    DomainMapping,
    Mapping,
    Optional,
    Semver,
    StringKeyMapping,
    TypeValue,
    native_go_type,
    type_name,
)
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.step_counter import StepCounter

MAX_LENGTH = 10 * 1024
_SEMVER = "kubernetes.Semver"
_NESTING = "([{.?+-*/%<>=!"
_MAX_SHALLOW = 32
_RECURSION_LIMIT = 20_000
_CHARACTERS_PER_STEP = 8
"""Characters of an expression for which one of the four stages of its compilation takes a step."""
_STEPS_OF_EVALUATION = 2
_ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional "
    "fields"
)


class SelectorCompileError(SchedulerCoreError):
    """A selector does not compile. The text is the reference's, with position and source line."""


class SelectorRuntimeError(SchedulerCoreError):
    """The evaluation of a selector failed. The text is the reference's, without ``CEL runtime error:``."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version attribute: a semantic version as the slice spells it."""

    text: str


Scalar = bool | int | str | Version
AttributeValue = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True)
class DeviceFacts:
    """What a selector can read of a device.

    Attributes:
        attributes: Attributes by the name in the slice, ``name`` or ``domain/name``. Names without a domain are in
            the driver's.
        capacity: Capacities, as quantity text, by the name in the slice.
    """

    driver: str
    allow_multiple_allocations: bool = False
    attributes: AbstractMapping[str, AttributeValue] = field(default_factory=dict)
    capacity: AbstractMapping[str, str] = field(default_factory=dict)

    @cached_property
    def variable(self) -> Mapping:
        """The variable ``device``; raises EvaluationError if a version or quantity is invalid."""
        fields: dict[str, Any] = {
            "driver": self.driver,
            "allowMultipleAllocations": self.allow_multiple_allocations,
            "attributes": self._domains({name: _attribute(name, v) for name, v in self.attributes.items()}),
            "capacity": self._domains({name: parse_quantity(text) for name, text in self.capacity.items()}),
        }
        return StringKeyMapping(fields)

    def _domains(self, values: dict[str, Any]) -> DomainMapping:
        domains = DomainMapping()
        for name, value in values.items():
            domain, slash, identifier = name.partition("/")
            if not slash:
                domain, identifier = self.driver, name
            domains.entries.setdefault(domain, StringKeyMapping()).entries[identifier] = value
        return domains


def _attribute(name: str, value: AttributeValue) -> Any:
    if isinstance(value, tuple):
        return tuple([_attribute(name, element) for element in value])
    if not isinstance(value, Version):
        return value
    try:
        return parse_semver(value.text)
    except EvaluationError as error:
        raise EvaluationError(f"attribute {name}: parse semantic version: {error}") from None


@dataclass(frozen=True, slots=True)
class _Expression:
    """A compiled expression over a device; evaluations raise SelectorRuntimeError if they fail or cost too much.

    Attributes:
        reads: The attributes and capacities that the expression reads, as pairs of domain and name; None if they
            cannot be known without a device. ``device.driver`` and ``allowMultipleAllocations`` are not among them.
    """

    expression: str
    _run: Run
    _slots: int
    reads: Reads

    def _evaluate(self, facts: DeviceFacts, steps: StepCounter | None) -> tuple[Any, int]:
        result: Any = None
        problem = ""
        frame: Frame | None = None
        try:
            frame = Frame(facts.variable, self._slots, steps)
            result = self._run(frame)
            frame.charge(0)
        except (EvaluationError, AbortedError) as error:
            problem = str(error)
        if steps is not None:
            steps.spend_stored(_STEPS_OF_EVALUATION)
            if frame is not None:
                frame.count_steps(steps)
        if problem or frame is None:
            raise SelectorRuntimeError(problem)
        return result, frame.cost


class DeviceSelector(_Expression):
    __slots__ = ()

    def matches(self, facts: DeviceFacts, steps: StepCounter | None = None) -> bool:
        return self.matches_with_cost(facts, steps)[0]

    def matches_with_cost(self, facts: DeviceFacts, steps: StepCounter | None = None) -> tuple[bool, int]:
        try:
            result, cost = self._evaluate(facts, steps)
        except SelectorRuntimeError as error:
            text = str(error)
            raise SelectorRuntimeError(text + _ADVICE if "no such key:" in text else text) from None
        value = _native(result)
        if type(value) is bool:
            return value, cost
        name = type_name(result if type(result) is TypeValue else value)
        problem = _CONVERSION_ERRORS.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'")
        raise SelectorRuntimeError(f"CEL result of type {type_name(result)} could not be converted to bool: {problem}")


class DerivedExpression(_Expression):
    """The compiled expression of a derived attribute."""

    __slots__ = ()

    def value(self, facts: DeviceFacts, steps: StepCounter | None = None) -> AttributeValue:
        """Return the value for a device: a scalar, or a list of scalars of one type; versions in their normal form."""
        result, _ = self._evaluate(facts, steps)
        if type(result) is tuple:
            return self._list(result, facts)
        scalar = _derived_scalar(result)
        if scalar is None:
            raise SelectorRuntimeError(f"unsupported CEL return type: {_go_type(result, facts)}")
        return scalar

    def _list(self, values: tuple[Any, ...], facts: DeviceFacts) -> tuple[Scalar, ...]:
        found: list[Scalar] = []
        for index, value in enumerate(values):
            first, scalar = type(_native(values[0])), _derived_scalar(value)
            if first not in _SCALAR_NAMES:
                raise SelectorRuntimeError(f"unsupported list element type: {_go_type(values[0], facts)}")
            if scalar is None or type(_native(value)) is not first:
                expected = f"expected list element at index {index} to be {_SCALAR_NAMES[first]}"
                raise SelectorRuntimeError(f"{expected}, got {_go_type(value, facts)}")
            found.append(scalar)
        return tuple(found)


_SCALAR_NAMES: dict[type, str] = {bool: "bool", int: "int", str: "string", Semver: "semver"}


def _native(value: Any) -> Any:
    """Return what the reference makes of a value: an optional stands for its content, a type for its name."""
    while type(value) is Optional and value.value is not MISSING:
        value = value.value
    return value.name if type(value) is TypeValue else value


def _derived_scalar(value: Any) -> Scalar | None:
    value = _native(value)
    if type(value) is Semver:
        return Version(value.text)
    return value if type(value) in _SCALAR_NAMES else None


def _go_type(value: Any, facts: DeviceFacts) -> str:
    """Return the native Go type of a value; maps and lists of the device have others than those of an expression."""
    native, device = _native(value), facts.variable
    domains = device.entries["attributes"].entries.values()
    if native is device or any(native is each for each in domains):
        return "map[string]interface {}"
    if any(native is each for each in device.entries["capacity"].entries.values()):
        return "map[string]cel.Quantity"
    if type(native) is tuple and any(native is each for domain in domains for each in domain.entries.values()):
        return f"[]{'cel.Semver' if type(native[0]) is Semver else native_go_type(native[0])}"
    return native_go_type(native)


_CONVERSION_ERRORS = {
    "bytes": "type conversion error from Bytes to 'bool'",
    "double": "type conversion error from Double to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "kubernetes.NamedFormat": "type conversion error from 'Format' to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "optional_type": "optional.none() dereference",
    "string": "unsupported native conversion from string to 'bool'",
    "type": "type conversion not supported for 'type'",
    "uint": "unsupported type conversion from 'uint' to bool",
}


def _require_bool(kind: Type) -> None:
    if kind.kind not in ("bool", "dyn"):
        raise InvalidExpressionError(f"must evaluate to bool or the unknown type, not {kind.native_text()}")


def _require_attribute(kind: Type) -> None:
    element = kind.params[0] if kind.kind == "list" else kind
    if element.kind not in ("bool", "int", "string", "any", "dyn") and element.name != _SEMVER:
        raise InvalidExpressionError(
            "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, not "
            f"{kind.native_text()}"
        )


def compile_selector(expression: str, steps: StepCounter | None = None) -> DeviceSelector:
    """Compile a selector; raise SelectorCompileError if it is invalid, too complex, or does not evaluate to bool."""
    ((_, compiled),) = _compiled(expression, _require_bool, steps)
    return DeviceSelector(expression, *compiled)


def compile_conditions(expression: str) -> list[tuple[Node, DeviceSelector]]:
    """Compile the operands of the top-level ``&&`` of a selector; return their checked trees, too."""
    parts = _compiled(expression, _require_bool, None, _conjuncts)
    return [(tree, DeviceSelector(expression, *compiled)) for tree, compiled in parts]


def compile_derived_attribute(expression: str, steps: StepCounter | None = None) -> DerivedExpression:
    """Compile a derived attribute. Raises SelectorCompileError: it is no scalar or list of scalars."""
    ((_, compiled),) = _compiled(expression, _require_attribute, steps)
    return DerivedExpression(expression, *compiled)


def _conjuncts(tree: Node) -> Iterator[Node]:
    if type(tree) is Call and tree.function == "_&&_":
        for arg in tree.args:
            yield from _conjuncts(arg)
    else:
        yield tree


def _compiled(
    expression: str,
    require: Callable[[Type], None],
    steps: StepCounter | None,
    parts: Callable[[Node], Iterable[Node]] = lambda tree: (tree,),
) -> list[tuple[Node, tuple[Run, int, Reads]]]:
    """Return the parts of the tree that are compiled alone, and how each is evaluated."""
    if len(expression.encode(errors="surrogatepass")) > MAX_LENGTH:
        raise SelectorCompileError(f"expression exceeds the maximum length of {MAX_LENGTH} bytes")
    deep = sum(map(expression.count, _NESTING)) > _MAX_SHALLOW

    def count() -> None:
        if steps is not None:
            steps.spend_stored(1 + len(expression) // _CHARACTERS_PER_STEP)

    problems = Problems(expression)
    found = []
    try:
        with _deep_recursion() if deep else nullcontext():
            count()
            tree = parse(problems)
            count()
            result = check(tree, problems)
            problems.raise_if_any()
            count()
            validate_literals(tree, problems)
            problems.raise_if_any()
            require(result)
            count()
            for part in parts(tree):
                run, slots = compile_tree(part)
                found.append((part, (_deep_recursion()(run) if deep else run, slots, attribute_reads(part))))
    except InvalidExpressionError as error:
        raise SelectorCompileError(str(error)) from None
    return found


@contextmanager
def _deep_recursion() -> Iterator[None]:
    # The parser bounds the nesting, so this limit is never reached.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
