"""Reference implementation of device allocation: one recursion over model objects, without caches or pruning.

Selectors are evaluated again for every device. Pools must belong to one node and be complete and valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from scheduler_core.cel.device_selector import DeviceFacts, SelectorRuntimeError, compile_selector
from scheduler_core.devices.allocator import NodeAllocation
from scheduler_core.errors import AllocationError
from scheduler_core.model.devices import (
    Device,
    DeviceAttribute,
    DeviceClass,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from scheduler_core.model.pod_requests import nano
from tests.support.devices import claim_results

Taken = tuple[str, str]
"""Request name, and device as ``driver/pool/device``."""


class PlainError(Exception):
    """The allocation fails with an error."""


class _TooManyError(Exception):
    """More than 32 devices in a claim."""


@dataclass
class PlainUse:
    """Devices in use before the search, by ``driver/pool/device``."""

    dedicated: set[str] = field(default_factory=set)
    shares: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass
class Spot:
    """Device of the node; ``skips`` if its slice skips node operations."""

    key: str
    pool: str
    driver: str
    device: Device
    skips: bool


def outcome(search: Callable[[], NodeAllocation | None]) -> object:
    """Return request and device of each claim's results, None for no allocation, or "error"."""
    try:
        found = claim_results(search())
    except AllocationError:
        return "error"
    return found and [
        [(one.request, f"{one.driver}/{one.pool}/{one.device}") for one in each.devices.results] for each in found
    ]


