"""Reference implementation of device constraints over list-typed and derived attributes, without incremental state."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from scheduler_core.cel.device_selector import (
    SelectorCompileError,
    SelectorRuntimeError,
    compile_derived_attribute,
)
from scheduler_core.model.devices import DeviceClass, ExactDeviceRequest, ResourceClaim, ResourceSlice
from tests.support.plain_devices import PlainAllocation, PlainError, PlainUse, Spot, attribute_of, covers, plain_facts

_Elements = frozenset[Hashable]


class PlainAttributes(PlainAllocation):
    """Search on one node with list-typed and derived attributes; version attributes are not supported.

    Args:
        claims, classes, slices, use: See :class:`PlainAllocation`.
        lists: Whether lists are compared as sets; otherwise a list equals no value, but the first device may have one.
    """

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        classes: dict[str, DeviceClass],
        slices: Sequence[ResourceSlice],
        use: PlainUse,
        *,
        lists: bool,
    ) -> None:
        super().__init__(claims, classes, slices, use)
        self.lists = lists

    def _take(self, claim: int, name: str, request: ExactDeviceRequest, spot: Spot, *, must: bool) -> bool:
        # Capacity is checked before constraints, whose evaluation can fail, unless all devices must be allocated.
        if not must and not self._fits(request, spot):
            return False
        return super()._take(claim, name, request, spot, must=must)

    def _constraints_admit(self, claim: int, name: str, spot: Spot) -> bool:
        for constraint in self.claims[claim].spec.devices.constraints:
            if not covers(constraint.requests, name):
                continue
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            others = [
                self._elements(claim, request, each, attribute)
                for request, each, _ in self.taken[claim]
                if covers(constraint.requests, request)
            ]
            own = self._elements(claim, name, spot, attribute)
            if own is None or (self.lists and not own) or (others and not own):
                return False
            sets = [each for each in others if each is not None]
            if constraint.match_attribute and sets and not own.intersection(*sets):
                return False
            if constraint.distinct_attribute and any(own & each for each in sets):
                return False
        return True

    def _elements(self, claim: int, name: str, spot: Spot, attribute: str) -> _Elements | None:
        request = self._request_of(claim, name)
        for derived in request.derived_attributes:
            if derived.name == attribute:
                return self._derived(derived.expression, spot)
        found = attribute_of(spot, attribute)
        if found is None:
            return None
        return frozenset(found.elements) if self.lists or found.scalar is not None else frozenset()

    def _derived(self, expression: str, spot: Spot) -> _Elements:
        kinds = {bool: "bool", int: "int", str: "string"}
        try:
            value = compile_derived_attribute(expression).value(plain_facts(spot))
        except (SelectorCompileError, SelectorRuntimeError) as error:
            raise PlainError from error
        if isinstance(value, tuple):
            return frozenset((kinds[type(each)], each) for each in value) if self.lists else frozenset()
        return frozenset([(kinds[type(value)], value)])

    def _request_of(self, claim: int, name: str) -> ExactDeviceRequest:
        parent, _, alternative = name.partition("/")
        (request,) = (each for each in self.claims[claim].spec.devices.requests if each.name == parent)
        if not alternative:
            assert request.exactly is not None
            return request.exactly
        (found,) = (each for each in request.first_available if each.name == alternative)
        return found
