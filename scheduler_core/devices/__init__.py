"""Dynamic Resource Allocation without input and output: devices of the cluster, their use, and the search for devices.

:class:`~scheduler_core.devices.inventory.DeviceInventory` and
:class:`~scheduler_core.devices.pools.AllocatedDevices` are updated by feeds; an
:class:`~scheduler_core.devices.allocator.Allocator` is made for each scheduling attempt.
"""
