"""Expected fragmentation of nodes: GPUs that are free, but of no use to the pods that are expected.

The measure of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023. For one kind of pod, a free GPU is a fragment if the pod cannot run on the node, or if the
GPU alone has less free than the pod needs of one GPU. The expectation weighs the kinds by their frequency. All sums
are integers, so that equal nodes score the same in every call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bayplan_example_plugins.gpu_shares.args import GPU_MILLI, TypicalPod

_CHUNK = 2048
"""Nodes that are computed in one step, which bounds the memory of the intermediate arrays."""


class TargetWorkload:
    """The kinds of pods that are expected.

    Args:
        pods: The kinds.

    Attributes:
        total_weight: Sum of the weights.
    """

    def __init__(self, pods: Sequence[TypicalPod]) -> None:
        self.total_weight = sum(pod.weight for pod in pods)
        # A pod without a GPU leaves every GPU unused wherever it runs: it is part of the total weight alone.
        with_gpu = [pod for pod in pods if pod.gpu_milli]
        self._models = [frozenset(pod.models) for pod in with_gpu]
        self._cpu = np.array([pod.cpu_milli for pod in with_gpu], dtype=np.int64)
        self._weight = np.array([pod.weight for pod in with_gpu], dtype=np.int64)
        amounts = np.array([pod.gpu_milli for pod in with_gpu], dtype=np.int64)
        demands, self._demand_of = np.unique(amounts, return_inverse=True)
        self._share = np.minimum(demands, GPU_MILLI)
        self._whole = demands // GPU_MILLI
        self._names: list[str] = []
        self._allowed = np.zeros((0, len(with_gpu)), dtype=np.bool_)

    def expected_fragments(
        self, cpu_milli: NDArray[np.int64], gpu_milli: NDArray[np.int64], models: NDArray[np.intp], names: Sequence[str]
    ) -> NDArray[np.int64]:
        """Return the expected fragments of nodes.

        Args:
            cpu_milli: int64[n], free CPU.
            gpu_milli: int64[n, g], free thousandths of each GPU; 0 for a GPU that the node does not have.
            models: intp[n], number of the model of the node's GPUs.
            names: Models by number.

        Returns:
            int64[n], thousandths of a GPU, multiplied by :attr:`total_weight`.
        """
        self._number_models(names)
        parts = [
            self._fragments(cpu_milli[at : at + _CHUNK], gpu_milli[at : at + _CHUNK], models[at : at + _CHUNK])
            for at in range(0, len(cpu_milli), _CHUNK)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _number_models(self, names: Sequence[str]) -> None:
        if self._names != names:
            self._names = list(names)
            allowed = [[not models or name in models for models in self._models] for name in names]
            self._allowed = np.array(allowed, dtype=np.bool_).reshape(len(names), len(self._models))

    def _fragments(
        self, cpu_milli: NDArray[np.int64], gpu_milli: NDArray[np.int64], models: NDArray[np.intp]
    ) -> NDArray[np.int64]:
        total: NDArray[np.int64] = gpu_milli.sum(axis=1)
        # usable[n, demand]: what is free on GPUs that have enough for the demand; 0 if the node has too few of them.
        big = gpu_milli[:, :, None] >= self._share
        usable = (gpu_milli[:, :, None] * big).sum(axis=1)
        usable *= big.sum(axis=1) >= np.maximum(self._whole, 1)
        runs = (cpu_milli[:, None] >= self._cpu) & self._allowed[models]
        used: NDArray[np.int64] = (usable[:, self._demand_of] * (runs * self._weight)).sum(axis=1)
        fragments: NDArray[np.int64] = total * self.total_weight - used
        return fragments
