"""Problems of devices: the conditions of a request that a device does not meet now, in words.

A search stops at the first condition that a device does not meet. To choose what to change, a user needs all of them,
which are evaluated one by one. Devices that the class rejects are described by the class alone, because the
selectors of a request often fail on devices of another kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from msgspec import Struct

from scheduler_core.cel.device_selector import SelectorRuntimeError
from scheduler_core.devices.behaviours import DeviceKnowledge
from scheduler_core.devices.device_state import CounterBalance
from scheduler_core.devices.pools import PoolUsage, PoolView
from scheduler_core.devices.records import Amount, CapacityError, DeviceRecord, consumed_capacity
from scheduler_core.devices.requests import RequestTerms
from scheduler_core.devices.selector_cache import Expressions, Reads, device_facts
from scheduler_core.explain.candidate_events import taint_text
from scheduler_core.explain.unmet_conditions import Constant, Property, selector_reads, unmet_conditions
from scheduler_core.model.devices import OPTIONAL_NODE_OPERATIONS
from scheduler_core.model.pod_requests import BINARY_SI, DECIMAL_SI, NANO, canonical_text

_KIBI = 1024 * NANO


class DeviceProblem(Struct, frozen=True):
    """A condition of a request that a device does not meet.

    Attributes:
        text: Description, such as ``model is a100, must be h100``.
        required_by: The selector that states it; "" for a condition that is no selector.
        is_use: Whether other claims cause it, which use the device, its capacity or its counters.
        is_taint: Whether it is a taint.
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
            reads = self._reads[terms] = (selector_reads((*terms.class_selectors, *terms.selectors)),)
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
                yield DeviceProblem(each.text, source, is_class=is_class, read=each.read, suitable=each.suitable)

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
        """Yield problems of a device that claims use, wholly or in shares."""
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
