"""Which devices have equal values of the attributes that constraints read.

A search only compares values, so that devices with other values, but equal to each other in the same way, are equal.
Values get numbers in the order in which they are first seen; the numbers of a device are its pattern.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from scheduler_core.devices.constraints import AttributeValues
from scheduler_core.devices.derived_attributes import DerivationFailure, Derived
from scheduler_core.devices.records import SelectedFacts
from scheduler_core.devices.requests import ClaimPlan, RequestTerms
from scheduler_core.model.devices import DeviceAttribute

PoolValues = tuple[tuple[Hashable, ...], ...]
"""Distinct values of a pool's devices for each attribute that constraints read, in the order of the devices."""

Numbers = list[dict[Hashable, int]]
"""Numbers of the values of each attribute."""

_FAILED, _ABSENT, _LIST = -3, -2, -1
"""Instead of the number of a value: it cannot be derived, the attribute is absent, or a list, which equals nothing."""


class AttributePatterns:
    """Patterns of devices for the constraints of one plan.

    Attributes:
        names: The attributes that constraints read, sorted.
        derived: The expressions that requests derive them by, and the name of each.
    """

    def __init__(self, plans: Sequence[ClaimPlan], terms: Iterable[RequestTerms], values: AttributeValues) -> None:
        found = {
            name
            for plan in plans
            for constraint in plan.claim.spec.devices.constraints
            for name in (constraint.match_attribute, constraint.distinct_attribute)
            if name is not None
        }
        self.names = sorted(found)
        self.derived = tuple(sorted({(name, expression) for one in terms for name, expression in one.derived.items()}))
        self._values = values
        # Values that one request derives are compared with those that another one derives or reads.
        self._derived_by = [(self.names.index(name), expression) for name, expression in self.derived]

    def numbers(self) -> Numbers:
        """Return the numbers before any device was seen."""
        return [{} for _ in self.names]

    def of(self, facts: SelectedFacts, numbers: Numbers) -> tuple[Hashable, ...]:
        """Return the pattern of a device; values that are new get numbers."""
        static = tuple(
            [self.number(facts.attribute(name), index) for name, index in zip(self.names, numbers, strict=True)]
        )
        if not self._derived_by:
            return static
        derive = self._values.derived.value
        return (
            *static,
            *(self._derived_number(derive(expression, facts), numbers[name]) for name, expression in self._derived_by),
        )

    def number(self, attribute: DeviceAttribute | None, index: dict[Hashable, int]) -> Hashable:
        """Return the number of an attribute's value, in the order in which the values were first seen."""
        if attribute is None:
            return _ABSENT
        if self._values.are_sets:
            return tuple([index.setdefault(each, len(index)) for each in attribute.elements])
        value = attribute.scalar
        return _LIST if value is None else index.setdefault(value, len(index))

    def values(self, devices: Iterable[SelectedFacts]) -> PoolValues:
        """Return the distinct values of each attribute, of these devices."""
        numbers = self.numbers()
        for facts in devices:
            self.of(facts, numbers)
        return tuple(map(tuple, numbers))

    def _derived_number(self, value: Derived, index: dict[Hashable, int]) -> Hashable:
        return _FAILED if isinstance(value, DerivationFailure) else self.number(value, index)
