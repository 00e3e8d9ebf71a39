"""How well the pods of a cluster are packed and spread, by the state at the end of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bayplan.simulation.node_usage import NodeUsage, ResourceUsage, total_usage
from scheduler_core.errors import QuantityError
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import CPU, MEMORY, pod_requests

_Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Packing:
    """Figures of one state of a cluster.

    Attributes:
        usages: Requested and allocatable amounts of all nodes, by resource.
        empty_nodes: Nodes without pods.
        unusable: By resource, the share of its free amount that the compared pods cannot use: for each pod that
            requests the resource, the free amount on nodes where the pod does not fit, divided by the free amount of
            all nodes, and averaged over the pods. 0 to 1; resources without free amounts are missing.
        imbalance: By resource, the standard deviation of the nodes' utilisation, 0 to 0.5.
        zone_skew: Difference between the zones with the most and the fewest compared pods; None without two zones.
    """

    usages: tuple[ResourceUsage, ...]
    empty_nodes: int
    unusable: dict[str, float]
    imbalance: dict[str, float]
    zone_skew: int | None


def measure_packing(
    nodes: Sequence[NodeUsage], pods: Sequence[Pod], zones: dict[str, str], placed: Sequence[str]
) -> Packing:
    """Measure a state.

    Args:
        nodes: Amounts of all nodes.
        pods: The compared pods.
        zones: Zone of each node that has one, by the node's name.
        placed: Nodes of the compared pods that have one.
    """
    per_zone = Counter(dict.fromkeys(zones.values(), 0))
    per_zone.update(zones[node] for node in placed if node in zones)
    usages = [_by_resource(node) for node in nodes]
    return Packing(
        usages=total_usage(nodes),
        empty_nodes=sum(not node.pods for node in nodes),
        unusable=_unusable(nodes, usages, pods),
        imbalance=_imbalance(usages),
        zone_skew=max(per_zone.values()) - min(per_zone.values()) if len(per_zone) > 1 else None,
    )


def _by_resource(node: NodeUsage) -> dict[str, ResourceUsage]:
    return {
        CPU: ResourceUsage(CPU, node.cpu_milli, node.allocatable_cpu_milli),
        MEMORY: ResourceUsage(MEMORY, node.memory_bytes, node.allocatable_memory_bytes),
        **{usage.name: usage for usage in node.others},
    }


def _unusable(
    nodes: Sequence[NodeUsage], usages: Sequence[dict[str, ResourceUsage]], pods: Sequence[Pod]
) -> dict[str, float]:
    kinds = Counter(tuple(sorted(_requests(pod).items())) for pod in pods)
    names = sorted({name for kind in kinds for name, _ in kind})
    free = {name: np.array([_free(usage.get(name)) for usage in usages], dtype=np.float64) for name in names}
    slots = np.array([node.allowed_pods - node.pods for node in nodes], dtype=np.float64)
    totals: dict[str, float] = dict.fromkeys(names, 0.0)
    counted: Counter[str] = Counter()
    for kind, count in kinds.items():
        fits = slots > 0
        for name, amount in kind:
            fits = fits & (free[name] >= amount)
        for name, _ in kind:
            available = float(free[name].sum())
            if available > 0:
                totals[name] += count * float(free[name][~fits].sum()) / available
                counted[name] += count
    return {name: totals[name] / counted[name] for name in names if counted[name]}


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
    for name in sorted({name for usage in usages for name in usage}):
        shares: _Amounts = np.array(
            [
                usage[name].requested / usage[name].allocatable
                for usage in usages
                if name in usage and usage[name].allocatable
            ]
        )
        if shares.size > 1 and shares.any():
            found[name] = float(shares.std())
    return found
