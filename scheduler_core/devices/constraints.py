"""Constraints over the devices of a claim: equal or distinct values of an attribute.

A device without the attribute is not usable for a request that a constraint covers. Versions are compared as text.

With the gate DRAListTypeAttributes an attribute is a set of values, of one value if it is no list: devices match if one
value is in the sets of all, and are distinct if no value is in the sets of two. Without the gate lists equal nothing,
not even themselves, except that the first device is always accepted.

A search only compares values, so devices with other values, but equal to each other in the same way, behave equally.
Values get numbers in the order in which they are first seen; the numbers of a device are its pattern.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from scheduler_core.devices.records import SelectedFacts
from scheduler_core.devices.requests import ClaimPlan, RequestTerms
from scheduler_core.devices.selector_cache import DerivationFailure, Derived, DerivedAttributes
from scheduler_core.model.devices import DeviceAttribute, DeviceConstraint

_Value = tuple[str, int | bool | str]
_LIST_VALUE: frozenset[_Value] = frozenset()


class DerivationError(Exception):
    """A constraint reads a derived attribute that has no value."""

    def __init__(self, attribute: str, failure: DerivationFailure) -> None:
        super().__init__(attribute)
        self._attribute = attribute
        self._failure = failure

    def message(self, device: str) -> str:
        return self._failure.message(self._attribute, device)


@dataclass(frozen=True, slots=True)
class AttributeValues:
    """How constraints read the attributes of devices.

    Attributes:
        are_sets: Whether attributes are compared as sets (gate DRAListTypeAttributes).
    """

    are_sets: bool
    derived: DerivedAttributes

    def read(self, terms: RequestTerms, name: str, facts: SelectedFacts) -> Derived | None:
        """Return an attribute of a device for a request, None if it has none; or why it has no value."""
        expression = terms.derived.get(name)
        return facts.attribute(name) if expression is None else self.derived.value(expression, facts)

    def can_be_added(self, terms: RequestTerms, facts: SelectedFacts) -> tuple[bool, bool]:
        """Return whether a device has the attributes that constraints read, and whether reading one of them fails.

        Constraints are checked in order, so that what comes after a missing attribute, or one that fails, is not read.
        """
        for name in terms.attributes:
            attribute = self.read(terms, name, facts)
            if isinstance(attribute, DerivationFailure):
                return True, True
            if self.compared(attribute) is None:
                return False, False
        return True, False

    def compared(self, attribute: DeviceAttribute | None) -> frozenset[_Value] | None:
        """Return the values that constraints compare: an empty set for a list that equals nothing, None for none."""
        if attribute is None:
            return None
        if self.are_sets:
            return frozenset(attribute.elements) or None
        value = attribute.scalar
        return _LIST_VALUE if value is None else frozenset((value,))


class AttributeConstraint:
    """State of one constraint during a search: the values that the devices taken share, or that any of them has."""

    __slots__ = ("_is_match", "_requests", "_source", "_states", "attribute")

    def __init__(self, constraint: DeviceConstraint, values: AttributeValues) -> None:
        self._is_match = constraint.match_attribute is not None
        self._requests = constraint.requests
        self._source = values
        self._states: list[frozenset[_Value]] = []
        """State after each device, in order."""
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""

    def add(self, terms: RequestTerms, facts: SelectedFacts) -> bool:
        """Take a device; return whether the constraint admits it.

        Raises:
            DerivationError: The attribute is derived and has no value.
        """
        if not self._covers(terms):
            return True
        attribute = self._source.read(terms, self.attribute, facts)
        if isinstance(attribute, DerivationFailure):
            raise DerivationError(self.attribute, attribute)
        values = self._source.compared(attribute)
        if values is None:
            return False
        if self._states:
            before = self._states[-1]
            common = before & values
            if not values or self._is_match != bool(common):
                return False
            values = common if self._is_match else before | values
        self._states.append(values)
        return True

    def remove(self, terms: RequestTerms) -> None:
        """Undo the last device taken, which was taken for ``terms``."""
        if self._covers(terms):
            self._states.pop()

    def state(self) -> Hashable:
        """Return a key that is equal for states that admit the same devices."""
        return self._states[-1] if self._states else ()

    def _covers(self, terms: RequestTerms) -> bool:
        return not self._requests or terms.is_named_in(self._requests)


PoolValues = tuple[tuple[Hashable, ...], ...]
"""Distinct values of a pool's devices for each attribute that constraints read, in the order of the devices."""

Numbers = list[dict[Hashable, int]]
"""Numbers of the values of each attribute."""

_FAILED, _ABSENT, LIST = -3, -2, -1
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
        derived = (self.number(derive(expression, facts), numbers[name]) for name, expression in self._derived_by)
        return *static, *derived

    def number(self, attribute: Derived | None, index: dict[Hashable, int]) -> Hashable:
        """Return the number of an attribute's value, in the order in which the values were first seen."""
        if attribute is None:
            return _ABSENT
        if isinstance(attribute, DerivationFailure):
            return _FAILED
        if self._values.are_sets:
            return tuple([index.setdefault(each, len(index)) for each in attribute.elements])
        value = attribute.scalar
        return LIST if value is None else index.setdefault(value, len(index))

    def values(self, devices: Iterable[SelectedFacts]) -> PoolValues:
        numbers = self.numbers()
        for facts in devices:
            self.of(facts, numbers)
        return tuple(map(tuple, numbers))
