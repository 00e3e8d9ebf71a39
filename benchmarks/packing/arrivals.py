"""The pods that arrive, and the workload that a scheduler may expect, both taken from a trace.

Follows the method of Weng et al. (USENIX ATC 2023): pods are sampled with replacement until they request a given share
of all GPUs, and the expected workload is the most frequent kinds of pods, 95 % of all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from bayplan_example_plugins.gpu_shares.args import TypicalPod

from benchmarks.packing.trace import Trace, TracePod


def sampled(trace: Trace, seed: int, load: float) -> list[TracePod]:
    """Sample pods with replacement until they request ``load`` of the GPU capacity, 1 for all of it."""
    rng, wanted = random.Random(seed), load * trace.gpu_milli
    pods: list[TracePod] = []
    requested = 0
    while requested < wanted:
        pod = rng.choice(trace.pods)
        requested += pod.gpu_milli
        pods.append(pod)
    return pods


def in_order(trace: Trace, load: float) -> list[TracePod]:
    """Return the pods in the order of their creation, each once, until they request ``load`` of the GPU capacity."""
    pods: list[TracePod] = []
    requested = 0
    for pod in trace.pods:
        if requested >= load * trace.gpu_milli:
            break
        requested += pod.gpu_milli
        pods.append(pod)
    return pods


def typical_pods(pods: Sequence[TracePod], share: float = 0.95) -> tuple[TypicalPod, ...]:
    """Return the most frequent kinds of pods, by CPU, GPUs and models.

    Args:
        share: Share of all pods that the kinds have together, at least.

    Returns:
        The kinds with their numbers as weights, the most frequent one first.
    """
    counts = Counter((pod.cpu_milli, pod.gpu_milli, pod.models) for pod in pods)
    kinds: list[TypicalPod] = []
    covered = 0
    for (cpu, gpu, models), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= share * len(pods):
            break
        covered += count
        kinds.append(TypicalPod(cpu_milli=cpu, gpu_milli=gpu, models=models, weight=count))
    return tuple(kinds)
