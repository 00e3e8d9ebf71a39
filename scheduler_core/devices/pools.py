"""Pools of devices as one node sees them.

Of a pool, only the slices of its newest generation among those that target the node count. Their devices are ordered by
the name of the slice, then as listed. Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1
``structured/internal/incubating/pools_incubating.go``.

An allocation is in flight from Reserve until the API server stores it. A claim counts once: its stored allocation
replaces the one in flight. Admin access does not use a device. A share uses only the capacity that it consumes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import accumulate, chain

from scheduler_core.devices.records import CounterKey, DeviceRecord
from scheduler_core.errors import AllocationError, SelectorError
from scheduler_core.model.affinity import NodeSelector
from scheduler_core.model.devices import AllocationResult, CounterSet, DeviceRequestResult, ResourceClaim
from scheduler_core.model.pod_requests import nano
from scheduler_core.model.selectors import NodeMatcher, compile_readable_node_selector

PoolKey = tuple[str, str]
"""Driver and name of a pool."""


class NodeTarget:
    """The nodes that a slice or a device targets: one by name, all, or those of a selector; else none."""

    __slots__ = ("all_nodes", "is_set", "matcher", "node_name", "node_selector", "problem")

    def __init__(self, node_name: str | None, node_selector: NodeSelector | None, *, all_nodes: bool) -> None:
        self.node_name = node_name
        self.node_selector = node_selector
        self.all_nodes = all_nodes
        self.is_set = bool(node_name) or all_nodes or node_selector is not None
        self.matcher: NodeMatcher | None = None
        self.problem = ""
        if node_selector is not None and not node_name and not all_nodes:
            try:
                self.matcher = compile_readable_node_selector(node_selector)
            except SelectorError as problem:
                self.problem = str(problem)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the node is targeted; raise SelectorError if the selector is invalid."""
        if self.node_name:
            return self.node_name == name
        if self.all_nodes:
            return True
        if self.problem:
            raise SelectorError(self.problem)
        return self.matcher is not None and self.matcher.matches(labels, name)


