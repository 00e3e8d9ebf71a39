"""Resources and devices that the page shows, read in turns of the event loop."""

from __future__ import annotations

from bayplan.page.page_sources import Turns
from scheduler_core.model.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, is_extended_resource
from scheduler_core.ports import Clock
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, DeviceUse, count_device_uses
from scheduler_core.snapshot.node_columns import NodeColumns

_MAX_RESOURCES = 16
_DEVICE_SECONDS = 5.0
"""Minimum time between two counts of devices, which read every published device."""


def shown_resources(columns: NodeColumns) -> list[tuple[str, int]]:
    """Return name and column of the resources to show: CPU, memory, then those that are extended or requested."""
    found = []
    for column, name in enumerate(columns.resources.keys):
        if not name:
            continue
        is_requested = bool(columns.requested[column].any())
        is_offered = bool(columns.allocatable[column].any())
        if name in (CPU, MEMORY) or (is_offered and (is_requested or is_extended_resource(name))):
            found.append((name, column))
    order = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 3}
    found.sort(key=lambda each: (order.get(each[0], 2), each[0]))
    return found[:_MAX_RESOURCES]


class NodeDevices:
    """Devices of Dynamic Resource Allocation, counted at most every few seconds.

    Args:
        devices: Objects of Dynamic Resource Allocation.
        clock: Time.
    """

    def __init__(self, devices: DeviceIndex, clock: Clock) -> None:
        self._devices = devices
        self._clock = clock
        self._counted_at = float("-inf")
        self._uses: tuple[DeviceUse, ...] = ()

    async def by_node(self, turns: Turns) -> tuple[DeviceUse, ...]:
        """Return the devices by driver and node."""
        if self._clock.now() - self._counted_at >= _DEVICE_SECONDS:
            self._counted_at = self._clock.now()
            steps = count_device_uses(self._devices)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    self._uses = end.value
                    break
                await turns.pause_if_due()
        return self._uses

    async def by_driver(self, turns: Turns) -> dict[str, tuple[int, int]]:
        """Return the number of devices in use and of published devices, by driver."""
        found: dict[str, tuple[int, int]] = {}
        for use in await self.by_node(turns):
            in_use, devices = found.get(use.driver, (0, 0))
            found[use.driver] = in_use + use.in_use, devices + use.devices
        return found