class PlainAllocation:
    """Search on one node; ``declares`` if the node declares that it supports optional node operations."""

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        classes: dict[str, DeviceClass],
        slices: Sequence[ResourceSlice],
        use: PlainUse,
        *,
        declares: bool = False,
    ) -> None:
        self.claims = claims
        self.declares = declares
        self.classes = classes
        self.use = use
        self.counters: dict[tuple[str, str, str], int] = {}
        self.spots: list[Spot] = []
        binding = {one.pool_key for one in slices if any(device.binding_conditions for device in one.spec.devices)}
        for one in sorted(slices, key=lambda each: (each.pool_key in binding, each.pool_key, each.metadata.name)):
            driver, pool = one.pool_key
            for counter_set in one.spec.shared_counters:
                for name, counter in counter_set.counters.items():
                    self.counters[driver + "/" + pool, counter_set.name, name] = nano(counter.value)
            self.spots.extend(
                Spot(
                    f"{driver}/{pool}/{device.name}",
                    f"{driver}/{pool}",
                    driver,
                    device,
                    bool(one.spec.skip_node_operations),
                )
                for device in one.spec.devices
            )
        for spot in self.spots:
            if spot.key in use.dedicated or spot.key in use.shares:
                self._consume(spot, 1)
        self.taken: list[list[tuple[str, Spot, ExactDeviceRequest]]] = [[] for _ in claims]

    def run(self) -> list[list[Taken]] | None:
        """Return the devices of each claim, None if there is no allocation."""
        for claim in self.claims:
            least = 0
            for request in claim.spec.devices.requests:
                wanted = [request.exactly] if request.exactly else list(request.first_available)
                least += min(self._count(claim, one) for one in wanted)
                if least > 32:
                    raise PlainError
        if not self._claim(0):
            return None
        return [[(request, spot.key) for request, spot, _ in devices] for devices in self.taken]

    def outcome(self) -> object:
        """Return what :meth:`run` returns, or "error"."""
        try:
            return self.run()
        except PlainError:
            return "error"

    def _claim(self, number: int) -> bool:
        if number == len(self.claims):
            return True
        try:
            return self._request(number, 0)
        except _TooManyError:
            if number == 0:
                raise PlainError from None
            return False

    def _request(self, claim: int, number: int) -> bool:
        requests = self.claims[claim].spec.devices.requests
        if number == len(requests):
            return self._claim(claim + 1)
        request = requests[number]
        if request.exactly is not None:
            return self._devices(claim, number, request.name, request.exactly)
        all_too_many = True
        for alternative in request.first_available:
            try:
                if self._devices(claim, number, f"{request.name}/{alternative.name}", alternative):
                    return True
                all_too_many = False
            except _TooManyError:
                continue
        if all_too_many:
            raise _TooManyError
        return False

    def _count(self, claim: ResourceClaim, request: ExactDeviceRequest) -> int:
        return len(self._all(claim, request)) if request.allocation_mode == "All" else request.count

    def _devices(
        self, claim: int, number: int, name: str, request: ExactDeviceRequest, *, count: int = 0, start: int = 0
    ) -> bool:
        takes_all = request.allocation_mode == "All"
        everything = self._all(self.claims[claim], request) if takes_all else []
        if takes_all and not everything:
            return False
        wanted = len(everything) if takes_all else request.count
        if count == wanted:
            return self._request(claim, number + 1)
        if wanted - count > 32 - len(self.taken[claim]):
            raise _TooManyError
        options = [self.spots.index(everything[count])] if takes_all else range(start, len(self.spots))
        for index in options:
            spot = self.spots[index]
            if self._in_use(claim, spot, request):
                continue
            if not takes_all and not self._selected(self.claims[claim], request, spot):
                continue
            if not self._take(claim, name, request, spot, must=takes_all):
                continue
            done = False
            try:
                done = self._devices(claim, number, name, request, count=count + 1, start=index + 1)
            finally:
                if not done:
                    self._undo(claim)
            if done:
                return True
        return False

    def _in_use(self, claim: int, spot: Spot, request: ExactDeviceRequest) -> bool:
        shareable = bool(spot.device.allow_multiple_allocations)
        if request.admin_access:
            return not shareable and any(each is spot for _, each, _ in self.taken[claim])
        if spot.key in self.use.dedicated:
            return True
        return not shareable and any(each is spot for devices in self.taken for _, each, _ in devices)

    def _take(self, claim: int, name: str, request: ExactDeviceRequest, spot: Spot, *, must: bool) -> bool:
        if spot.skips and not self.declares:
            return False
        shareable = bool(spot.device.allow_multiple_allocations)
        shared = shareable and (
            spot.key in self.use.shares or any(each is spot for devices in self.taken for _, each, _ in devices)
        )
        if spot.device.consumes_counters and not shared:
            self._consume(spot, 1)
            exceeded = any(amount < 0 for key, amount in self.counters.items() if key[0] == spot.pool)
            self._consume(spot, -1)
            if exceeded or not self._is_compatible(spot):
                return False
        taints = [taint for taint in spot.device.taints if taint.effect in ("NoSchedule", "NoExecute")]
        if not all(any(each.tolerates(taint) for each in request.tolerations) for taint in taints):
            return False
        if not self._constraints_admit(claim, name, spot):
            if must:
                raise PlainError
            return False
        if not self._fits(request, spot):
            return False
        if spot.device.consumes_counters and not shared:
            self._consume(spot, 1)
        self.taken[claim].append((name, spot, request))
        return True

    def _is_compatible(self, spot: Spot) -> bool:
        """Return whether the device's compatibility groups fit those of the devices in use, for each counter set."""
        members = [each for each in self.spots if each.key in self.use.dedicated or each.key in self.use.shares]
        for devices in self.taken:
            members.extend(each for _, each, _ in devices if each not in members)
        for consumption in spot.device.consumes_counters:
            own = set(consumption.compatibility_groups)
            others = [
                set(other.compatibility_groups)
                for each in members
                if each.pool == spot.pool
                for other in each.device.consumes_counters
                if other.counter_set == consumption.counter_set
            ]
            if not others:
                continue
            if not others[0]:
                # The first device in use determines whether devices may have compatibility groups.
                if own:
                    return False
            elif not own or not own.intersection(*(each for each in others if each)):
                return False
        return True

    def _fits(self, request: ExactDeviceRequest, spot: Spot) -> bool:
        """Return whether the remaining capacity is sufficient."""
        shareable = bool(spot.device.allow_multiple_allocations)
        consumed = self._consumed(request, spot)
        if consumed is None:
            return False
        for key, amount in consumed.items():
            used = self.use.shares.get(spot.key, {}).get(key, 0)
            if shareable:
                used += sum(
                    (self._consumed(other, spot) or {})[key]
                    for devices in self.taken
                    for _, each, other in devices
                    if each is spot
                )
            if used + amount > nano(spot.device.capacity[key].value):
                return False
        return True

    def _undo(self, claim: int) -> None:
        _, spot, _ = self.taken[claim].pop()
        others = any(each is spot for devices in self.taken for _, each, _ in devices)
        shared = bool(spot.device.allow_multiple_allocations) and (spot.key in self.use.shares or others)
        if not shared:
            self._consume(spot, -1)

    def _consume(self, spot: Spot, sign: int) -> None:
        for consumption in spot.device.consumes_counters:
            for name, counter in consumption.counters.items():
                self.counters[spot.pool, consumption.counter_set, name] -= sign * nano(counter.value)

    def _constraints_admit(self, claim: int, name: str, spot: Spot) -> bool:
        for constraint in self.claims[claim].spec.devices.constraints:
            covered = [
                each
                for request, each, _ in (*self.taken[claim], (name, spot, None))
                if covers(constraint.requests, request)
            ]
            if not covered or covered[-1] is not spot or not covers(constraint.requests, name):
                continue
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            values = [_value(each, attribute) for each in covered]
            if None in values:
                return False
            if constraint.match_attribute and len(set(values)) > 1:
                return False
            if constraint.distinct_attribute and len(set(values)) < len(values):
                return False
        return True

    def _consumed(self, request: ExactDeviceRequest, spot: Spot) -> dict[str, int] | None:
        requested = {} if request.capacity is None else request.capacity.requests
        if any(name not in spot.device.capacity for name in requested):
            return None
        return {name: nano(requested.get(name, capacity.value)) for name, capacity in spot.device.capacity.items()}

    def _all(self, claim: ResourceClaim, request: ExactDeviceRequest) -> list[Spot]:
        found = []
        for spot in self.spots:
            if self._selected(claim, request, spot):
                consumed = self._consumed(request, spot)
                if consumed is not None and all(
                    amount <= nano(spot.device.capacity[name].value) for name, amount in consumed.items()
                ):
                    found.append(spot)
        return found

    def _selected(self, claim: ResourceClaim, request: ExactDeviceRequest, spot: Spot) -> bool:
        facts = plain_facts(spot)
        for selectors in (self.classes[request.device_class_name].spec.selectors, request.selectors):
            for expression in _expressions(selectors):
                try:
                    if not compile_selector(expression).matches(facts):
                        return False
                except SelectorRuntimeError as error:
                    raise PlainError from error
        return True


