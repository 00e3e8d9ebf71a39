"""Problems of devices: the conditions of a request that a device does not meet now, in words.

A search stops at the first condition that a device does not meet. To choose what to change, a user needs all of them,
which are evaluated one by one. Devices that the class rejects are described by the class alone, because the
selectors of a request often fail on devices of another kind.

A selector is split at its top-level ``&&``. A comparison of one attribute or capacity with a constant is described by
its value and the required one; any other part by the values that it reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
)
from scheduler_core.devices.behaviours import DeviceKnowledge
from scheduler_core.devices.device_state import CounterBalance
from scheduler_core.devices.pools import PoolUsage, PoolView
from scheduler_core.devices.records import Amount, CapacityError, DeviceRecord, consumed_capacity
from scheduler_core.devices.requests import RequestTerms
from scheduler_core.devices.selector_cache import Expressions, Reads, device_facts
from scheduler_core.model.devices import OPTIONAL_NODE_OPERATIONS, DeviceTaint
from scheduler_core.model.pod_requests import BINARY_SI, DECIMAL_SI, NANO, canonical_text
from scheduler_core.model.taints import Taint

# -- selectors --------------------------------------------------------------------------------------------------------


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
class DeviceProblem:
    """A condition of a request that a device does not meet.

    Attributes:
        text: Description, such as ``model is a100, must be h100``.
        required_by: The selector that states it; "" for a condition that is no selector.
        is_use: Whether other claims cause it, which use the device, its capacity or its counters.
        is_class: Whether the device is not of the class.
        read: What the selector compares, if it is one attribute or capacity.
        suitable: A value of ``read`` that meets the condition; None if that is not known.
    """

    text: str
    required_by: str = ""
    is_use: bool = False
    is_taint: bool = False
    is_class: bool = False
    read: Property | None = None
    suitable: Constant | None = None


Problems = tuple[DeviceProblem, ...]


@dataclass(frozen=True, slots=True)
class _Comparison:
    read: Property
    words: str
    suitable: Constant | None


def unmet_conditions(expression: str, facts: DeviceFacts) -> tuple[DeviceProblem, ...]:
    """Return the parts of a selector that a device does not meet, in order; at least one, which may be its error."""
    try:
        parts = _parts(expression)
    except SelectorCompileError as problem:
        return (DeviceProblem(f"the selector does not compile: {problem}"),)
    found: list[DeviceProblem] = []
    for selector, comparison in parts:
        try:
            if selector.matches(facts):
                continue
            found.append(_described(selector, comparison, facts))
        except SelectorRuntimeError as problem:
            if comparison is not None and _value(comparison.read, facts) is None:
                found.append(_described(selector, comparison, facts))
            else:
                found.append(DeviceProblem(f"the selector fails: {problem}"))
    return tuple(found) or (DeviceProblem("the selector does not match"),)


@lru_cache(maxsize=256)
def _parts(expression: str) -> tuple[tuple[DeviceSelector, _Comparison | None], ...]:
    return tuple([(selector, _comparison(tree)) for tree, selector in compile_conditions(expression)])


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


def _described(selector: DeviceSelector, found: _Comparison | None, facts: DeviceFacts) -> DeviceProblem:
    if found is not None:
        state = _state(found.read, facts)
        words = f", {found.words}" if found.words else ""
        return DeviceProblem(state + words, read=found.read, suitable=found.suitable)
    if not selector.reads:
        return DeviceProblem("the selector does not match")
    states = [_state(_read_property(domain, name, facts), facts) for domain, name in sorted(selector.reads)]
    return DeviceProblem(", ".join(states))


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


# -- devices ----------------------------------------------------------------------------------------------------------


_KIBI = 1024 * NANO


LACKED_FEATURE = f"feature {OPTIONAL_NODE_OPERATIONS}, which the node does not declare"
_UNSUPPORTED = DeviceProblem(f"skipNodeOperations needs {LACKED_FEATURE}")


def distance(problems: Problems) -> tuple[bool, int, int]:
    """Return a key that sorts the devices that lack the least first.

    Devices of another class come last; of equal numbers of problems, those first that fewer selectors reject, because
    uses and taints end.
    """
    return any(each.is_class for each in problems), len(problems), sum(bool(each.required_by) for each in problems)


class DeviceProblems:
    """Problems of the devices of pools towards requests; equal devices share their results."""

    def __init__(self, knowledge: DeviceKnowledge) -> None:
        self._knowledge = knowledge
        self._of_selectors: dict[Hashable, Problems] = {}
        self._reads: dict[RequestTerms, tuple[Reads]] = {}

    def of_pool(self, terms: RequestTerms, view: PoolView, usage: PoolUsage | None) -> dict[Problems, list[int]]:
        """Return the positions of the devices of a pool that target the node, by their problems."""
        found: dict[Problems, list[int]] = {}
        balance = CounterBalance(view, usage)
        for position, (name, record) in enumerate(zip(view.names.names, view.records, strict=True)):
            if view.targeted is not None and not view.targeted[position]:
                continue
            problems = self._selected(terms, record)
            if not (problems and problems[0].is_class):
                if not record.is_supported:
                    problems += (_UNSUPPORTED,)
                if terms.amounts or record.taints:
                    problems += (*self._capacity(terms, record), *_taints(terms, record))
                if usage is not None and usage.uses(name):
                    problems += tuple(self._uses(terms, name, record, usage))
                elif record.counter_sets:
                    problems += tuple(_counters(record, balance))
            found.setdefault(problems, []).append(position)
        return found

    def _selected(self, terms: RequestTerms, record: DeviceRecord) -> Problems:
        """Return the problems of selectors; devices share them that differ only in what no selector reads."""
        reads = self._reads.get(terms)
        if reads is None:
            known = self._knowledge.selectors.reads((*terms.class_selectors, *terms.selectors))
            reads = self._reads[terms] = (known,)
        facts = record.facts
        key = (terms, facts.number if reads[0] is None else facts.projection(reads[0]))
        found = self._of_selectors.get(key)
        if found is None:
            class_name = "" if terms.device_class is None else terms.device_class.metadata.name
            found = tuple(self._evaluated(terms.class_selectors, record, f"class {class_name}", is_class=True))
            if not found:
                found = tuple(self._evaluated(terms.selectors, record, "request", is_class=False))
            self._of_selectors[key] = found
        return found

    def _evaluated(
        self, expressions: Expressions, record: DeviceRecord, owner: str, *, is_class: bool
    ) -> Iterator[DeviceProblem]:
        for expression in expressions:
            if self._knowledge.selectors.verdict((expression,), record.facts).matches:
                continue
            source = f"{owner}: {expression}"
            try:
                facts = device_facts(record.facts)
            except SelectorRuntimeError as problem:
                yield DeviceProblem(f"the selector fails: {problem}", source, is_class=is_class)
                continue
            for each in unmet_conditions(expression, facts):
                yield replace(each, required_by=source, is_class=is_class)

    def _capacity(self, terms: RequestTerms, record: DeviceRecord) -> Iterator[DeviceProblem]:
        fractional = self._knowledge.features.fractional_capacity_range
        for name, amount in terms.amounts.items():
            rule = record.rules.get(name)
            wanted = _written(amount)
            if rule is None:
                yield DeviceProblem(f"capacity {name} is not set, {wanted} requested")
                continue
            try:
                consumed = consumed_capacity({name: amount}, {name: rule}, fractional=fractional)
            except CapacityError as problem:
                yield DeviceProblem(str(problem))
                continue
            if consumed is None:
                yield DeviceProblem(f"the request policy of capacity {name} does not allow {wanted}")
            elif consumed[name].nano > rule.value.nano:
                yield DeviceProblem(f"capacity {name} is {_written(rule.value)}, {wanted} requested")

    def _uses(self, terms: RequestTerms, name: str, record: DeviceRecord, usage: PoolUsage) -> Iterator[DeviceProblem]:
        if name in usage.dedicated:
            if not terms.admin_access:
                yield DeviceProblem("in use", is_use=True)
            return
        shares, fractional = usage.shares[name], self._knowledge.features.fractional_capacity_range
        try:
            consumed = consumed_capacity(terms.amounts, record.rules, fractional=fractional) or {}
        except CapacityError:
            return
        for capacity, amount in consumed.items():
            whole, used = record.rules[capacity].value, shares.consumed.get(capacity, 0)
            if amount.nano <= whole.nano < amount.nano + used:
                left = canonical_text(max(0, whole.nano - used), whole.form)
                text = f"capacity {capacity} has {left} of {_written(whole)} left, {_written(amount)} needed; used"
                yield DeviceProblem(text, is_use=True)


def taint_text(taint: Taint | DeviceTaint) -> str:
    """Return a taint as ``kubectl taint`` writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _taints(terms: RequestTerms, record: DeviceRecord) -> Iterator[DeviceProblem]:
    for taint in record.taints:
        if not any(each.tolerates(taint) for each in terms.tolerations):
            yield DeviceProblem(f"taint {taint_text(taint)} is not tolerated", is_taint=True)


