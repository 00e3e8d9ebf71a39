"""Counts of devices: published ones by driver and node, and those that are in use.

Pools are counted over the whole cluster, while the search for devices reads them as one node sees them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from msgspec import Struct

from scheduler_core.devices.pools import PooledSlice, PoolKey
from scheduler_core.snapshot.indexes.device_index import DeviceIndex


class DeviceUse(Struct):
    """Devices of one driver that one node, or several, can reach.

    Attributes:
        node_name: The node; "" for devices that are not bound to a node by name.
        devices: Number of published devices.
        in_use: Number of those that an allocation has, written or in flight, without admin access.
    """

    driver: str
    node_name: str
    devices: int = 0
    in_use: int = 0


def newest_slices(slices: Iterable[PooledSlice]) -> dict[PoolKey, list[PooledSlice]]:
    """Return the slices of the newest generation of each pool."""
    pools: dict[PoolKey, list[PooledSlice]] = {}
    for each in slices:
        found = pools.setdefault(each.pool_key, [])
        if found and each.generation != found[0].generation:
            if each.generation < found[0].generation:
                continue
            found.clear()
        found.append(each)
    return pools


def devices_in_use(devices: DeviceIndex) -> set[tuple[PoolKey, str]]:
    """Return pool and name of each device that an allocation has without admin access, written or in flight."""
    return {
        ((result.driver, result.pool), result.device)
        for _, allocation in devices.allocations()
        for result in allocation.devices.results
        if not result.admin_access
    }


def device_uses(devices: DeviceIndex) -> tuple[DeviceUse, ...]:
    """Return the devices by driver and node.

    Returns:
        One entry for each driver and node with devices, by driver, then by node.
    """
    steps = count_device_uses(devices)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[DeviceUse, ...] = end.value
            return found


def count_device_uses(devices: DeviceIndex) -> Generator[None, None, tuple[DeviceUse, ...]]:
    """Return what :func:`device_uses` returns, and yield after each slice, so that other work can run meanwhile.

    What changes after the first step is counted or not.
    """
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
                use.in_use += (key, name) in used
            yield
    return tuple(found[each] for each in sorted(found))
