"""How devices behave towards the claims of a pod: which requests they can serve, and what constraints read of them.

Devices of equal behaviour are interchangeable in a search, even if they differ in attributes that no selector reads.
Tables are shared by all pods with equal claims, because pods of a workload come in numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from scheduler_core.devices.constraints import LIST, AttributePatterns, AttributeValues, PoolValues
from scheduler_core.devices.pools import PoolView
from scheduler_core.devices.records import Amount, CapacityError, DeviceFeatures, DeviceRecord, consumed_capacity
from scheduler_core.devices.requests import ClaimPlan, RequestTerms, plan_key
from scheduler_core.devices.selector_cache import (
    MAX_VERDICT_BYTES,
    DerivedAttributes,
    SelectorCache,
    SizedCache,
    Store,
    Verdict,
)
from scheduler_core.step_counter import StepCounter

_DriverNames = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Names of attributes that selectors read, and those that constraints read, with and without the driver's domain."""

_RECORDS_PER_STEP = 8


@dataclass(frozen=True, slots=True)
class KnowledgeBounds:
    """Largest numbers of stored entries; what exceeds them is computed again.

    Attributes:
        tables: Plans whose behaviours are stored.
        records: Devices of each plan, beside those of the pools.
        shapes: Pools of each plan.
        verdict_bytes: Size of the compiled selectors and their verdicts, and of the derived attributes.
    """

    tables: int = 64
    records: int = 4096
    shapes: int = 65_536
    verdict_bytes: int = MAX_VERDICT_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """How a device serves a request.

    Attributes:
        is_selected: Whether all selectors match.
        error: The selector that failed; None if none did.
        error_in_class: Whether the failed selector is one of the class.
        consumed: Capacity that a share consumes; None if the device cannot serve the requested capacity.
        capacity_error: Why the requested capacity cannot be computed; "" if it can.
        is_permitted: Whether all taints are tolerated, and the node supports what the slice skips.
        has_attributes: Whether it has the attributes that constraints read, as far as they can be derived.
        has_derivation_error: Whether an attribute that constraints read cannot be derived.
    """

    is_selected: bool
    error: Verdict | None = None
    error_in_class: bool = False
    consumed: dict[str, Amount] | None = None
    capacity_error: str = ""
    is_permitted: bool = False
    has_attributes: bool = False
    has_derivation_error: bool = False

    @property
    def is_usable(self) -> bool:
        """Whether the device serves the request if it is free, and nothing else is taken."""
        return self.is_selected and self.is_permitted and self.has_attributes and self.consumed is not None

    @property
    def key(self) -> Hashable:
        consumed = None
        if self.consumed is not None:
            consumed = tuple((name, amount.nano, amount.form) for name, amount in self.consumed.items())
        return (
            self.is_selected,
            self.error,
            self.error_in_class,
            consumed,
            self.capacity_error,
            self.is_usable,
            self.is_permitted,
            self.has_derivation_error,
        )


_REJECTED = Assessment(is_selected=False)


class Behaviour:
    """Behaviour of devices towards all requests of a plan, by the number of the terms.

    Devices of one pool have equal numbers if they are equal in the attributes that constraints read, too.
    ``has_list``: one of these attributes is a list, which equals no other value (without list-typed attributes).
    """

    __slots__ = ("assessments", "has_list", "is_relevant", "number")

    def __init__(self, number: int, assessments: tuple[Assessment, ...], *, has_list: bool = False) -> None:
        self.number = number
        self.assessments = assessments
        self.has_list = has_list
        self.is_relevant = any(one.is_selected or one.error is not None for one in assessments)


class BehaviourRow:
    """Behaviours of the devices of a pool; pools of one row have equal devices for the plan."""

    __slots__ = ("behaviours", "has_derivation_errors", "has_errors", "has_lists", "number")

    def __init__(self, number: int, behaviours: tuple[Behaviour, ...]) -> None:
        self.number = number
        self.behaviours = behaviours
        self.has_errors = any(
            one.error is not None or one.capacity_error or one.has_derivation_error
            for each in behaviours
            for one in each.assessments
        )
        self.has_derivation_errors = self.has_errors and any(
            one.has_derivation_error for each in behaviours for one in each.assessments
        )
        self.has_lists = any(each.has_list for each in behaviours)


