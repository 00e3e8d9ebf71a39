"""Interned records of devices: devices that differ only in their name, pool or slice share one record.

Records are compared by identity. An interner refers to them weakly: a record exists as long as a slice refers to it.

Consumable capacity: a request on any device must not exceed its capacities; only shares of devices that allow multiple
allocations consume them. A capacity that is not requested is consumed by its default, or wholly.

Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1 ``structured/internal/incubating/consumable_capacity.go``. There,
a default is exempt from the policy only in the same notation; here also in another one, which validation makes equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.model.devices import (
    CapacityRequirements,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    Quantity,
)
from scheduler_core.model.pod_requests import NANO, canonical_text, nano, notation, whole_units

CounterKey = tuple[str, str]
"""Counter set and counter."""


@dataclass(frozen=True, slots=True)
class DeviceFeatures:
    """Feature gates of devices, by the defaults of Kubernetes v1.37.1; the names follow the gates."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_taint_rules: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = False
    list_type_attributes: bool = False
    derived_attributes: bool = False
    compatibility_groups: bool = False
    optional_node_operations: bool = False


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity: nano-units and the notation in which it is written."""

    nano: int
    form: str

    @classmethod
    def parse(cls, quantity: Quantity) -> Amount:
        return cls(nano(quantity), notation(quantity))


class CapacityRule:
    """A capacity of a device with its request policy.

    Attributes:
        value: The whole capacity.
        default: What a share consumes that does not request the capacity; None for ``value``.
        valid_values: Valid amounts, ascending; None if the policy has no list.
        has_range: Whether the policy has a range, of ``minimum``, ``maximum`` and ``step``, each None if not set.
    """

    __slots__ = ("default", "has_policy", "has_range", "maximum", "minimum", "step", "valid_values", "value")

    def __init__(self, capacity: DeviceCapacity) -> None:
        policy = capacity.request_policy
        valid_range = None if policy is None else policy.valid_range
        self.value = Amount.parse(capacity.value)
        self.has_policy = policy is not None
        self.default = None if policy is None or policy.default is None else Amount.parse(policy.default)
        self.valid_values = (
            None if policy is None or not policy.valid_values else tuple(map(Amount.parse, policy.valid_values))
        )
        self.has_range = valid_range is not None
        self.minimum, self.maximum, self.step = (
            (None, None, None)
            if valid_range is None
            else tuple(
                None if text is None else Amount.parse(text)
                for text in (valid_range.min, valid_range.max, valid_range.step)
            )
        )


class SelectedFacts:
    """What selectors and constraints read of a device; one record for all devices that are equal in it.

    Attributes:
        number: Number of the record, never reused.
        attributes: By name, as the driver wrote it.
        capacity: By name, as the driver wrote it.
        allow_multiple_allocations: Whether requests can share the device.
    """

    __slots__ = (
        "__weakref__",
        "allow_multiple_allocations",
        "attributes",
        "capacity",
        "driver",
        "number",
    )

    def __init__(self, number: int, driver: str, device: Device) -> None:
        self.number = number
        self.driver = driver
        self.attributes = device.attributes
        self.capacity = device.capacity
        self.allow_multiple_allocations = device.allow_multiple_allocations

    def without_sharing(self) -> SelectedFacts:
        """Return the facts of an equal device that requests cannot share, under a number of its own."""
        if not self.allow_multiple_allocations:
            return self
        return SelectedFacts(-self.number - 1, self.driver, Device("", self.attributes, self.capacity))

    def projection(self, names: frozenset[tuple[str, str]]) -> Hashable:
        """Return a key that is equal for devices with equal attributes and capacities of the domains and names."""
        found: list[tuple[object, ...]] = []
        sources: tuple[Mapping[str, DeviceAttribute | DeviceCapacity], ...] = (self.attributes, self.capacity)
        for values in sources:
            for name, value in values.items():
                domain, slash, identifier = name.rpartition("/")
                pair = (domain if slash else self.driver, identifier)
                if pair in names:
                    found.append((*pair, value if isinstance(value, DeviceAttribute) else str(value.value)))
        return (self.driver, bool(self.allow_multiple_allocations), tuple(found))

    def attributes_of(self, reads: Iterable[tuple[str, str]]) -> Hashable:
        """Return a key that is equal for devices of one driver with equal attributes of these domains and names."""
        attributes = self.attributes
        return tuple(
            (attributes.get(f"{domain}/{name}"), attributes.get(name) if domain == self.driver else None)
            for domain, name in reads
        )

    def attribute(self, name: str) -> DeviceAttribute | None:
        """Return the attribute of a fully qualified name; a name without a domain belongs to the driver's domain."""
        found = self.attributes.get(name)
        if found is None:
            domain, slash, identifier = name.partition("/")
            if slash and domain == self.driver:
                found = self.attributes.get(identifier)
        return found


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class DeviceRecord:
    """Everything that scheduling reads of a device except its name and its nodes.

    Attributes:
        number: Number of the record, never reused.
        body: Number of all fields but the attributes; equal for devices that differ in attributes only.
        facts: What selectors and constraints read.
        rules: Rules of the capacities, by name.
        shareable: Whether several requests can share the device.
        counters: Amounts in nano-units by counter that an allocation consumes.
        taints: Taints that prevent the allocation unless tolerated, those of rules included.
        binds_to_node: Whether an allocation is usable only on its node.
        binding_conditions: Conditions that must be True before the pod is bound.
        binding_failure_conditions: Conditions of which none may be True.
        compatibility_groups: Each set of these counters with the groups of which one must be common to its devices.
        skip_node_operations: Operations of the driver that the kubelet skips for the device.
        is_supported: Whether the node can skip these operations; False only in pools as other nodes see them.
    """

    number: int
    body: int
    facts: SelectedFacts
    rules: dict[str, CapacityRule]
    shareable: bool
    counters: dict[CounterKey, int]
    counter_sets: tuple[str, ...]
    taints: tuple[DeviceTaint, ...]
    binds_to_node: bool
    binding_conditions: tuple[str, ...]
    binding_failure_conditions: tuple[str, ...]
    compatibility_groups: tuple[tuple[str, frozenset[str]], ...] = ()
    skip_node_operations: tuple[str, ...] = ()
    is_supported: bool = True

    @property
    def has_compatibility_groups(self) -> bool:
        return any(groups for _, groups in self.compatibility_groups)


