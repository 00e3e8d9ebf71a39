"""Counts devices, their pools and resource claims for the operator's status.

Pools are counted over the whole cluster, while the search for devices reads them as one node sees them: a pool whose
slices target several nodes is complete here if all of its slices exist.
"""

from __future__ import annotations

from bayplan.introspection.status_model import DevicesState
from scheduler_core.devices.pools import PooledSlice, pool_content
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.indexes.device_use import devices_in_use, newest_slices


def devices_state(devices: DeviceIndex, claims_path: str | None) -> DevicesState:
    """Return the counts.

    Args:
        devices: Objects of Dynamic Resource Allocation.
        claims_path: Path from which resource claims are watched; None if they are not.
    """
    pools = newest_slices(devices.hardware.inventory.slices())
    checks = devices.hardware.features.partitionable_devices
    states = [_pool_state(slices, validates_counters=checks) for slices in pools.values()]
    allocated = [claim.status.allocation is not None for claim in devices.claims]
    in_flight = sum(
        claim.status.allocation is None and devices.in_flight(claim.metadata.uid) is not None
        for claim in devices.claims
    )
    return DevicesState(
        api_version="" if claims_path is None else claims_path.removeprefix("/apis/").rpartition("/")[0],
        problem=devices.withheld,
        devices=sum(len(each.names) for slices in pools.values() for each in slices),
        in_use=len(devices_in_use(devices)),
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