class BehaviourTable:
    """Behaviours of devices towards one plan."""

    def __init__(
        self,
        plans: Sequence[ClaimPlan],
        selectors: SelectorCache,
        attributes: AttributeValues,
        features: DeviceFeatures,
        bounds: KnowledgeBounds,
    ) -> None:
        self._steps = selectors.steps
        # Requests of a pod are often equal: each distinct one is assessed once.
        distinct: dict[Hashable, int] = {}
        self._terms: list[RequestTerms] = []
        self._number_of_terms: list[int] = []
        for plan in plans:
            for request in plan.requests:
                for terms in request.terms:
                    number = distinct.setdefault(terms.device_key, len(distinct))
                    if number == len(self._terms):
                        self._terms.append(terms)
                    self._number_of_terms.append(number)
        self.attributes = attributes
        self._patterns = AttributePatterns(plans, self._terms, attributes)
        self._selectors = selectors
        self._reads = self._all_reads()
        self._features = features
        self._bounds = bounds
        self._numbers = count()
        self._by_read: dict[Hashable, Behaviour] = {}
        self._by_values: dict[Hashable, Behaviour] = {}
        self._values_of_shape: dict[int, PoolValues] = {}
        self._searches: SizedCache[bytes, dict[Hashable, Any]] = SizedCache(bounds.tables)
        self._by_key: dict[Hashable, Behaviour] = {}
        self._by_shape: dict[int, BehaviourRow] = {}
        self._rows: dict[Hashable, BehaviourRow] = {}
        self._by_content: dict[Hashable, BehaviourRow] = {}
        self._names: dict[str, _DriverNames] = {}

    def _all_reads(self) -> tuple[tuple[str, str], ...] | None:
        """Return what selectors and derived attributes read of a device; None if that depends on the device."""
        found: set[tuple[str, str]] = set()
        for terms in self._terms:
            for expressions in (terms.class_selectors, terms.selectors):
                reads = self._selectors.reads(expressions)
                if reads is None:
                    return None
                found |= reads
        for name, expression in self._patterns.derived:
            reads = self.attributes.derived.reads(expression)
            if reads is None:
                return None
            # Derived values are compared with those of the device, so that equal patterns do not suffice.
            domain, _, identifier = name.partition("/")
            found |= {*reads, (domain, identifier)}
        return tuple(sorted(found))

    def row(self, view: PoolView) -> BehaviourRow:
        found = self._by_shape.get(view.shape.number)
        if found is None:
            if len(self._by_shape) >= self._bounds.shapes:
                self._clear()
            found = self._by_shape[view.shape.number] = self._row(view)
        return found

    def searches(self, key: bytes) -> dict[Hashable, Any]:
        """Return the outcomes of searches for equal plans, by what describes the devices of a node."""
        found = self._searches.get(key)
        if found is None:
            found = {}
            self._searches.put(key, found)
        if len(found) >= self._bounds.shapes:
            found.clear()
        return found

    def values(self, view: PoolView) -> PoolValues:
        """Return the distinct values of each attribute that constraints read, of the devices that serve a request."""
        found = self._values_of_shape.get(view.shape.number)
        if found is None:
            self._steps.spend_stored(1 + len(view.records) * len(self._patterns.names) // _RECORDS_PER_STEP)
            behaviours = self.row(view).behaviours
            facts = [each.facts for each, base in zip(view.records, behaviours, strict=True) if base.is_relevant]
            found = self._values_of_shape[view.shape.number] = self._patterns.values(facts)
        return found

    def _clear(self) -> None:
        stores: tuple[dict[Any, Any], ...] = (self._by_read, self._by_values, self._values_of_shape, self._by_key)
        for stored in (*stores, self._by_shape, self._rows, self._by_content, self._names):
            stored.clear()

    def _row(self, view: PoolView) -> BehaviourRow:
        self._steps.upkeep(1 + len(view.records) // _RECORDS_PER_STEP)
        content = self._content(view)
        found = self._by_content.get(content)
        if found is None:
            self._steps.spend_stored(1 + len(view.records) // _RECORDS_PER_STEP)
            behaviours = tuple(map(self.behaviour, view.records))
            if self._patterns.names:
                behaviours = self._with_values(view, behaviours)
            # Devices in use consume counters, even if no request selects them.
            exact = view.shape.number if view.counters else None
            key = (view.is_incomplete, view.is_invalid, exact, view.targeted, *(one.number for one in behaviours))
            found = self._rows.get(key)
            if found is None:
                found = self._rows[key] = BehaviourRow(next(self._numbers), behaviours)
            self._by_content[content] = found
        return found

    def _content(self, view: PoolView) -> Hashable:
        """Return a key that is equal for pools whose devices behave equally; it costs less than their behaviours."""
        if self._reads is None or view.counters:
            return view.shape.number
        selected, compared = self._names_of(view.key[0])
        attributes = [record.facts.attributes for record in view.records]
        patterns = []
        number = self._patterns.number
        for name, bare in compared:
            index: dict[Hashable, int] = {}
            patterns.append(tuple([number(each.get(name) or each.get(bare), index) for each in attributes]))
        return (
            view.is_incomplete,
            view.is_invalid,
            view.targeted,
            tuple([record.body for record in view.records]),
            tuple([tuple(map(each.get, selected)) for each in attributes]) if selected else (),
            *patterns,
        )

    def _names_of(self, driver: str) -> _DriverNames:
        """Return the names of what is read, by selectors and by constraints, of the devices of a driver."""
        found = self._names.get(driver)
        if found is None:
            selected = [f"{domain}/{name}" for domain, name in self._reads or ()]
            selected += [name for domain, name in self._reads or () if domain == driver]
            compared = [(name, name.removeprefix(f"{driver}/")) for name in self._patterns.names]
            found = self._names[driver] = (tuple(selected), tuple(compared))
        return found

    def _with_values(self, view: PoolView, behaviours: tuple[Behaviour, ...]) -> tuple[Behaviour, ...]:
        """Distinguish devices by which of them have equal values."""
        self._steps.spend_stored(1 + len(view.records) * len(self._patterns.names) // _RECORDS_PER_STEP)
        numbers = self._patterns.numbers()
        found = []
        for record, base in zip(view.records, behaviours, strict=True):
            if not base.is_relevant:
                found.append(base)
                continue
            pattern = self._patterns.of(record.facts, numbers)
            key = (base.number, *pattern)
            behaviour = self._by_values.get(key)
            if behaviour is None:
                has_list = LIST in pattern
                behaviour = self._by_values[key] = Behaviour(next(self._numbers), base.assessments, has_list=has_list)
            found.append(behaviour)
        return tuple(found)

    def behaviour(self, record: DeviceRecord) -> Behaviour:
        """Return the behaviour of a device, apart from the attributes that constraints read."""
        read = self._read(record)
        found = self._by_read.get(read)
        if found is None:
            assessments = tuple(self._assess(terms, record) for terms in self._terms)
            key = self._key(record, assessments)
            found = self._by_key.get(key)
            if found is None:
                of_terms = tuple(assessments[number] for number in self._number_of_terms)
                found = self._by_key[key] = Behaviour(next(self._numbers), of_terms)
            if len(self._by_read) >= self._bounds.records:
                self._by_read.clear()
            self._by_read[read] = found
        return found

    def _read(self, record: DeviceRecord) -> Hashable:
        """Return a key that is equal for devices that are equal in all that the plan reads, apart from values."""
        if self._reads is None:
            return record.number
        facts = record.facts
        return (
            record.body,
            facts.attributes_of(self._reads),
            tuple(facts.attribute(name) is None for name in self._patterns.names),
        )

    def _key(self, record: DeviceRecord, assessments: tuple[Assessment, ...]) -> Hashable:
        if not any(one.is_selected or one.error is not None for one in assessments):
            return None
        return (
            tuple(one.key for one in assessments),
            record.shareable,
            tuple((name, rule.value.nano) for name, rule in record.rules.items()),
            tuple(sorted(record.counters.items())),
            record.compatibility_groups if record.has_compatibility_groups else (),
        )

    def _assess(self, terms: RequestTerms, record: DeviceRecord) -> Assessment:
        self._steps.spend_stored()
        if record.binding_conditions and not self._features.binding_conditions:
            return _REJECTED
        verdict = self._selectors.verdict(terms.class_selectors, record.facts)
        in_class = not verdict.matches
        if verdict.matches:
            verdict = self._selectors.verdict(terms.selectors, record.facts)
        if not verdict.matches:
            return (
                Assessment(is_selected=False, error=verdict, error_in_class=in_class) if verdict.is_error else _REJECTED
            )
        consumed: dict[str, Amount] | None = {}
        problem = ""
        if self._features.consumable_capacity:
            try:
                fractional = self._features.fractional_capacity_range
                consumed = consumed_capacity(terms.amounts, record.rules, fractional=fractional)
            except CapacityError as error:
                problem = str(error)
        has_attributes, has_derivation_error = self.attributes.can_be_added(terms, record.facts)
        return Assessment(
            is_selected=True,
            consumed=consumed,
            capacity_error=problem,
            is_permitted=record.is_supported and all(map(terms.tolerates, record.taints)),
            has_attributes=has_attributes,
            has_derivation_error=has_derivation_error,
        )


class DeviceKnowledge:
    """Verdicts and behaviours that outlive a scheduling attempt.

    Attributes:
        store: Compiled expressions, verdicts and derived attributes.
    """

    def __init__(
        self, features: DeviceFeatures, bounds: KnowledgeBounds | None = None, steps: StepCounter | None = None
    ) -> None:
        self.features = features
        self._bounds = KnowledgeBounds() if bounds is None else bounds
        self._steps = StepCounter() if steps is None else steps
        self.store: Store = SizedCache(self._bounds.verdict_bytes)
        self.selectors = SelectorCache(self.store, self._steps)
        self.attributes = AttributeValues(features.list_type_attributes, DerivedAttributes(self.store, self._steps))
        self._tables: SizedCache[Hashable, BehaviourTable] = SizedCache(self._bounds.tables)

    def table(self, plans: Sequence[ClaimPlan]) -> BehaviourTable:
        key = plan_key(plans)
        found = self._tables.get(key)
        if found is None:
            found = BehaviourTable(plans, self.selectors, self.attributes, self.features, self._bounds)
            self._tables.put(key, found)
        return found
