"""How well the pods of a cluster are packed and spread, by the state at the end of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bayplan.simulation.node_usage import PODS, NodeUsage, ResourceUsage, total_usage
from scheduler_core.cycle.percentage_of_nodes import ZONE_LABEL
from scheduler_core.errors import QuantityError
from scheduler_core.kernels.packing import imbalance, unusable_shares
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import pod_requests

_Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Packing:
    """Figures of one state of a cluster.

    Attributes:
        usages: Requested and allocatable amounts of all nodes, by resource.
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
    """Measure a state."""
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
