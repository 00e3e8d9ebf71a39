"""Objects of Dynamic Resource Allocation, indexed for lookups by plugins, with the allocations in flight.

An allocation is in flight from Reserve until it is written to its claim, so that no other pod gets its devices:

    unallocated --begin_allocation--> in flight --written, PreBind succeeded--> allocated
                                          |
                                          +--end_allocation (Unreserve)--> unallocated

The newest version of a claim counts, whether a watch or a write delivered it. All profiles share the index.

Writes to one claim take turns, whatever profile they come from: concurrent writes with a resource version conflict, and
each conflict costs a read and another write. A pod that gets its turn reserves the claim for the pods that wait behind
it as well, so that many pods with one claim need few writes.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dra_manager.go``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.devices.pools import PooledSlice, PoolKey
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.errors import ClusterWriteError
from scheduler_core.model.devices import (
    DEVICE_CLASS_PREFIX,
    EXTENDED_RESOURCE_CLAIM,
    MAX_CONSUMERS,
    UNKNOWN_DEVICE,
    AllocationResult,
    ClaimConsumer,
    DeviceAllocation,
    DeviceClass,
    DeviceRequestResult,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceClaim,
    ResourceSlice,
)
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.model.pod_requests import nano
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter

log = logging.getLogger(__name__)


class WaitingConsumer(Struct, frozen=True, gc=False):
    """A pod or PodGroup whose reservation has not been written yet, with the allocation that it relies on."""

    consumer: ClaimConsumer
    allocation: AllocationResult | None


class _Writes(Struct):
    """Writes of one claim that wait or run."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0
    waiting: dict[str, WaitingConsumer] = field(default_factory=dict)