def _counters(record: DeviceRecord, balance: CounterBalance) -> Iterator[DeviceProblem]:
    for (counter_set, counter), needed, left in balance.lacking(record):
        state = f"has {_plain(left)} left" if left >= 0 else f"is exceeded by {_plain(-left)}"
        wanted = f", {_plain(needed)} needed" if needed else ""
        yield DeviceProblem(f"counter {counter} of {counter_set} {state}{wanted}; used", is_use=True)
    own = dict(record.compatibility_groups)
    for counter_set, common in balance.incompatible(record):
        state = f"compatibility groups of {counter_set} are {_listed(own[counter_set]) or 'none'}"
        if common:
            state += f", must include {_listed(common, 'or')}"
        elif common is None:
            state += ", must be none"
        else:
            state = f"the devices of {counter_set} in use have no compatibility group in common"
        yield DeviceProblem(f"{state}; used", is_use=True)


def _listed(groups: Iterable[str], conjunction: str = "and") -> str:
    return f" {conjunction} ".join(sorted(groups))


def _written(amount: Amount) -> str:
    return canonical_text(amount.nano, amount.form)


def _plain(amount: int) -> str:
    """Return an amount of a counter, in binary units if it has some: counters do not keep their notation."""
    return canonical_text(amount, BINARY_SI if amount and amount % _KIBI == 0 else DECIMAL_SI)