class DeviceNames:
    """Names of the devices of a pool, in order; shared by pools with equal names."""

    __slots__ = ("__weakref__", "index", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.index = {name: position for position, name in enumerate(names)}


@dataclass(slots=True, eq=False, weakref_slot=True)
class PooledSlice:
    """A slice in the inventory.

    Attributes:
        name: Name of the object; unique.
        pool_key: Driver and pool.
        slice_count: Number of slices of the pool in this generation, as the slice states it.
        device_targets: The nodes of each device, if they differ; else None.
        own_records: Records of the devices with the taints of the driver.
        records: Records of the devices with the taints of rules, too; those before the last change if ``is_stale``.
        is_missing: Whether it counts as missing, because it has fields whose feature is missing.
        is_hidden: Whether it targets no node, because a feature is off.
        has_compatibility_groups: Whether a device has compatibility groups, if that feature is on.
        skips_operations: Whether nodes must be able to skip operations of the driver, if that feature is on.
        is_stale: Whether a rule changed since the records were computed.
    """

    name: str
    pool_key: PoolKey
    generation: int
    slice_count: int
    target: NodeTarget
    device_targets: tuple[NodeTarget, ...] | None
    names: tuple[str, ...]
    own_records: tuple[DeviceRecord, ...]
    records: tuple[DeviceRecord, ...]
    counter_sets: tuple[CounterSet, ...]
    is_missing: bool
    is_hidden: bool
    consumes_counters: bool
    has_binding_conditions: bool
    has_compatibility_groups: bool = False
    skips_operations: bool = False
    is_stale: bool = False

    def targeted_devices(self, name: str, labels: Mapping[str, str]) -> tuple[bool, ...] | bool:
        """Return whether the slice targets a node; for targets by device, whether each does, False if none does.

        Raises:
            AllocationError: A node selector is invalid.
        """
        try:
            if self.target.is_set:
                return self.target.matches(name, labels)
            if self.device_targets is None:
                return False
            targeted = tuple(target.matches(name, labels) for target in self.device_targets)
        except SelectorError as problem:
            raise AllocationError(
                f"gather pool information: failed to perform node selection for slice {self.name}: "
                f"failed to parse node selector: {problem}"
            ) from problem
        return targeted if any(targeted) else False

    def node_target(self, device: int) -> NodeTarget:
        return self.target if self.device_targets is None else self.device_targets[device]


Targeting = tuple[PooledSlice, tuple[bool, ...] | bool]
"""A slice that targets a node, with the devices that do (True: all)."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PoolShape:
    """Identity of the content of a pool without names: pools of one shape offer equal devices."""

    number: int


@dataclass(slots=True, eq=False)
class PoolView:
    """A pool as one node, or several that see equal slices of it, see it.

    Attributes:
        key: Driver and pool.
        is_incomplete: Whether slices are missing; then it has no devices.
        is_invalid: Whether its slices contradict each other; then it has no devices.
        targeted: Whether each device targets the node; None if all do.
        starts: Position of the first device of each slice.
        counters: Shared counters in nano-units.
        others: Slices of the pool that do not target the node; their devices consume counters.
        shape: Identity of the content.
        is_shared: Whether several nodes may reach devices of the pool.
        has_compatibility_groups: Whether a device of the pool, also of another node, has compatibility groups.
    """

    key: PoolKey
    is_incomplete: bool
    is_invalid: bool
    names: DeviceNames
    records: tuple[DeviceRecord, ...]
    targeted: tuple[bool, ...] | None
    slices: tuple[PooledSlice, ...]
    starts: tuple[int, ...]
    counters: dict[CounterKey, int]
    others: tuple[PooledSlice, ...]
    shape: PoolShape
    is_shared: bool = False
    has_compatibility_groups: bool = False

    @property
    def name(self) -> str:
        return f"{self.key[0]}/{self.key[1]}"

    @property
    def has_binding_conditions(self) -> bool:
        """Whether any device has binding conditions; such pools come last."""
        return any(one.has_binding_conditions for one in self.slices)

    def device_name(self, position: int) -> str:
        return f"{self.name}/{self.names.names[position]}"

    def node_target(self, position: int) -> NodeTarget:
        number = bisect_right(self.starts, position) - 1
        return self.slices[number].node_target(position - self.starts[number])


def joined_devices(slices: Sequence[PooledSlice]) -> tuple[tuple[str, ...], tuple[DeviceRecord, ...], tuple[int, ...]]:
    """Return the names and records of all devices, and the position of the first device of each slice."""
    if len(slices) == 1:
        return slices[0].names, slices[0].records, (0,)
    starts = tuple(accumulate((len(one.names) for one in slices[:-1]), initial=0)) if slices else ()
    names = tuple(chain.from_iterable(one.names for one in slices))
    return names, tuple(chain.from_iterable(one.records for one in slices)), starts


def joined_targets(targeting: Sequence[Targeting]) -> tuple[bool, ...] | None:
    """Return whether each device of some slices targets the node; None if all do."""
    if not any(isinstance(mask, tuple) for _, mask in targeting):
        return None
    masks = (mask if isinstance(mask, tuple) else (True,) * len(one.names) for one, mask in targeting)
    joined = tuple(chain.from_iterable(masks))
    return None if all(joined) else joined


def pool_counters(
    targeting: Sequence[PooledSlice], others: Sequence[PooledSlice] = (), *, validates_counters: bool
) -> dict[CounterKey, int] | None:
    """Return the shared counters of a complete pool in nano-units; None if its slices contradict each other.

    Args:
        targeting: Slices that target the node; the names of their devices must differ.
        validates_counters: Whether counters that devices consume must exist (gate DRAPartitionableDevices).
    """
    slices = [*targeting, *others]
    sets = [each for one in slices for each in one.counter_sets]
    set_names = {each.name for each in sets}
    names = [name for one in targeting if not one.counter_sets for name in one.names]
    if len(set_names) < len(sets) or len(set(names)) < len(names):
        return None
    counters = {(each.name, name): nano(counter.value) for each in sets for name, counter in each.counters.items()}
    consuming = [one for one in slices if one.consumes_counters and not one.counter_sets] if validates_counters else ()
    for record in chain.from_iterable(one.records for one in consuming):
        if not (set_names.issuperset(record.counter_sets) and record.counters.keys() <= counters.keys()):
            return None
    return counters


@dataclass(slots=True, eq=False)
class Shares:
    """Shares of one device: their number, and the capacity that they consume in nano-units by name."""

    count: int = 0
    consumed: dict[str, int] = field(default_factory=dict)


class PoolUsage:
    """Devices of one pool that are in use.

    Attributes:
        dedicated: Number of allocations of each device that is allocated as a whole; more than one is a conflict.
        revision: Number of changes of all pools at the last change of this one.
    """

    __slots__ = ("_patterns", "dedicated", "revision", "shares")

    def __init__(self) -> None:
        self.dedicated: dict[str, int] = {}
        self.shares: dict[str, Shares] = {}
        self.revision = 0
        self._patterns: dict[DeviceNames, Hashable] = {}

    def __bool__(self) -> bool:
        return bool(self.dedicated or self.shares)

    def uses(self, device: str) -> bool:
        return device in self.dedicated or device in self.shares

    def pattern(self, names: DeviceNames) -> Hashable:
        """Return a key that is equal for equal use of the devices at equal positions of ``names``."""
        found = self._patterns.get(names)
        if found is None:
            index = names.index
            dedicated = tuple(sorted(index[name] for name in self.dedicated if name in index))
            shared = tuple(
                sorted(
                    (index[name], tuple(sorted(shares.consumed.items())))
                    for name, shares in self.shares.items()
                    if name in index
                )
            )
            found = self._patterns[names] = (dedicated, shared)
        return found

    def copy(self) -> PoolUsage:
        made = PoolUsage()
        made.dedicated, made.revision = dict(self.dedicated), self.revision
        made.shares = {device: Shares(shares.count, dict(shares.consumed)) for device, shares in self.shares.items()}
        return made

    def change(self, result: DeviceRequestResult, sign: int, revision: int, *, shares_count: bool) -> None:
        """Add (``sign`` 1) or remove (-1) an allocated device."""
        self.revision = revision
        self._patterns.clear()
        device = result.device
        if result.share_id is None or not shares_count:
            number = self.dedicated.get(device, 0) + sign
            if number:
                self.dedicated[device] = number
            else:
                del self.dedicated[device]
            return
        shares = self.shares.setdefault(device, Shares())
        shares.count += sign
        for name, quantity in result.consumed_capacity.items():
            shares.consumed[name] = shares.consumed.get(name, 0) + sign * nano(quantity)
        if not shares.count:
            del self.shares[device]


@dataclass(slots=True, eq=False)
class _ClaimUse:
    """Allocations of one claim: the stored one, and the one in flight."""

    stored: AllocationResult | None = None
    in_flight: AllocationResult | None = None

    @property
    def effective(self) -> AllocationResult | None:
        return self.in_flight if self.stored is None else self.stored


class AllocatedDevices:
    """Devices in use by pool.

    Args:
        on_change: Called with each pool of which other devices are in use now.
        consumable_capacity: Whether shares use only a part of a device (gate DRAConsumableCapacity).
    """

    def __init__(
        self, on_change: Callable[[PoolKey], None] = lambda _: None, *, consumable_capacity: bool = True
    ) -> None:
        self._on_change = on_change
        self.revision = 0
        """Number of changes."""
        self._shares_count = consumable_capacity
        self._pools: dict[PoolKey, PoolUsage] = {}
        self._claims: dict[str, _ClaimUse] = {}

    def put_claim(self, claim: ResourceClaim) -> None:
        self._set(claim.metadata.uid, stored=claim.status.allocation)

    def remove_claim(self, uid: str) -> None:
        """Remove the stored allocation of a deleted claim; an allocation in flight stays until it is removed."""
        self._set(uid, stored=None)

    def put_in_flight(self, uid: str, allocation: AllocationResult) -> None:
        """Record the allocation of a claim that is not yet stored."""
        self._set(uid, in_flight=allocation)

    def remove_in_flight(self, uid: str) -> None:
        """Remove the allocation in flight of a claim, if there is one."""
        self._set(uid, in_flight=None)

    def usage(self, key: PoolKey) -> PoolUsage | None:
        """Return what is in use of a pool; None for nothing."""
        return self._pools.get(key)

    def with_changes(self, added: Iterable[AllocationResult], removed: Iterable[AllocationResult] = ()) -> ChangedUse:
        """Return the devices in use with other allocations; nothing is changed here.

        Args:
            removed: Allocations that are counted.
        """
        return ChangedUse(self, added, removed, shares_count=self._shares_count)

    def _set(self, uid: str, **changes: AllocationResult | None) -> None:
        use = self._claims.get(uid)
        if use is None:
            if not any(changes.values()):
                return
            use = self._claims[uid] = _ClaimUse()
        before, old = use.effective, (use.stored, use.in_flight)
        use.stored, use.in_flight = changes.get("stored", use.stored), changes.get("in_flight", use.in_flight)
        try:
            after = use.effective
            if after is not before:
                self.revision += 1
                self._count(before, -1)
                self._count(after, 1)
        except Exception:
            use.stored, use.in_flight = old
            self._recount()
            raise
        if use.stored is None and use.in_flight is None:
            del self._claims[uid]

    def _recount(self) -> None:
        """Count all claims again, after an exception interrupted a change."""
        self.revision += 1
        pools, self._pools = self._pools, {}
        for use in self._claims.values():
            self._count(use.effective, 1)
        for key in pools:
            self._on_change(key)

    def _count(self, allocation: AllocationResult | None, sign: int) -> None:
        if allocation is None:
            return
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            key = (result.driver, result.pool)
            usage = self._pools.get(key)
            if usage is None:
                usage = self._pools[key] = PoolUsage()
            usage.change(result, sign, self.revision, shares_count=self._shares_count)
            if not usage:
                del self._pools[key]
            self._on_change(key)


class ChangedUse:
    """Devices in use by pool, with some allocations added and others removed; see ``AllocatedDevices.with_changes``.

    Attributes:
        pools: The pools whose use differs.
    """

    __slots__ = ("_changes", "_shares_count", "_used", "pools")

    def __init__(
        self,
        used: AllocatedDevices,
        added: Iterable[AllocationResult],
        removed: Iterable[AllocationResult],
        *,
        shares_count: bool,
    ) -> None:
        self._used = used
        self._shares_count = shares_count
        self._changes: dict[PoolKey, list[tuple[int, DeviceRequestResult]]] = {}
        for sign, allocations in ((-1, removed), (1, added)):
            for result in chain.from_iterable(each.devices.results for each in allocations):
                if not result.admin_access:
                    self._changes.setdefault((result.driver, result.pool), []).append((sign, result))
        self.pools: AbstractSet[PoolKey] = self._changes.keys()

    def usage(self, key: PoolKey) -> PoolUsage | None:
        """Return what is in use of a pool; None for nothing."""
        used, changes = self._used.usage(key), self._changes.get(key)
        if changes is None:
            return used
        made = PoolUsage() if used is None else used.copy()
        names = tuple((sign, result.device) for sign, result in changes)
        # A search whose result depends on the revision must not be taken for one of the unchanged pool.
        revision = hash((made.revision, names))
        for sign, result in changes:
            made.change(result, sign, revision, shares_count=self._shares_count)
        return made or None


UsedDevices = AllocatedDevices | ChangedUse
