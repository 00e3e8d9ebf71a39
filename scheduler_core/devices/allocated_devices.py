"""Devices in use: those that claims have allocated, and those of allocations in flight.

An allocation is in flight from Reserve until the API server stores it. A claim counts once: its stored allocation
replaces the one in flight. Admin access does not use a device. A share uses only the capacity that it consumes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from scheduler_core.devices.pools import DeviceNames, PoolKey
from scheduler_core.model.devices import AllocationResult, DeviceRequestResult, ResourceClaim
from scheduler_core.model.quantity import nano


class Shares:
    """Shares of one device: their number, and the capacity that they consume in nano-units by name."""

    __slots__ = ("consumed", "count")

    def __init__(self) -> None:
        self.count = 0
        self.consumed: dict[str, int] = {}


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
        """Return whether a device is in use, as a whole or by shares."""
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


class _ClaimUse:
    """Allocations of one claim: the stored one, and the one in flight."""

    __slots__ = ("in_flight", "stored")

    def __init__(self) -> None:
        self.stored: AllocationResult | None = None
        self.in_flight: AllocationResult | None = None

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
        """Record the stored allocation of a claim, or that it has none."""
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