class ClaimTurns:
    """Turns by the UID of the claim, and the writes that no extension point awaits.

    Attributes:
        steps: Returns the coroutine of a background task, with its steps in order; the scheduler sets it.
    """

    def __init__(self) -> None:
        self.steps: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]] = lambda work: work
        self._writes: dict[str, _Writes] = {}
        self._background: dict[asyncio.Task[None], str] = {}

    @asynccontextmanager
    async def turn(
        self, claim: ResourceClaim, reserver: WaitingConsumer | None = None
    ) -> AsyncIterator[Sequence[WaitingConsumer]]:
        """Wait until no other write to a claim runs, and keep others waiting until the context ends.

        Yields:
            All consumers that wait for a reservation when the turn begins, the reserver first.
        """
        writes = self._writes.setdefault(claim.metadata.uid, _Writes())
        writes.count += 1
        if reserver is not None:
            writes.waiting[reserver.consumer.uid] = reserver
        try:
            async with writes.lock:
                others = [each for each in writes.waiting.values() if each is not reserver]
                yield others if reserver is None else (reserver, *others)
        finally:
            if reserver is not None and writes.waiting.get(reserver.consumer.uid) is reserver:
                del writes.waiting[reserver.consumer.uid]
            writes.count -= 1
            if not writes.count:
                del self._writes[claim.metadata.uid]

    def start(self, what: str, claim: ResourceClaim, write: Coroutine[Any, Any, None]) -> None:
        """Run a write in the background, *what* in the log if it fails; PreBind of the same claim waits for it."""
        task = asyncio.get_running_loop().create_task(self.steps(self._logged(f"{what} {claim.key}", write)))
        self._background[task] = claim.metadata.uid

        def ended(task: asyncio.Task[None]) -> None:
            # A task that is cancelled before it runs ends without its last step, and never awaits the write.
            self._ended(task)
            write.close()

        task.add_done_callback(ended)

    async def finished(self, claims: Sequence[ResourceClaim]) -> bool:
        """Wait until no background write to one of the claims runs; return whether there was one."""
        uids = {claim.metadata.uid for claim in claims}
        running = [task for task, uid in self._background.items() if uid in uids]
        if running:
            await asyncio.wait(running)
        return bool(running)

    async def _logged(self, what: str, write: Coroutine[Any, Any, None]) -> None:
        try:
            await write
        except ClusterWriteError as problem:
            log.warning("%s: %s", what, problem)
        finally:
            # A step of the task, so that its order among the other steps is recorded.
            self._ended(asyncio.current_task())

    def _ended(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._background.pop(task, None)


DeviceObject = ResourceClaim | DeviceClass | ResourceSlice | DeviceTaintRule
"""Any of these kinds."""


class InFlightAllocation(Struct):
    """An allocation that is not written yet.

    Attributes:
        sharers: UIDs of the pods that are reserved with it.
        group: Key of the pod group whose members may share it; None if it belongs to a single pod.
    """

    claim: ResourceClaim
    allocation: AllocationResult
    group: GroupKey | None
    sharers: set[str] = field(default_factory=set)


class HeldDevices(Struct, frozen=True):
    """Devices that are held for a pod.

    Attributes:
        holder: That pod, for messages.
        allocations: The devices, as those of its claims.
    """

    holder: str
    allocations: tuple[AllocationResult, ...]


def allocations_of(held: Iterable[HeldDevices]) -> list[AllocationResult]:
    return [allocation for each in held for allocation in each.allocations]


class CreatedClaim(Struct):
    """A claim that was created here.

    Attributes:
        seconds: When it was created, or last read, on the scheduler's clock.
    """

    claim: ResourceClaim
    seconds: float


def devices_of(allocations: Iterable[AllocationResult | None]) -> set[tuple[str, str, str]]:
    """Return driver, pool and name of each device of some allocations, those with admin access left out."""
    results = (result for each in allocations if each is not None for result in each.devices.results)
    return {(each.driver, each.pool, each.device) for each in results if not each.admin_access}


def pools_of(claim: ResourceClaim) -> set[PoolKey]:
    """Return the pools of the devices that a claim uses, without those to which it has admin access."""
    allocation = claim.status.allocation
    if allocation is None:
        return set()
    return {(each.driver, each.pool) for each in allocation.devices.results if not each.admin_access}


class ClaimTable:
    """Claims in their newest version, in the order in which they were first seen.

    Attributes:
        shared: Keys of the allocated claims with several consumers.
    """

    __slots__ = ("_claims", "_for_resources", "_numbers", "_of_consumer", "_of_pool", "_seen", "shared")

    def __init__(self) -> None:
        self._claims: dict[str, ResourceClaim] = {}
        self._for_resources: dict[str, set[str]] = {}
        self._numbers: dict[str, int] = {}
        self._seen = 0
        self._of_consumer: dict[str, set[str]] = {}
        self._of_pool: dict[PoolKey, set[str]] = {}
        self.shared: set[str] = set()

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._claims.values())

    def __len__(self) -> int:
        return len(self._claims)

    def get(self, key: str) -> ResourceClaim | None:
        return self._claims.get(key)

    def assign(self, claim: ResourceClaim) -> None:
        """Set a claim, unless a newer version of it is stored."""
        key = claim.key
        stored = self._claims.get(key)
        if stored is None:
            self._seen += 1
            self._numbers[key] = self._seen
        elif stored.metadata.uid == claim.metadata.uid and _is_older(claim, stored):
            return
        elif _is_indexed_as(stored, claim):
            self._claims[key] = claim
            return
        # What may raise comes first: a half changed table would take the repeated change for one that is indexed.
        indexed = self._indexed(claim)
        if stored is not None:
            self._unindex(key, stored)
        self._claims[key] = claim
        for index, value in indexed:
            index.setdefault(value, set()).add(key)
        if claim.status.allocation is not None and len(claim.status.reserved_for) > 1:
            self.shared.add(key)

    def remove(self, claim: ResourceClaim) -> bool:
        """Remove a claim; return False if the stored claim of that name has another UID, or there is none."""
        key = claim.key
        stored = self._claims.get(key)
        if stored is None or stored.metadata.uid != claim.metadata.uid:
            return False
        self._unindex(key, stored)
        del self._claims[key], self._numbers[key]
        return True

    def in_order(self, keys: Collection[str]) -> list[ResourceClaim]:
        """Return claims in the order of the table."""
        return [self._claims[key] for key in (sorted(keys, key=self._numbers.__getitem__) if len(keys) > 1 else keys)]

    def of_consumer(self, uid: str) -> list[ResourceClaim]:
        """Return the allocated claims that are reserved for a pod or PodGroup."""
        return self.in_order(self._of_consumer.get(uid, ()))

    def in_pools(self, pools: Iterable[PoolKey]) -> set[str]:
        """Return the keys of the claims that use a device of some pools, without admin access."""
        found = [keys for pool in pools if (keys := self._of_pool.get(pool)) is not None]
        return set[str]().union(*found)

    def for_resources_of(self, owner_uid: str) -> list[ResourceClaim]:
        return self.in_order(self._for_resources.get(owner_uid, ()))

    def _indexed(self, claim: ResourceClaim) -> list[tuple[dict[Any, set[str]], object]]:
        """Return each index that has a claim, and what has it there."""
        found: list[tuple[dict[Any, set[str]], object]] = []
        status = claim.status
        if EXTENDED_RESOURCE_CLAIM in claim.metadata.annotations:
            found += [(self._for_resources, owner.uid) for owner in claim.metadata.owner_references]
        if status.allocation is not None:
            found += [(self._of_consumer, each.uid) for each in status.reserved_for]
            found += [(self._of_pool, pool) for pool in pools_of(claim)]
        return found

    def _unindex(self, key: str, stored: ResourceClaim) -> None:
        for index, value in self._indexed(stored):
            keys = index.get(value, set())
            keys.discard(key)
            if not keys:
                index.pop(value, None)
        self.shared.discard(key)


