"""Reasons why no search can succeed on a node, found by counting.

Each is necessary for a solution and cheap; together they end most impossible requests before the search, which is
exponential in the worst case. Where the search may end in an error, nothing is concluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice

from scheduler_core.devices.constraints import AttributeValues
from scheduler_core.devices.counters import CounterBalance
from scheduler_core.devices.derived_attributes import DerivationFailure, Derived
from scheduler_core.devices.device_state import NodeDevices, Position
from scheduler_core.devices.requests import ClaimPlan, RequestPlan
from scheduler_core.model.devices import DeviceConstraint

_LIST = ("list", None)


def lacks_devices(node: NodeDevices, plans: Sequence[ClaimPlan], values: AttributeValues) -> bool:
    """Return whether the claims, which have no request in mode All, certainly cannot be allocated."""
    if any(row.has_errors for row in node.rows):
        return False
    # Requests with admin access take devices in use, too.
    ordinary = [(plan, request) for plan in plans for request in plan.requests if not request.terms[0].admin_access]
    requests = [request for _, request in ordinary]
    if not requests:
        return False
    needed = sum(map(_least, requests))
    has_constraints = any(plan.claim.spec.devices.constraints for plan in plans)
    is_counted_only = not has_constraints and not any(view.counters for view in node.pools)
    usable = _Usable(node, requests, needed if is_counted_only else None, values)
    if usable.is_shared:
        return False
    if len(usable.positions) < needed or usable.lacks_counters(needed):
        return True
    for plan in plans:
        own = [request for owner, request in ordinary if owner is plan]
        constraints = plan.claim.spec.devices.constraints
        if any(usable.violates(constraint, own) for constraint in constraints):
            return True
        if len(constraints) > 1 and any(usable.lacks_matching(request, constraints) for request in own):
            return True
    return False


def _least(request: RequestPlan) -> int:
    return min(terms.count for terms in request.terms)


def _covers(constraint: DeviceConstraint, request: RequestPlan) -> bool:
    """Return whether a constraint covers a request with all its alternatives."""
    names = constraint.requests
    return not names or all(terms.is_named_in(names) for terms in request.terms)


class _Usable:
    """Free devices that serve at least one request.

    Args:
        limit: Largest number of devices to look for; None for all.

    Attributes:
        is_shared: Whether one of them can be taken several times, so that they cannot be counted.
    """

    def __init__(
        self, node: NodeDevices, requests: Sequence[RequestPlan], limit: int | None, values: AttributeValues
    ) -> None:
        self._node = node
        self._attributes = values
        self._balances: dict[int, CounterBalance] = {}
        self._is_derived = any(terms.derived for request in requests for terms in request.terms)
        numbers = [terms.number for request in requests for terms in request.terms]
        found: Iterator[Position] = (
            position
            for position in node.positions()
            if not node.is_allocated(position) and self._serves(position, numbers)
        )
        for view in node.pools:
            if view.has_compatibility_groups:
                found = filter(self._is_compatible, found)
                break
        self.positions = list(islice(found, limit))
        self.is_shared = any(node.pools[pool].records[device].shareable for pool, device in self.positions)

    def _serves(self, position: Position, numbers: Sequence[int]) -> bool:
        assessments = self._node.behaviour(position).assessments
        return any(assessments[number].is_usable for number in numbers)

    def _is_compatible(self, position: Position) -> bool:
        """Return whether the devices in use have a compatibility group in common with a device.

        During a search they can only have fewer groups in common. A further share of a device is always admitted.
        """
        pool, device = position
        record = self._node.pools[pool].records[device]
        if pool not in self._balances:
            self._balances[pool] = CounterBalance(self._node.pools[pool], self._node.usages[pool])
        return record.shareable or not self._balances[pool].incompatible(record)

    def _of(self, requests: Sequence[RequestPlan]) -> list[Position]:
        numbers = [terms.number for request in requests for terms in request.terms]
        return [position for position in self.positions if self._serves(position, numbers)]

    def _values(self, position: Position, requests: Sequence[RequestPlan], name: str) -> frozenset[Hashable]:
        """Return the values of a device that a constraint compares, for any of the requests.

        Without list-typed attributes ``_LIST`` stands for a list, which equals no other value.
        """
        pool, device = position
        facts = self._node.pools[pool].records[device].facts
        if not self._is_derived:
            attribute = facts.attribute(name)
            if attribute is None or self._attributes.are_sets:
                return self._compared(attribute)
            return frozenset([attribute.scalar or _LIST])
        read = self._attributes.read
        found = (self._compared(read(terms, name, facts)) for request in requests for terms in request.terms)
        return frozenset().union(*found)

    def _compared(self, attribute: Derived | None) -> frozenset[Hashable]:
        if attribute is None or isinstance(attribute, DerivationFailure):
            return frozenset()
        if self._attributes.are_sets:
            return frozenset(attribute.elements)
        return frozenset([attribute.scalar or _LIST])

    def lacks_counters(self, needed: int) -> bool:
        """Return whether the devices that consume least exceed a counter already."""
        for number, view in enumerate(self._node.pools):
            if not view.counters:
                continue
            usage = self._node.usages[number]
            balance = self._balances[number] if number in self._balances else CounterBalance(view, usage)
            available = balance.available
            for key, amount in available.items():
                consumed = sorted(
                    view.records[device].counters.get(key, 0) if pool == number else 0
                    for pool, device in self.positions
                )
                if consumed[needed - 1 : needed] > [0] and sum(consumed[:needed]) > amount:
                    return True
        return False

    def violates(self, constraint: DeviceConstraint, requests: Sequence[RequestPlan]) -> bool:
        """Return whether too few devices have one value, or distinct values, for the requests of a constraint."""
        covered = [request for request in requests if _covers(constraint, request)]
        needed = sum(map(_least, covered))
        if needed <= 1:
            return False
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        found = [self._values(position, covered, name) for position in self._of(covered)]
        if constraint.match_attribute is None:
            # Only the first device may have a list, so that lists count as one value.
            return len(frozenset().union(*found)) < needed
        counts = Counter(value for values in found for value in values if value is not _LIST)
        return max(counts.values(), default=0) < needed

    def lacks_matching(self, request: RequestPlan, constraints: Sequence[DeviceConstraint]) -> bool:
        """Return whether too few devices are equal in all attributes that must match for a request.

        Nothing is concluded if a device has several values of one attribute.
        """
        names = [each.match_attribute for each in constraints if each.match_attribute and _covers(each, request)]
        counts: Counter[Hashable] = Counter()
        for position in self._of([request]):
            values = [self._values(position, [request], name) for name in names]
            if values and (min(map(len, values)) < 1 or max(map(len, values)) > 1):
                return False
            counts[tuple([position if _LIST in each else each for each in values])] += 1
        return max(counts.values(), default=0) < _least(request)
