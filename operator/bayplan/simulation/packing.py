"""How well the pods of a cluster are packed and spread, by the state at the end of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler_core.cycle.percentage_of_nodes import ZONE_LABEL
from scheduler_core.errors import QuantityError
from scheduler_core.kernels.resource_scores import imbalance, unusable_shares
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import CPU, MEMORY, is_extended_resource, pod_requests
from scheduler_core.snapshot.indexes.device_index import DeviceUse, device_uses
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


def share(part: int, whole: int) -> str:
    """Return a share in percent; "-" of nothing."""
    return f"{100 * part / whole:.0f}%" if whole else "-"


_Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Packing:
    """Figures of one state of a cluster.

    Attributes:
        devices: Devices in use and published devices of the cluster, by driver.
        empty_nodes: Nodes without pods.
        unusable: By resource, the share of its free amount that the decided pods cannot use: for each pod that
            requests the resource, the free amount on nodes where the pod does not fit, divided by the free amount of
            all nodes, and averaged over the pods. 0 to 1; resources without free amounts are missing.
        imbalance: By title of a resource or of a driver's devices, the standard deviation of the nodes' utilisation, 0
            to 0.5.
        largest_free: By title, the largest free amount on one node.
        zone_skew: Difference between the zones with the most and the fewest decided pods; None without two zones.
    """

    usages: tuple[ResourceUsage, ...]
    devices: tuple[ResourceUsage, ...]
    empty_nodes: int
    unusable: dict[str, float]
    imbalance: dict[str, float]
    largest_free: dict[str, int]
    zone_skew: int | None


def measure_packing(
    nodes: Sequence[NodeUsage],
    devices: Sequence[ResourceUsage],
    pods: Sequence[Pod],
    zones: dict[str, str],
    placed: Sequence[str],
) -> Packing:
    per_zone = Counter(dict.fromkeys(zones.values(), 0))
    per_zone.update(zones[node] for node in placed if node in zones)
    usages = [node.by_resource for node in nodes]
    return Packing(
        usages=total_usage(nodes),
        devices=tuple(devices),
        empty_nodes=sum(not node.pods for node in nodes),
        unusable=_unusable(nodes, usages, pods),
        imbalance=_imbalance(usages),
        largest_free=_largest_free(usages),
        zone_skew=max(per_zone.values()) - min(per_zone.values()) if len(per_zone) > 1 else None,
    )


def zones_of(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the zone of each node that has one, by the node's name."""
    return {
        node.metadata.name: node.metadata.labels[ZONE_LABEL] for node in nodes if ZONE_LABEL in node.metadata.labels
    }


def _unusable(
    nodes: Sequence[NodeUsage], usages: Sequence[dict[str, ResourceUsage]], pods: Sequence[Pod]
) -> dict[str, float]:
    kinds = Counter(tuple(sorted(_requests(pod).items())) for pod in pods)
    names = sorted({name for kind in kinds for name, _ in kind})
    free = {name: np.array([_free(usage.get(name)) for usage in usages], dtype=np.float64) for name in names}
    slots = np.array([node.allowed_pods > node.pods for node in nodes], dtype=np.bool_)
    return unusable_shares(free, slots, kinds.items())


def _requests(pod: Pod) -> dict[str, int]:
    try:
        return {name: amount for name, amount in pod_requests(pod).fit.items() if amount > 0}
    except QuantityError:
        # A pod whose requests cannot be read is not schedulable and uses nothing.
        return {}


def _free(usage: ResourceUsage | None) -> int:
    return 0 if usage is None else max(0, usage.allocatable - usage.requested)


def _imbalance(usages: Sequence[dict[str, ResourceUsage]]) -> dict[str, float]:
    found = {}
    for name in sorted({name for usage in usages for name in usage} - {PODS}):
        amounts: _Amounts = np.array(
            [(usage[name].requested, usage[name].allocatable) for usage in usages if name in usage], dtype=np.float64
        )
        deviation = imbalance(amounts[:, 0], amounts[:, 1])
        if deviation is not None:
            found[name] = deviation
    return found


def _largest_free(usages: Sequence[dict[str, ResourceUsage]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for usage in usages:
        for title, each in usage.items():
            found[title] = max(found.get(title, 0), _free(each))
    return found