def _is_indexed_as(stored: ResourceClaim, claim: ResourceClaim) -> bool:
    old, new = stored.metadata, claim.metadata
    return (
        stored.status == claim.status
        and old.annotations == new.annotations
        and old.owner_references == new.owner_references
    )


class DeviceIndex:
    """All objects of Dynamic Resource Allocation.

    Attributes:
        withheld: Why claims cannot be allocated now, for example because they are not listed yet; "" if they can.
        are_lists_expected: Whether claims are withheld only until the first lists are complete.
        group_claims: Whether PodGroups may have claims (gate DRAWorkloadResourceClaims).
        classes_version: Incremented by every change of a class.
        on_freed: Called with a claim as it would have been allocated, and without an allocation, if it is not written.
        holds: Sources of devices that are held; each returns those that a pod may not use.
    """

    def __init__(self, features: DeviceFeatures | None = None, steps: StepCounter | None = None) -> None:
        self.withheld = ""
        self.are_lists_expected = False
        self.group_claims = False
        self.claims = ClaimTable()
        self.unreadable_claims: set[str] = set()
        self.classes: dict[str, DeviceClass] = {}
        self.classes_version = 0
        self.hardware = ClusterDevices.empty(features, steps=steps)
        self.turns = ClaimTurns()
        self.on_freed: list[Callable[[ResourceClaim, ResourceClaim], None]] = []
        self.holds: list[Callable[[PodInfo], Iterable[HeldDevices]]] = []
        self._created: dict[str, CreatedClaim] = {}
        """Claims that were created here and that no watch has shown yet, by UID."""
        self._in_flight: dict[str, InFlightAllocation] = {}
        self._assumed_consumers: dict[str, dict[str, int]] = {}
        self._resources: dict[str, DeviceClass] = {}

    # -- objects of the API server ------------------------------------------------------------------------------

    def assign(self, shown: DeviceObject) -> None:
        """Add or replace an object; raise SchedulerCoreError if the object cannot be read; nothing was changed."""
        match shown:
            case ResourceClaim():
                self.assign_claim(shown)
                self._created.pop(shown.metadata.uid, None)
            case DeviceClass():
                self.classes[shown.metadata.name] = shown
                self._map_resources()
            case ResourceSlice():
                self.hardware.inventory.put_slice(shown)
            case DeviceTaintRule():
                self.hardware.inventory.put_taint_rule(shown)

    def remove(self, gone: DeviceObject) -> None:
        match gone:
            case ResourceClaim():
                # The devices first, in each of these methods: a change that raises is repeated, and finds the claim.
                stored = self.claims.get(gone.key)
                if stored is not None and stored.metadata.uid == gone.metadata.uid:
                    self.hardware.allocated.remove_claim(gone.metadata.uid)
                    self.claims.remove(gone)
                self._created.pop(gone.metadata.uid, None)
            case DeviceClass():
                self.classes.pop(gone.metadata.name, None)
                self._map_resources()
            case ResourceSlice():
                self.hardware.inventory.remove_slice(gone.metadata.name)
            case DeviceTaintRule():
                self.hardware.inventory.remove_taint_rule(gone.metadata.name)

    def hold(self, source: str, shown: DeviceObject) -> None:
        """Handle an object that cannot be decoded: no pod gets a device that may be in use or tainted.

        The devices that a claim names are in use as a whole. A pool of which a device, a taint or a slice is not known
        shows no devices. Pods that use the claim wait.
        """
        match shown:
            case ResourceClaim():
                self.unreadable_claims.add(shown.key)
                unknown = self._assign_unreadable(shown)
                self._created.pop(shown.metadata.uid, None)
            case ResourceSlice():
                known = self.hardware.inventory.slice_key(shown.metadata.name)
                self.remove(shown)
                driver, pool = shown.pool_key if shown.spec.driver else known or ("", "")
                unknown = (DeviceTaintSelector(driver, pool or None),) if driver else ()
            case DeviceTaintRule():
                unknown = (shown.spec.device_selector or DeviceTaintSelector(),)
            case _:
                self.remove(shown)
                unknown = ()
        self.hardware.inventory.hold(source, unknown)

    def _assign_unreadable(self, claim: ResourceClaim) -> tuple[DeviceTaintSelector, ...]:
        """Set a claim that cannot be decoded; return selectors of the pools of which it may have any device."""
        stored, allocation = self.claims.get(claim.key), claim.status.allocation
        results = () if allocation is None else allocation.devices.results
        if UNKNOWN_DEVICE in results and stored is not None and stored.metadata.uid == claim.metadata.uid:
            # An allocation does not change until it is removed.
            before = stored.status.allocation
            results = results if before is None else before.devices.results
        named = tuple(
            DeviceRequestResult(each.request, each.driver, each.pool, each.device, each.admin_access)
            for each in results
            if each.driver and each.pool and each.device
        )
        allocation = AllocationResult(DeviceAllocation(named)) if results else None
        self.assign_claim(replace(claim, status=replace(claim.status, allocation=allocation)))
        return tuple(
            DeviceTaintSelector(each.driver or None, each.pool or None)
            for each in results
            if not (each.driver and each.pool and each.device)
        )

    def release(self, source: str, shown: DeviceObject) -> None:
        """End :meth:`hold`; the object was read or deleted."""
        if isinstance(shown, ResourceClaim):
            self.unreadable_claims.discard(shown.key)
        self.hardware.inventory.hold(source, ())

    def assign_claim(self, claim: ResourceClaim) -> None:
        """Set a claim as a watch or a write delivered it, unless a newer version is stored."""
        allocation = claim.status.allocation
        for result in () if allocation is None else allocation.devices.results:
            for quantity in result.consumed_capacity.values():
                nano(quantity)
        stored = self.claims.get(claim.key)
        if stored is not None:
            if stored.metadata.uid != claim.metadata.uid:
                self.hardware.allocated.remove_claim(stored.metadata.uid)
            elif _is_older(claim, stored):
                return
        self.hardware.allocated.put_claim(claim)
        self.claims.assign(claim)

    def claim_written(self, claim: ResourceClaim) -> None:
        """Set a claim as a write returned it, unless a watch has reported its deletion before the response."""
        stored = self.claims.get(claim.key)
        if stored is not None and stored.metadata.uid == claim.metadata.uid:
            self.assign_claim(claim)

    def claim_created(self, claim: ResourceClaim, seconds: float) -> None:
        """Set a claim that was created here. Until a watch has shown it, its deletion may go unreported.

        Args:
            seconds: Time on the scheduler's clock.
        """
        stored = self.claims.get(claim.key)
        is_shown = stored is not None and stored.metadata.uid == claim.metadata.uid
        self.assign_claim(claim)
        if not is_shown:
            self._created[claim.metadata.uid] = CreatedClaim(claim, seconds)

    def unshown_claims(self, before: float) -> list[CreatedClaim]:
        """Return the claims that were created, or read since, before a time, and that no watch has shown yet."""
        return [each for each in self._created.values() if each.seconds < before]

    # -- allocations in flight ----------------------------------------------------------------------------------

    def in_flight(self, uid: str) -> InFlightAllocation | None:
        """Return the allocation of a claim that is not written yet."""
        return self._in_flight.get(uid)

    def held_from(self, pod: PodInfo) -> list[HeldDevices]:
        """Return the devices that are held for other pods, and that a pod may not use."""
        return [held for source in self.holds for held in source(pod)]

    def in_flight_of(self, pod_uid: str) -> list[InFlightAllocation]:
        return [held for held in self._in_flight.values() if pod_uid in held.sharers]

    def report_freed(self, held: Iterable[InFlightAllocation]) -> None:
        """Call :attr:`on_freed` for those allocations that are not in flight any more and were not written.

        That includes the allocation of a claim that another scheduler has allocated to other devices meanwhile.
        """
        for each in held:
            claim = self.claims.get(each.claim.key) or each.claim
            stored = claim.status.allocation
            is_written = stored is not None and _devices(each.allocation) <= _devices(stored)
            if is_written or each.claim.metadata.uid in self._in_flight:
                continue
            allocated = replace(claim, status=replace(claim.status, allocation=each.allocation))
            freed = replace(claim, status=replace(claim.status, allocation=None))
            for callback in self.on_freed:
                callback(allocated, freed)

    def begin_allocation(
        self, claim: ResourceClaim, allocation: AllocationResult, pod_uid: str, group: GroupKey | None = None
    ) -> None:
        """Count an allocation that a pod is reserved with; a claim that is allocated meanwhile is left alone."""
        uid = claim.metadata.uid
        held = self._in_flight.get(uid)
        if held is None:
            stored = self.claims.get(claim.key)
            if stored is not None and stored.metadata.uid == uid and stored.status.allocation is not None:
                return
            self.hardware.allocated.put_in_flight(uid, allocation)
            held = self._in_flight[uid] = InFlightAllocation(claim, allocation, group)
        held.sharers.add(pod_uid)

    def end_allocation(self, uid: str, pod_uid: str) -> None:
        """Drop a pod from an allocation in flight; the last one ends it."""
        held = self._in_flight.get(uid)
        if held is not None:
            held.sharers.discard(pod_uid)
            if not held.sharers:
                self.written(uid)

    def written(self, uid: str) -> None:
        """End an allocation in flight: only what is written to the claim counts from now on."""
        if uid in self._in_flight:
            self.hardware.allocated.remove_in_flight(uid)
            del self._in_flight[uid]

    def allocations(self) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
        """Yield the allocated claims with their allocation, written or in flight."""
        in_memory = dict(self._in_flight)
        for claim in self.claims:
            held = in_memory.pop(claim.metadata.uid, None)
            allocation = claim.status.allocation or (None if held is None else held.allocation)
            if allocation is not None:
                yield claim, allocation
        for held in in_memory.values():
            yield held.claim, held.allocation

    # -- consumers --------------------------------------------------------------------------------------------------

    def assume_consumer(self, claim_uid: str, consumer_uid: str) -> None:
        """Count a consumer of a claim whose reservation is not written yet."""
        assumed = self._assumed_consumers.setdefault(claim_uid, {})
        assumed[consumer_uid] = assumed.get(consumer_uid, 0) + 1

    def drop_consumer(self, claim_uid: str, consumer_uid: str) -> None:
        """Undo :meth:`assume_consumer`, or replace it by the written reservation."""
        assumed = self._assumed_consumers.get(claim_uid, {})
        count = assumed.pop(consumer_uid, 0) - 1
        if count > 0:
            assumed[consumer_uid] = count
        if not assumed:
            self._assumed_consumers.pop(claim_uid, None)

    def is_full(self, claim: ResourceClaim, consumer_uid: str = "") -> bool:
        """Return whether a claim, reservations that are not written yet included, admits no other consumer."""
        stored = self.claims.get(claim.key)
        if stored is None or stored.metadata.uid != claim.metadata.uid:
            stored = claim
        assumed = self._assumed_consumers.get(claim.metadata.uid, ())
        if len(stored.status.reserved_for) + len(assumed) < MAX_CONSUMERS:
            return False
        consumers = {*assumed, *(each.uid for each in stored.status.reserved_for)}
        return consumer_uid not in consumers and len(consumers) >= MAX_CONSUMERS

    def has_unwritten_consumers(self, claim: ResourceClaim) -> bool:
        """Return whether pods use a claim, or are being allocated it, whose reservations are not written yet."""
        uid = claim.metadata.uid
        reserved = {each.uid for each in claim.status.reserved_for}
        return uid in self._in_flight or not reserved.issuperset(self._assumed_consumers.get(uid, ()))

    def full_claims_of(self, consumer_uid: str) -> list[ResourceClaim]:
        """Return the claims that admit no other consumer, and that a consumer is assumed to use."""
        uids = {uid for uid, assumed in self._assumed_consumers.items() if consumer_uid in assumed}
        return [claim for claim in self.claims if claim.metadata.uid in uids and self.is_full(claim)] if uids else []

    def report_dropped(self, claims: Iterable[ResourceClaim], consumer: ClaimConsumer) -> None:
        """Call :attr:`on_freed` for claims that admit another consumer now, because one was dropped."""
        for claim in claims:
            if not self.is_full(claim):
                reserved_for = (*claim.status.reserved_for, consumer)
                before = replace(claim, status=replace(claim.status, reserved_for=reserved_for))
                for callback in self.on_freed:
                    callback(before, claim)

    # -- extended resources -------------------------------------------------------------------------------------

    def class_of_resource(self, name: str) -> DeviceClass | None:
        """Return the class that serves an extended resource; of several, the newest, then the first by name."""
        return self._resources.get(name)

    def _map_resources(self) -> None:
        self.classes_version += 1
        self._resources = {DEVICE_CLASS_PREFIX + name: each for name, each in self.classes.items()}
        for each in sorted(self.classes.values(), key=_age_and_name, reverse=True):
            if each.spec.extended_resource_name is not None:
                self._resources[each.spec.extended_resource_name] = each