_MAX_BODIES = 65_536
_UNSUPPORTED = "unsupported"
"""Part of a key."""


class RecordInterner:
    """Returns one record for equal devices."""

    __slots__ = ("_bodies", "_encode", "_facts", "_features", "_numbers", "_records")

    def __init__(self, features: DeviceFeatures) -> None:
        self._features = features
        self._encode = msgspec.json.Encoder(order="deterministic").encode
        self._numbers = count()
        self._facts: WeakValueDictionary[bytes, SelectedFacts] = WeakValueDictionary()
        self._records: WeakValueDictionary[bytes, DeviceRecord] = WeakValueDictionary()
        self._bodies: dict[bytes, int] = {}

    def intern(self, driver: str, device: Device, skip_node_operations: tuple[str, ...] = ()) -> DeviceRecord:
        """Return the record of a device of ``driver`` with its own taints, and with what its slice skips."""
        taints = tuple(taint for taint in device.taints if taint.prevents_allocation)
        if not self._features.device_taints:
            taints = ()
        body_key = self._encode(
            (
                driver,
                device.capacity,
                device.allow_multiple_allocations,
                [(taint.key, taint.value, taint.effect) for taint in taints],
                device.consumes_counters,
                bool(device.binds_to_node),
                device.binding_conditions,
                device.binding_failure_conditions,
                skip_node_operations,
            )
        )
        attributes = self._encode(device.attributes)
        record = self._records.get(body_key + attributes)
        if record is None:
            facts_key = self._encode((driver, device.capacity, device.allow_multiple_allocations)) + attributes
            facts = self._facts.get(facts_key)
            if facts is None:
                facts = self._facts[facts_key] = SelectedFacts(next(self._numbers), driver, device)
            counters: dict[CounterKey, int] = {}
            for consumption in device.consumes_counters:
                for name, counter in consumption.counters.items():
                    key = (consumption.counter_set, name)
                    counters[key] = counters.get(key, 0) + nano(counter.value)
            record = DeviceRecord(
                number=next(self._numbers),
                body=self._body(body_key),
                facts=facts,
                rules={name: CapacityRule(capacity) for name, capacity in sorted(device.capacity.items())},
                shareable=self._features.consumable_capacity and bool(device.allow_multiple_allocations),
                counters=counters,
                counter_sets=tuple(consumption.counter_set for consumption in device.consumes_counters),
                taints=taints,
                binds_to_node=bool(device.binds_to_node),
                binding_conditions=device.binding_conditions,
                binding_failure_conditions=device.binding_failure_conditions,
                compatibility_groups=tuple(
                    (consumption.counter_set, frozenset(consumption.compatibility_groups))
                    for consumption in device.consumes_counters
                ),
                skip_node_operations=skip_node_operations,
            )
            self._records[body_key + attributes] = record
        return record

    def _body(self, key: bytes) -> int:
        if len(self._bodies) >= _MAX_BODIES:
            # Equal devices have different bodies from now on, which are only compared.
            self._bodies.clear()
        return self._bodies.setdefault(key, next(self._numbers))

    def tainted(self, record: DeviceRecord, taints: tuple[DeviceTaint, ...]) -> DeviceRecord:
        """Return the record of an equal device to whose taints ``taints``, those of rules, are appended."""
        added = tuple(taint for taint in taints if taint.prevents_allocation)
        if not added:
            return record
        what = [(taint.key, taint.value, taint.effect) for taint in added]
        return self._variant(record, what, taints=(*record.taints, *added))

    def unsupported(self, record: DeviceRecord) -> DeviceRecord:
        """Return the record of an equal device on a node that cannot skip its operations."""
        if not record.skip_node_operations:
            return record
        return self._variant(record, _UNSUPPORTED, is_supported=False)

    def _variant(self, record: DeviceRecord, what: object, **changes: Any) -> DeviceRecord:
        """Return the record of a device with changes, which *what* identifies."""
        key = self._encode((record.number, what))
        found = self._records.get(key)
        if found is None:
            body = self._body(self._encode((record.body, what)))
            found = self._records[key] = replace(record, number=next(self._numbers), body=body, **changes)
        return found


