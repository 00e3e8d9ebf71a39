"""Counts devices, their pools and resource claims for the operator's status.

Pools are counted over the whole cluster, while the search for devices reads them as one node sees them: a pool whose
slices target several nodes is complete here if all of its slices exist.
"""

from __future__ import annotations

from bayplan.introspection.status_model import DevicesState
from bayplan.kube.watches.device_informers import API
from scheduler_core.devices.pools import PooledSlice, PoolKey, pool_content
from scheduler_core.snapshot.indexes.device_index import DeviceIndex


def devices_state(devices: DeviceIndex, *, is_read: bool) -> DevicesState:
    """Return the counts.

    Args:
        devices: Objects of Dynamic Resource Allocation.
        is_read: Whether resource claims are watched.
    """
    pools: dict[PoolKey, list[PooledSlice]] = {}
    for each in devices.hardware.inventory.slices():
        slices = pools.setdefault(each.pool_key, [])
        if slices and each.generation != slices[0].generation:
            if each.generation < slices[0].generation:
                continue
            slices.clear()
        slices.append(each)
    checks = devices.hardware.features.partitionable_devices
    states = [_pool_state(slices, validates_counters=checks) for slices in pools.values()]
    allocated = [claim.status.allocation is not None for claim in devices.claims]
    in_flight = sum(
        claim.status.allocation is None and devices.in_flight(claim.metadata.uid) is not None
        for claim in devices.claims
    )
    used = {
        (result.driver, result.pool, result.device)
        for _, allocation in devices.allocations()
        for result in allocation.devices.results
        if not result.admin_access
    }
    return DevicesState(
        api_version=API.removeprefix("/apis/") if is_read else "",
        problem=devices.withheld,
        devices=sum(len(each.names) for slices in pools.values() for each in slices),
        in_use=len(used),
        pools_complete=states.count("complete"),
        pools_incomplete=states.count("incomplete"),
        pools_invalid=states.count("invalid"),
        claims_allocated=sum(allocated),
        claims_pending=len(allocated) - sum(allocated) - in_flight,
        claims_in_flight=in_flight,
    )


def _pool_state(slices: list[PooledSlice], *, validates_counters: bool) -> str:
    """Return ``complete``, ``incomplete`` or ``invalid`` for the newest slices of a pool."""
    slices.sort(key=lambda each: each.name)
    present = [each for each in slices if not each.is_missing]
    if len(present) != slices[0].slice_count:
        return "incomplete"
    content = pool_content([(each, True) for each in present], (), validates_counters=validates_counters)
    return "invalid" if content.problem else "complete"