def plain_facts(spot: Spot) -> DeviceFacts:
    """Return the input of a device's CEL expressions; version attributes are not supported."""
    device = spot.device
    return DeviceFacts(
        spot.driver,
        bool(device.allow_multiple_allocations),
        {
            name: tuple(each for _, each in value.elements) if value.scalar is None else value.scalar[1]
            for name, value in device.attributes.items()
        },
        {name: str(capacity.value) for name, capacity in device.capacity.items()},
    )


def _expressions(selectors: Sequence[DeviceSelector]) -> Iterator[str]:
    for selector in selectors:
        assert selector.cel is not None
        yield selector.cel.expression


def covers(requests: Sequence[str], name: str) -> bool:
    """Return whether a constraint applies to a request or an alternative (``request/alternative``)."""
    return not requests or name in requests or name.partition("/")[0] in requests


def attribute_of(spot: Spot, name: str) -> DeviceAttribute | None:
    """Return an attribute of a device; names in the domain of its driver may lack the domain."""
    found = spot.device.attributes.get(name)
    if found is None and name.startswith(spot.driver + "/"):
        found = spot.device.attributes.get(name.removeprefix(spot.driver + "/"))
    return found


def _value(spot: Spot, attribute: str) -> tuple[str, int | bool | str] | None:
    found = attribute_of(spot, attribute)
    return None if found is None else found.scalar
