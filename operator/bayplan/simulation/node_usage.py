"""Requested and allocatable amounts of every node at the end of a simulation, their totals, and amounts as text.

Devices of Dynamic Resource Allocation are counted by driver, beside the resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scheduler_core.model.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, is_extended_resource
from scheduler_core.snapshot.indexes.device_use import DeviceUse, device_uses
from scheduler_core.snapshot.interning import CPU_COLUMN, MEMORY_COLUMN
from scheduler_core.snapshot.node_columns import NodeColumns

PODS = "pods"

_GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Amounts of one resource; CPU in milli, everything else in whole units.

    Attributes:
        name: Name of the resource, such as ``nvidia.com/gpu``; for devices the driver.
        requested: Sum of the requests of the pods that are bound there; for devices those in use.
        allocatable: Allocatable amount of the node or the cluster; for devices those that are published.
    """

    name: str
    requested: int
    allocatable: int

    @property
    def is_notable(self) -> bool:
        """Whether the resource is worth showing: an extended resource, or one that a pod requests."""
        return self.requested > 0 or is_extended_resource(self.name)


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """Amounts of one node; CPU in milli, memory in bytes.

    Attributes:
        others: Every other resource that some node offers and that this node offers or its pods request, by name.
        devices: Devices that only this node reaches, by driver.
    """

    name: str
    pods: int
    allowed_pods: int
    cpu_milli: int
    allocatable_cpu_milli: int
    memory_bytes: int
    allocatable_memory_bytes: int
    others: tuple[ResourceUsage, ...] = ()
    devices: tuple[ResourceUsage, ...] = ()

    @property
    def by_resource(self) -> dict[str, ResourceUsage]:
        """Amounts of the node by title: pods, CPU, memory, the other resources, and devices of each driver."""
        first = (
            ResourceUsage(PODS, self.pods, self.allowed_pods),
            ResourceUsage(CPU, self.cpu_milli, self.allocatable_cpu_milli),
            ResourceUsage(MEMORY, self.memory_bytes, self.allocatable_memory_bytes),
        )
        devices = {devices_title(usage.name): usage for usage in self.devices}
        return {usage.name: usage for usage in (*first, *self.others)} | devices


def node_usages(columns: NodeColumns) -> tuple[NodeUsage, ...]:
    """Read the amounts of every node, by name."""
    names = columns.resources.keys
    others = np.setdiff1d(np.arange(len(names)), (CPU_COLUMN, MEMORY_COLUMN))
    devices: dict[str, list[ResourceUsage]] = {}
    for use in device_uses(columns.devices):
        devices.setdefault(use.node_name, []).append(_of_devices(use))

    def others_of(row: int) -> tuple[ResourceUsage, ...]:
        amounts = zip(
            others.tolist(),
            columns.requested[others, row].tolist(),
            columns.allocatable[others, row].tolist(),
            strict=True,
        )
        found = [ResourceUsage(names[column], *both) for column, *both in amounts if names[column] and any(both)]
        return tuple(sorted(found, key=lambda each: each.name))

    usages = [
        NodeUsage(
            name=name,
            pods=int(columns.pod_count[row]),
            allowed_pods=int(columns.allowed_pods[row]),
            cpu_milli=int(columns.requested[CPU_COLUMN, row]),
            allocatable_cpu_milli=int(columns.allocatable[CPU_COLUMN, row]),
            memory_bytes=int(columns.requested[MEMORY_COLUMN, row]),
            allocatable_memory_bytes=int(columns.allocatable[MEMORY_COLUMN, row]),
            others=others_of(row),
            devices=tuple(devices.get(name, ())),
        )
        for row, name in enumerate(columns.names)
        if name is not None
    ]
    return tuple(sorted(usages, key=lambda node: node.name))


def total_usage(nodes: Iterable[NodeUsage]) -> tuple[ResourceUsage, ...]:
    """Sum the amounts of all nodes: pods, CPU and memory first, then the other resources by name; devices left out."""
    requested, allocatable = Counter[str](), Counter[str]()
    for node in nodes:
        for title, usage in node.by_resource.items():
            if title == usage.name:
                requested[title] += usage.requested
                allocatable[title] += usage.allocatable
    first = (PODS, CPU, MEMORY)
    names = [*first, *sorted(requested.keys() - set(first))] if requested else []
    return tuple(ResourceUsage(name, requested[name], allocatable[name]) for name in names)


def devices_title(driver: str) -> str:
    """Return the title of the devices of a driver; no resource has such a name."""
    return f"devices of {driver}"


def total_devices(columns: NodeColumns) -> tuple[ResourceUsage, ...]:
    """Count the devices of the cluster by driver, those that several nodes reach included."""
    found: dict[str, DeviceUse] = {}
    for use in device_uses(columns.devices):
        total = found.setdefault(use.driver, DeviceUse(use.driver, ""))
        total.devices += use.devices
        total.in_use += use.in_use
    return tuple(map(_of_devices, found.values()))


def _of_devices(use: DeviceUse) -> ResourceUsage:
    return ResourceUsage(use.driver, use.in_use, use.devices)


def amount(resource: str, number: int) -> str:
    """Return an amount: CPU in cores, memory in Gi, everything else as a number."""
    if resource == CPU:
        return cores(number)
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-"):
        return f"{gibibytes(number)}Gi"
    return str(number)


def cores(milli: int) -> str:
    """Return millicores as cores without trailing zeros."""
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def gibibytes(number: int) -> str:
    """Return bytes as Gi with at most one decimal."""
    return f"{number / _GIBIBYTE:.1f}".removesuffix(".0")


def share(part: int, whole: int) -> str:
    """Return a share in percent; "-" of nothing."""
    return f"{100 * part / whole:.0f}%" if whole else "-"
