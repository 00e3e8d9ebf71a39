"""Constraints over the devices of a claim: equal or distinct values of an attribute.

A device without the attribute is not usable for a request that a constraint covers. Lists equal nothing, not even
themselves, except that the first device is always accepted. Versions are compared as text.
"""

from __future__ import annotations

from collections.abc import Hashable

from scheduler_core.devices.records import SelectedFacts
from scheduler_core.devices.requests import RequestTerms
from scheduler_core.model.device_claims import DeviceConstraint

_Scalar = tuple[str, int | bool | str] | None


class AttributeConstraint:
    """State of one constraint during a search: the values of the devices taken, in order.

    Args:
        constraint: A constraint that names an attribute.
    """

    __slots__ = ("_is_match", "_requests", "_values", "attribute")

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._is_match = constraint.match_attribute is not None
        self._requests = constraint.requests
        self._values: list[_Scalar] = []
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""

    def add(self, terms: RequestTerms, facts: SelectedFacts) -> bool:
        """Take a device; return whether the constraint admits it."""
        if not self._covers(terms):
            return True
        attribute = facts.attribute(self.attribute)
        if attribute is None:
            return False
        value = attribute.scalar
        if self._values and not self._admits(value):
            return False
        self._values.append(value)
        return True

    def remove(self, terms: RequestTerms) -> None:
        """Undo the last device taken, which was taken for ``terms``."""
        if self._covers(terms):
            self._values.pop()

    def state(self) -> Hashable:
        """Return a key that is equal for states that admit the same devices."""
        if self._is_match:
            return self._values[0] if self._values else ()
        return tuple(sorted(map(repr, self._values)))

    def _covers(self, terms: RequestTerms) -> bool:
        return not self._requests or terms.is_named_in(self._requests)

    def _admits(self, value: _Scalar) -> bool:
        if value is None:
            return False
        if self._is_match:
            return value == self._values[0]
        return value not in self._values
