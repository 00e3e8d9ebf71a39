"""State of the devices of one node during a search: what is taken, by which claim, and how to undo it.

Devices that consume counters of one set (gate DRADeviceCompatibilityGroups) can be allocated at the same time if one
compatibility group is common to all of them, or if none has a group.

Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1 ``structured/internal/experimental/compatibility_groups.go``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from scheduler_core.devices.behaviours import Assessment, Behaviour, BehaviourRow
from scheduler_core.devices.constraints import AttributeConstraint, AttributeValues, DerivationError
from scheduler_core.devices.pools import PoolUsage, PoolView
from scheduler_core.devices.records import CounterKey, DeviceRecord
from scheduler_core.devices.requests import ClaimPlan, RequestTerms
from scheduler_core.errors import AllocationError

Groups = frozenset[str]
"""Groups that all allocated devices of a set have in common; None instead if none of them has a group."""


class CompatibilityGroups:
    """Groups in common of the allocated devices of each counter set of a pool; changes are undone in reverse order.

    Args:
        allocated: Devices in use before the search. They may contradict each other if the driver changed them since:
            the common groups are empty then, or stay those of the first device.
    """

    __slots__ = ("_before", "_common")

    def __init__(self, allocated: Iterable[DeviceRecord]) -> None:
        self._common: dict[str, Groups | None] = {}
        self._before: list[dict[str, Groups | None]] = []
        for record in allocated:
            for counter_set, groups in record.compatibility_groups:
                self._add(counter_set, groups)

    def incompatible(self, record: DeviceRecord) -> list[tuple[str, Groups | None]]:
        """Return the sets that do not admit a device, with the groups that their devices have in common."""
        return [
            (counter_set, self._common[counter_set])
            for counter_set, groups in record.compatibility_groups
            if not self._admits(counter_set, groups)
        ]

    def take(self, record: DeviceRecord) -> bool:
        """Take a device; return False, and take nothing, if a set does not admit it."""
        before = dict(self._common)
        for counter_set, groups in record.compatibility_groups:
            if not self._admits(counter_set, groups):
                self._common = before
                return False
            self._add(counter_set, groups)
        self._before.append(before)
        return True

    def give_back(self) -> None:
        """Undo the last :meth:`take` that returned True."""
        self._common = self._before.pop()

    def _admits(self, counter_set: str, groups: Groups) -> bool:
        if counter_set not in self._common:
            return True
        common = self._common[counter_set]
        return not groups if common is None else bool(common & groups)

    def _add(self, counter_set: str, groups: Groups) -> None:
        if counter_set not in self._common:
            self._common[counter_set] = groups or None
            return
        common = self._common[counter_set]
        if common is not None and groups:
            self._common[counter_set] = common & groups


class CounterBalance:
    """Counters of a pool during a search, in nano-units.

    A counter that allocated devices exceed makes all devices of the pool that consume counters unavailable, also those
    that consume others; kube-scheduler compares all counters of the pool.
    """

    __slots__ = ("_groups", "_is_exceeded", "available")

    def __init__(self, view: PoolView, usage: PoolUsage | None) -> None:
        available = dict(view.counters)
        if usage is not None:
            for record in _allocated(view, usage):
                for key, amount in record.counters.items():
                    if key in available:
                        available[key] -= amount
        self.available = available
        """What is left of each counter; negative if allocated devices exceed it."""
        self._groups: CompatibilityGroups | None = None
        if view.has_compatibility_groups:
            self._groups = CompatibilityGroups(() if usage is None else _allocated(view, usage))
        self._is_exceeded = any(amount < 0 for amount in available.values())

    def take(self, record: DeviceRecord) -> bool:
        """Take the counters of a device; return False, and take none, if they do not suffice or are not for it."""
        available = self.available
        if self._is_exceeded or any(available.get(key, -1) < amount for key, amount in record.counters.items()):
            return False
        if self._groups is not None and not self._groups.take(record):
            return False
        for key, amount in record.counters.items():
            available[key] -= amount
        return True

    def lacking(self, record: DeviceRecord) -> list[tuple[CounterKey, int, int]]:
        """Return the counters that do not suffice for a device, with the needed and the available amount."""
        available = self.available
        exceeded = [(key, record.counters.get(key, 0), left) for key, left in available.items() if left < 0]
        short = [
            (key, amount, available.get(key, 0))
            for key, amount in record.counters.items()
            if available.get(key, -1) < amount and available.get(key, 0) >= 0
        ]
        return short + (exceeded if record.counter_sets else [])

    def incompatible(self, record: DeviceRecord) -> list[tuple[str, Groups | None]]:
        """Return the counter sets whose devices are not compatible with a device, with their groups in common."""
        return [] if self._groups is None else self._groups.incompatible(record)

    def give_back(self, record: DeviceRecord) -> None:
        """Undo the last :meth:`take` that returned True, which was of the same device."""
        if self._groups is not None:
            self._groups.give_back()
        for key, amount in record.counters.items():
            self.available[key] += amount


def _allocated(view: PoolView, usage: PoolUsage) -> Iterator[DeviceRecord]:
    """Yield the devices in use that consume counters."""
    for names, records in ((view.names.names, view.records), *((each.names, each.records) for each in view.others)):
        for name, record in zip(names, records, strict=True):
            if record.counters and usage.uses(name):
                yield record


Position = tuple[int, int]
"""Pool among the pools of the node, and device in the pool."""


@dataclass(frozen=True, slots=True, eq=False)
class TakenDevice:
    """A device that the search took for a request, and what to undo."""

    terms: RequestTerms
    position: Position
    signature: Hashable
    is_share: bool
    has_counters: bool


@dataclass(slots=True, eq=False)
class NodeDevices:
    """The pools of a node with the behaviour and the use of their devices."""

    pools: Sequence[PoolView]
    rows: Sequence[BehaviourRow]
    usages: Sequence[PoolUsage | None]

    def behaviour(self, position: Position) -> Behaviour:
        return self.rows[position[0]].behaviours[position[1]]

    def positions(self) -> Iterator[Position]:
        """Return the devices that any request could take, in the order of the search."""
        for pool, row in enumerate(self.rows):
            for device, behaviour in enumerate(row.behaviours):
                if behaviour.is_relevant:
                    yield (pool, device)

    def is_allocated(self, position: Position) -> bool:
        usage = self.usages[position[0]]
        return usage is not None and self.pools[position[0]].names.names[position[1]] in usage.dedicated

    def is_targeted(self, position: Position) -> bool:
        """Return whether the device, and not only its slice, targets the node."""
        targeted = self.pools[position[0]].targeted
        return targeted is None or targeted[position[1]]

    def device_name(self, position: Position) -> str:
        return self.pools[position[0]].device_name(position[1])

    def select(self, terms: RequestTerms, position: Position) -> Assessment | None:
        """Return the assessment of a device that the selectors match and that targets the node; else None.

        Raises:
            AllocationError: A selector failed.
        """
        assessment = self.behaviour(position).assessments[terms.number]
        if assessment.error is not None:
            owner = f"claim {terms.claim}"
            if assessment.error_in_class and terms.device_class is not None:
                owner = f"class {terms.device_class.metadata.name}"
            raise AllocationError(assessment.error.error_text(owner, self.device_name(position)))
        return assessment if assessment.is_selected and self.is_targeted(position) else None


class SearchState:
    """Devices taken so far; every change can be undone in reverse order."""

    def __init__(self, node: NodeDevices, plans: Sequence[ClaimPlan], values: AttributeValues) -> None:
        self.node = node
        self.taken: list[list[TakenDevice]] = [[] for _ in plans]
        self.constraints = [
            [AttributeConstraint(constraint, values) for constraint in plan.claim.spec.devices.constraints]
            for plan in plans
        ]
        self._claims_of: dict[Position, set[int]] = {}
        self._shares: dict[Position, list[dict[str, int]]] = {}
        self._counters: dict[int, CounterBalance] = {}

    def is_free(self, terms: RequestTerms, claim: int, position: Position) -> bool:
        """Return whether a device is not in use, or in use but available for admin access."""
        holders = self._claims_of.get(position)
        if terms.admin_access:
            return not holders or claim not in holders
        return not holders and not self.node.is_allocated(position)

    def fits_capacity(self, assessment: Assessment, position: Position) -> bool:
        consumed = assessment.consumed
        if consumed is None:
            return False
        if not consumed:
            return True
        pool, device = position
        view = self.node.pools[pool]
        usage = self.node.usages[pool]
        stored = None if usage is None else usage.shares.get(view.names.names[device])
        taken = self._shares.get(position, ())
        rules = view.records[device].rules
        for name, amount in consumed.items():
            total = amount.nano + sum(one.get(name, 0) for one in taken)
            if stored is not None:
                total += stored.consumed.get(name, 0)
            if total > rules[name].value.nano:
                return False
        return True

    def signature(self, position: Position) -> Hashable:
        """Return a key that is equal for devices that are interchangeable in this state."""
        pool, device = position
        usage = self.node.usages[pool]
        if position in self._claims_of or position in self._shares:
            return position
        name = self.node.pools[pool].names.names[device]
        if usage is not None and name in usage.shares:
            return position
        return (pool, self.node.behaviour(position).number, usage is not None and name in usage.dedicated)

    def identity(self, position: Position) -> Hashable:
        """Return a key that is equal for devices that are interchangeable in this state for the claims of all pods."""
        pool, device = position
        view = self.node.pools[pool]
        target = view.node_target(device)
        where = (target.node_name, target.all_nodes, id(target.node_selector))
        return (self.signature(position), view.records[device].number, where)

    def take(self, terms: RequestTerms, claim: int, position: Position, *, must: bool) -> bool:
        """Take a device that is free and selected; return whether taints, counters and constraints admit it.

        Raises:
            AllocationError: A constraint does not admit a device that ``must`` be taken, or reads a derived attribute
                that has no value.
        """
        pool, device = position
        record = self.node.pools[pool].records[device]
        assessment = self.node.behaviour(position).assessments[terms.number]
        signature = self.signature(position)
        has_counters = bool(record.counter_sets) and not (record.shareable and self._is_shared(position))
        if has_counters and not self._balance(pool).take(record):
            return False
        constraints = self.constraints[claim]
        added = 0
        if assessment.is_permitted:
            try:
                for constraint in constraints:
                    if not constraint.add(terms, record.facts):
                        break
                    added += 1
            except DerivationError as error:
                raise AllocationError(error.message(self.node.device_name(position))) from None
        is_admitted = assessment.is_permitted and added == len(constraints)
        if not is_admitted or not self.fits_capacity(assessment, position):
            for constraint in reversed(constraints[:added]):
                constraint.remove(terms)
            if has_counters:
                self._balance(pool).give_back(record)
            if must and assessment.is_permitted and not is_admitted:
                raise AllocationError(
                    f"claim {terms.claim}, request {terms.name}: cannot add device {self.node.device_name(position)} "
                    "because a claim constraint would not be satisfied"
                )
            return False
        if record.shareable:
            amounts = {name: amount.nano for name, amount in (assessment.consumed or {}).items()}
            self._shares.setdefault(position, []).append(amounts)
        else:
            self._claims_of.setdefault(position, set()).add(claim)
        self.taken[claim].append(TakenDevice(terms, position, signature, record.shareable, has_counters))
        return True

    def undo(self, claim: int) -> None:
        last = self.taken[claim].pop()
        pool, device = last.position
        record = self.node.pools[pool].records[device]
        if last.is_share:
            shares = self._shares[last.position]
            shares.pop()
            if not shares:
                del self._shares[last.position]
        else:
            holders = self._claims_of[last.position]
            holders.discard(claim)
            if not holders:
                del self._claims_of[last.position]
        for constraint in reversed(self.constraints[claim]):
            constraint.remove(last.terms)
        if last.has_counters:
            self._balance(pool).give_back(record)

    def key(self, claim: int) -> Hashable:
        """Return a key that is equal for states from which the same requests, from ``claim`` on, can be served."""
        taken = sorted(
            repr((one.signature, number, one.terms.admin_access, one.terms.number if one.is_share else -1))
            for number, devices in enumerate(self.taken[: claim + 1])
            for one in devices
        )
        return (tuple(taken), tuple(constraint.state() for constraint in self.constraints[claim]))

    def _is_shared(self, position: Position) -> bool:
        usage = self.node.usages[position[0]]
        if usage is not None and self.node.pools[position[0]].names.names[position[1]] in usage.shares:
            return True
        return position in self._shares

    def _balance(self, pool: int) -> CounterBalance:
        found = self._counters.get(pool)
        if found is None:
            found = self._counters[pool] = CounterBalance(self.node.pools[pool], self.node.usages[pool])
        return found