def requested_amounts(requirements: CapacityRequirements | None) -> dict[str, Amount]:
    return {} if requirements is None else {name: Amount.parse(one) for name, one in requirements.requests.items()}


_MAX_INT64 = 2**63 - 1
_NANO_PER_MILLI = 1_000_000


class CapacityError(SchedulerCoreError):
    """A request cannot be computed; the text names the capacity."""


def consumed_capacity(
    requested: Mapping[str, Amount], rules: Mapping[str, CapacityRule], *, fractional: bool
) -> dict[str, Amount] | None:
    """Return what a share consumes of each capacity of a device.

    Args:
        fractional: Whether ranges in thousandths are computed exactly (gate DRAFractionalCapacityRange).

    Returns:
        Amounts by name in the order of ``rules``; None if the device lacks a requested capacity, or its policy does
        not admit the amount.

    Raises:
        CapacityError: The request is negative or beyond the range of the arithmetic.
    """
    if not requested.keys() <= rules.keys():
        return None
    consumed: dict[str, Amount] = {}
    for name, rule in rules.items():
        try:
            amount = _rounded(requested.get(name), rule, fractional=fractional)
        except CapacityError as problem:
            raise CapacityError(f'capacity "{name}": {problem}') from None
        if amount.nano < 0:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
        consumed[name] = amount
    if any(_violates(consumed[name], rule, fractional=fractional) for name, rule in rules.items()):
        return None
    return consumed


def _rounded(requested: Amount | None, rule: CapacityRule, *, fractional: bool) -> Amount:
    if requested is None:
        return rule.value if rule.default is None else rule.default
    if rule.has_range and rule.minimum is not None:
        return _rounded_to_range(requested, rule, rule.minimum, fractional=fractional)
    if rule.valid_values is not None:
        return next((value for value in rule.valid_values if requested.nano <= value.nano), requested)
    return requested


def _rounded_to_range(requested: Amount, rule: CapacityRule, minimum: Amount, *, fractional: bool) -> Amount:
    if requested.nano < minimum.nano:
        return minimum
    step = rule.step
    if step is None:
        return requested
    if fractional and _in_milli(rule):
        if requested.nano % _NANO_PER_MILLI:
            raise CapacityError(_unrepresentable(f"request {_text(requested)} is not a representable milli value"))
        amount, first, width, unit = (
            requested.nano // _NANO_PER_MILLI,
            minimum.nano // _NANO_PER_MILLI,
            step.nano // _NANO_PER_MILLI,
            _NANO_PER_MILLI,
        )
        limit = "the milli-value range"
    else:
        amount, first, width, unit = (*map(whole_units, (requested.nano, minimum.nano, step.nano)), NANO)
        limit = "MaxInt64"
    if width == 0:
        raise CapacityError(_unrepresentable("the step of the range is 0"))
    steps = -(-(amount - first) // width)
    rounded = first + steps * width
    if rounded > _MAX_INT64:
        raise CapacityError(_unrepresentable(f"rounding request {_text(requested)} up to the next step passes {limit}"))
    return Amount(rounded * unit, step.form)


def _unrepresentable(detail: str) -> str:
    return f"capacity request cannot be represented in the device's range arithmetic: {detail}"


def _text(amount: Amount) -> str:
    return canonical_text(amount.nano, amount.form)


def _in_milli(rule: CapacityRule) -> bool:
    bounds = [bound for bound in (rule.minimum, rule.maximum, rule.step) if bound is not None]
    if any(bound.nano % _NANO_PER_MILLI for bound in bounds):
        return False
    return rule.step is None or rule.step.nano >= _NANO_PER_MILLI


def _violates(amount: Amount, rule: CapacityRule, *, fractional: bool) -> bool:
    if not rule.has_policy or (rule.default is not None and rule.default.nano == amount.nano):
        return False
    if rule.has_range:
        return _violates_range(amount, rule, fractional=fractional)
    if rule.valid_values is not None:
        return all(value.nano != amount.nano for value in rule.valid_values)
    return False


def _violates_range(amount: Amount, rule: CapacityRule, *, fractional: bool) -> bool:
    if rule.maximum is not None and amount.nano > rule.maximum.nano:
        return True
    if rule.step is None:
        return False
    first = 0 if rule.minimum is None else rule.minimum.nano
    if fractional and _in_milli(rule):
        if amount.nano % _NANO_PER_MILLI:
            return True
        distance, width = (amount.nano - first) // _NANO_PER_MILLI, rule.step.nano // _NANO_PER_MILLI
    else:
        distance, width = whole_units(amount.nano) - whole_units(first), whole_units(rule.step.nano)
    return width == 0 or distance % width != 0
