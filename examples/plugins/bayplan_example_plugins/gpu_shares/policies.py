"""Costs of placing a pod on nodes, by policy; the lowest cost is the best.

A placement option of a share is one GPU of the node. Whole GPUs are equal, so a pod that requests them, or none, has
one option for each node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bayplan_example_plugins.gpu_shares.args import GPU_MILLI, Policy
from bayplan_example_plugins.gpu_shares.fragmentation import TargetWorkload
from bayplan_example_plugins.gpu_shares.gpu_columns import Devices, NodeStates, size_class

Costs = NDArray[np.int64]
"""int64[n, options]; :data:`IMPOSSIBLE` where the pod does not fit."""

IMPOSSIBLE = 2**62
_PARTS = 10**6
"""Resolution of amounts relative to the largest node."""
_STEP = 40
"""Step in which increases of the expected fragmentation are compared, in thousandths of a GPU."""
_LEFTOVERS = 2 * GPU_MILLI
"""More than what can be left on one GPU: the leftover decides between options of equal cost."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod requests: thousandths of a CPU, bytes of memory, thousandths of GPUs."""

    cpu_milli: int
    memory: int
    gpu_milli: int

    @property
    def is_share(self) -> bool:
        """Whether the pod requests a part of one GPU."""
        return 0 < self.gpu_milli < GPU_MILLI

    @property
    def is_valid(self) -> bool:
        """Whether GPUs can serve the request."""
        return self.gpu_milli < GPU_MILLI or self.gpu_milli % GPU_MILLI == 0


@dataclass(frozen=True, slots=True)
class LargestNode:
    """Largest amounts of any node, at least 1: CPU in thousandths, memory in bytes, thousandths of GPUs."""

    cpu_milli: int
    memory: int
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class Placements:
    """The placement options of a pod on some nodes.

    Attributes:
        demand: The pod.
        before: The nodes without the pod.
        after: int64[n, options, g], thousandths that are left on each GPU.
        fits: bool[n, options].
    """

    demand: Demand
    before: NodeStates
    after: NDArray[np.int64]
    fits: NDArray[np.bool_]

    @classmethod
    def of(cls, demand: Demand, nodes: NodeStates) -> Placements:
        """Return the options of a pod on nodes."""
        free = nodes.gpu_milli
        if demand.is_share:
            after = free[:, None, :] - demand.gpu_milli * np.eye(free.shape[1], dtype=np.int64)
            return cls(demand, nodes, after, free >= demand.gpu_milli)
        wanted = demand.gpu_milli // GPU_MILLI
        idle = free == GPU_MILLI
        taken = idle & (np.cumsum(idle, axis=1) <= wanted)
        fits = taken.sum(axis=1, keepdims=True) >= wanted
        return cls(demand, nodes, (free - GPU_MILLI * taken)[:, None, :], fits)

    @property
    def leftover(self) -> NDArray[np.int64]:
        """int64[n, options]: what a share leaves on its GPU; 0 for other pods."""
        free = self.before.gpu_milli
        return free - self.demand.gpu_milli if self.demand.is_share else np.zeros((len(free), 1), dtype=np.int64)

    def devices(self, row: int, option: int) -> Devices:
        """Return the GPUs of an option."""
        changed = np.flatnonzero(self.after[row, option] != self.before.gpu_milli[row])
        return tuple(int(device) for device in changed)


class CostFunction(Protocol):
    """Returns the costs of placement options."""

    def __call__(self, placements: Placements, largest: LargestNode) -> Costs:
        """Return the costs; those of options that do not fit are ignored."""


def costs(function: CostFunction, placements: Placements, largest: LargestNode) -> Costs:
    """Return the cost of every option."""
    return np.where(placements.fits, function(placements, largest), IMPOSSIBLE)


def cost_function(policy: Policy, target: TargetWorkload) -> CostFunction:
    """Return the costs of a policy, with the target workload of those that need it."""
    return Fragmentation(target) if policy is Policy.FRAGMENTATION else _SIMPLE[policy]


