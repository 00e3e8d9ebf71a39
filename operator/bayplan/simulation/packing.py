"""How well the pods of a cluster are packed and spread, by the state at the end of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from scheduler_core.cycle.filter_and_score import ZONE_LABEL
from scheduler_core.errors import QuantityError
from scheduler_core.kernels.resource_scores import imbalance, unusable_shares
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import CPU, MEMORY, PODS, is_extended_resource, pod_requests
from scheduler_core.snapshot.indexes.device_index import device_uses
from scheduler_core.snapshot.interning import CPU_COLUMN, MEMORY_COLUMN
from scheduler_core.snapshot.node_columns import NodeColumns


class ResourceUsage(Struct, frozen=True, rename="camel"):
    """Amounts of one resource; CPU in milli, everything else in whole units.

    Attributes:
        requested: Sum of the requests of the pods that are bound there.
        allocatable: Allocatable amount of the node or the cluster.
    """

    requested: int
    allocatable: int


class DeviceUsage(ResourceUsage, frozen=True):
    """Devices of one driver: those in use, and those that are published."""

    requested: int = field(name="inUse")
    allocatable: int = field(name="published")


class ResourceTotal(ResourceUsage, frozen=True, rename="camel"):
    """Amounts of one resource of the cluster, and how they are spread over the nodes; see :class:`Packing`."""

    largest_free_on_one_node: int
    unusable_share_of_free: float | None
    imbalance: float | None


class NodeUsage(Struct, frozen=True, rename="camel"):
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
    others: dict[str, ResourceUsage] = field(name="otherResources", default_factory=dict)
    devices: dict[str, DeviceUsage] = field(default_factory=dict)

    @property
    def by_title(self) -> dict[str, ResourceUsage]:
        """Amounts of the node by title: pods, CPU, memory, the other resources, and devices of each driver."""
        return {
            PODS: ResourceUsage(self.pods, self.allowed_pods),
            CPU: ResourceUsage(self.cpu_milli, self.allocatable_cpu_milli),
            MEMORY: ResourceUsage(self.memory_bytes, self.allocatable_memory_bytes),
            **self.others,
            **{devices_title(driver): usage for driver, usage in self.devices.items()},
        }


def is_notable(title: str, usage: ResourceUsage) -> bool:
    """Return whether amounts are worth showing: of devices, of an extended resource, or if a pod requests some."""
    return usage.requested > 0 or isinstance(usage, DeviceUsage) or is_extended_resource(title)


def node_usages(columns: NodeColumns) -> tuple[NodeUsage, ...]:
    """Read the amounts of every node, by name."""
    names = columns.resources.keys
    others = np.setdiff1d(np.arange(len(names)), (CPU_COLUMN, MEMORY_COLUMN))
    devices: dict[str, dict[str, DeviceUsage]] = {}
    for use in device_uses(columns.devices):
        devices.setdefault(use.node_name, {})[use.driver] = DeviceUsage(use.in_use, use.devices)

    def others_of(row: int) -> dict[str, ResourceUsage]:
        amounts = zip(
            others.tolist(),
            columns.requested[others, row].tolist(),
            columns.allocatable[others, row].tolist(),
            strict=True,
        )
        found = {names[column]: ResourceUsage(*both) for column, *both in amounts if names[column] and any(both)}
        return dict(sorted(found.items()))

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
            devices=devices.get(name, {}),
        )
        for row, name in enumerate(columns.names)
        if name is not None
    ]
    return tuple(sorted(usages, key=lambda node: node.name))


def devices_title(driver: str) -> str:
    """Return the title of the devices of a driver; no resource has such a name."""
    return f"devices of {driver}"


def total_devices(columns: NodeColumns) -> dict[str, DeviceUsage]:
    """Count the devices of the cluster by driver, those that several nodes reach included."""
    found: dict[str, DeviceUsage] = {}
    for use in device_uses(columns.devices):
        total = found.get(use.driver, DeviceUsage(0, 0))
        found[use.driver] = DeviceUsage(total.requested + use.in_use, total.allocatable + use.devices)
    return found


def share(part: int, whole: int) -> str:
    """Return a share in percent; "-" of nothing."""
    return f"{100 * part / whole:.0f}%" if whole else "-"


_Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Packing:
    """Figures of one state of a cluster.

    Attributes:
        resources: Totals by resource: pods, CPU and memory first, then the others by name. The unusable share is that
            of the free amount that the decided pods cannot use: for each pod that requests the resource, the free
            amount on nodes where the pod does not fit, divided by the free amount of all nodes, and averaged over the
            pods; 0 to 1, None without free amounts. The imbalance is that of ``imbalance``.
        devices: Devices in use and published devices of the cluster, by driver.
        empty_nodes: Nodes without pods.
        imbalance: By title of a resource or of a driver's devices, the standard deviation of the nodes' utilisation, 0
            to 0.5.
        largest_free: By title, the largest free amount on one node.
        zone_skew: Difference between the zones with the most and the fewest decided pods; None without two zones.
    """

    resources: dict[str, ResourceTotal]
    devices: dict[str, DeviceUsage]
    empty_nodes: int
    imbalance: dict[str, float]
    largest_free: dict[str, int]
    zone_skew: int | None


def measure_packing(
    nodes: Sequence[NodeUsage],
    devices: dict[str, DeviceUsage],
    pods: Sequence[Pod],
    zones: dict[str, str],
    placed: Sequence[str],
) -> Packing:
    per_zone = Counter(dict.fromkeys(zones.values(), 0))
    per_zone.update(zones[node] for node in placed if node in zones)
    usages = [node.by_title for node in nodes]
    unusable, deviations, largest_free = _unusable(nodes, usages, pods), _imbalance(usages), _largest_free(usages)
    return Packing(
        resources={
            name: ResourceTotal(
                usage.requested, usage.allocatable, largest_free[name], unusable.get(name), deviations.get(name)
            )
            for name, usage in _totals(usages).items()
        },
        devices=devices,
        empty_nodes=sum(not node.pods for node in nodes),
        imbalance=deviations,
        largest_free=largest_free,
        zone_skew=max(per_zone.values()) - min(per_zone.values()) if len(per_zone) > 1 else None,
    )


def _totals(usages: Sequence[dict[str, ResourceUsage]]) -> dict[str, ResourceUsage]:
    requested, allocatable = Counter[str](), Counter[str]()
    for usage in usages:
        for title, each in usage.items():
            if not isinstance(each, DeviceUsage):
                requested[title] += each.requested
                allocatable[title] += each.allocatable
    first = (PODS, CPU, MEMORY)
    names = [*first, *sorted(requested.keys() - set(first))] if requested else []
    return {name: ResourceUsage(requested[name], allocatable[name]) for name in names}


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