def _devices(allocation: AllocationResult) -> set[tuple[str, str, str, str | None]]:
    """Return the devices of an allocation, those with shares by share."""
    return {(each.driver, each.pool, each.device, each.share_id) for each in allocation.devices.results}


def _age_and_name(each: DeviceClass) -> tuple[float, str]:
    """Sort the newest first, then by name."""
    created = each.metadata.creation_timestamp
    return (0.0 if created is None else -created.timestamp(), each.metadata.name)


def _is_older(claim: ResourceClaim, stored: ResourceClaim) -> bool:
    new, old = claim.metadata.resource_version, stored.metadata.resource_version
    return new.isdecimal() and old.isdecimal() and int(new) < int(old)


class DeviceUse(Struct):
    """Devices of one driver that one node, or several, can reach.

    Attributes:
        node_name: The node; "" for devices that are not bound to a node by name.
        in_use: Number of those that an allocation has, written or in flight, without admin access.
    """

    driver: str
    node_name: str
    devices: int = 0
    in_use: int = 0


def newest_slices(slices: Iterable[PooledSlice]) -> dict[PoolKey, list[PooledSlice]]:
    pools: dict[PoolKey, list[PooledSlice]] = {}
    for each in slices:
        found = pools.setdefault(each.pool_key, [])
        if found and each.generation != found[0].generation:
            if each.generation < found[0].generation:
                continue
            found.clear()
        found.append(each)
    return pools


def devices_in_use(devices: DeviceIndex) -> set[tuple[str, str, str]]:
    """Return driver, pool and name of each device that an allocation has without admin access, written or in flight."""
    return devices_of(allocation for _, allocation in devices.allocations())


def device_uses(devices: DeviceIndex) -> tuple[DeviceUse, ...]:
    """Return the devices by driver, then by node, over the whole cluster, not as the search of one node sees them."""
    steps = count_device_uses(devices)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[DeviceUse, ...] = end.value
            return found


def count_device_uses(devices: DeviceIndex) -> Generator[None, None, tuple[DeviceUse, ...]]:
    """Return what :func:`device_uses` returns, and yield after each slice; later changes count or do not."""
    used = devices_in_use(devices)
    slices_of = newest_slices(list(devices.hardware.inventory.slices()))
    found: dict[tuple[str, str], DeviceUse] = {}
    yield
    for key, slices in slices_of.items():
        for each in slices:
            for position, name in enumerate(each.names):
                node_name = each.node_target(position).node_name or ""
                use = found.setdefault((key[0], node_name), DeviceUse(key[0], node_name))
                use.devices += 1
                use.in_use += (*key, name) in used
            yield
    return tuple(found[each] for each in sorted(found))