class Fragmentation:
    """The increase of the expected fragmentation, in steps; of equal steps, the node with the least free on its GPUs.

    How ties are decided is our choice. Ties are frequent: as long as a node is far from full, a pod makes no
    difference to what else fits there. Without the second criterion such pods are spread over all nodes.

    Args:
        target: The target workload.
    """

    def __init__(self, target: TargetWorkload) -> None:
        self._target = target

    def __call__(self, placements: Placements, largest: LargestNode) -> Costs:
        """Compute each different option of a node once."""
        before, demand = placements.before, placements.demand
        chosen = placements.fits
        if demand.is_share:
            chosen = chosen & ~_repeats(before.gpu_milli)
        nodes, options = np.nonzero(chosen)
        needed = np.unique(nodes)
        was = np.zeros(len(before.cpu_milli), dtype=np.int64)
        was[needed] = self._target.expected_fragments(
            before.cpu_milli[needed], before.gpu_milli[needed], before.models[needed], before.model_names
        )
        left = before.cpu_milli[nodes] - demand.cpu_milli
        found = self._target.expected_fragments(
            left, placements.after[nodes, options], before.models[nodes], before.model_names
        )
        result = np.full(placements.fits.shape, IMPOSSIBLE, dtype=np.int64)
        steps = (found - was[nodes]) // (self._target.total_weight * _STEP)
        free = _parts(before.gpu_milli.sum(axis=1), largest.gpu_milli)
        result[nodes, options] = steps * 2 * _PARTS + free[nodes]
        return result


def _repeats(free: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return bool[n, g]: whether an earlier GPU of the node has as much free."""
    width = free.shape[1]
    earlier = np.tri(width, k=-1, dtype=np.bool_)
    repeats: NDArray[np.bool_] = ((free[:, :, None] == free[:, None, :]) & earlier).any(axis=2)
    return repeats


def _parts(amounts: NDArray[np.int64], largest: int) -> NDArray[np.int64]:
    return (amounts * (_PARTS / largest)).astype(np.int64)


def _then_leftover(node_costs: NDArray[np.int64], placements: Placements) -> Costs:
    """Return costs by which the node decides first, then the GPU on which a share leaves the least."""
    return node_costs[:, None] * _LEFTOVERS + placements.leftover


def best_fit(placements: Placements, largest: LargestNode) -> Costs:
    """Return the sum of what is left on the node, each resource relative to the largest node."""
    before, demand = placements.before, placements.demand
    left = _parts(before.cpu_milli - demand.cpu_milli, largest.cpu_milli)
    left += _parts(before.memory - demand.memory, largest.memory)
    left += _parts(before.gpu_milli.sum(axis=1) - demand.gpu_milli, largest.gpu_milli)
    return _then_leftover(left, placements)


def dot_product(placements: Placements, largest: LargestNode) -> Costs:
    """Return the product of what is free and what is requested, each relative to the largest node."""
    before, demand = placements.before, placements.demand
    product = _parts(before.cpu_milli, largest.cpu_milli) * (demand.cpu_milli / largest.cpu_milli)
    product += _parts(before.memory, largest.memory) * (demand.memory / largest.memory)
    product += _parts(before.gpu_milli.sum(axis=1), largest.gpu_milli) * (demand.gpu_milli / largest.gpu_milli)
    return _then_leftover(product.astype(np.int64), placements)


def packing(placements: Placements, largest: LargestNode) -> Costs:
    """Return 0 for GPUs in use, 1 for idle GPUs of nodes in use, 2 for idle nodes; then what is free on the node."""
    before = placements.before
    free = before.gpu_milli.sum(axis=1)
    is_idle = free == before.gpus * GPU_MILLI
    tiers = np.where(is_idle, 2, 1)[:, None] * np.ones(placements.fits.shape, dtype=np.int64)
    if placements.demand.is_share:
        tiers[before.gpu_milli < GPU_MILLI] = 0
    return tiers * _PARTS * _LEFTOVERS * 2 + _then_leftover(_parts(free, largest.gpu_milli), placements)


def clustering(placements: Placements, largest: LargestNode) -> Costs:
    """Return the share of pods that request another number of GPUs; a node without such pods is between."""
    before, demand = placements.before, placements.demand
    pods = before.sizes.sum(axis=1)
    same = before.sizes[:, size_class(demand.gpu_milli)] if demand.gpu_milli else pods * 0
    others = _PARTS * (pods - same) // np.maximum(pods, 1)
    free = _parts(before.gpu_milli.sum(axis=1), largest.gpu_milli)
    node_costs = np.where(pods == 0, _PARTS // 2, others) * 2 * _PARTS + free
    return _then_leftover(node_costs, placements)


def least_left(placements: Placements, largest: LargestNode) -> Costs:
    """Return what a share leaves on its GPU."""
    del largest
    return placements.leftover


_SIMPLE: dict[Policy, CostFunction] = {
    Policy.BEST_FIT: best_fit,
    Policy.DOT_PRODUCT: dot_product,
    Policy.PACKING: packing,
    Policy.CLUSTERING: clustering,
    Policy.RANDOM: least_left,
    Policy.UNSCORED: least_left,
}
