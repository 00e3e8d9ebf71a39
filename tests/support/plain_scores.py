"""Reference implementation of the resource scores, for one node at a time.

It follows kube-scheduler v1.36.3 (``plugins/noderesources/*.go``), with Go's integer division and the same order of
floating-point operations, and does not import the implementation under test.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod

GPU = "nvidia.com/gpu"
UNITS = {"cpu": 1000, "memory": 1, "ephemeral-storage": 1, GPU: 1}
"""Resources of the random clusters, with the factor from an amount to its unit in scores."""

_AMOUNTS = st.dictionaries(st.sampled_from(list(UNITS)), st.integers(0, 12))


@st.composite
def scored_clusters(draw: st.DrawFn, least_cpu: int = 0) -> tuple[list[Node], list[Pod], Pod]:
    """Draw nodes, pods on them, and an incoming pod that requests at least *least_cpu* CPUs."""
    nodes = [node(f"n{row}", allocatable=draw(_AMOUNTS)) for row in range(draw(st.integers(1, 4)))]
    placed = [
        pod(f"p{number}", requests=draw(_AMOUNTS), node_name=draw(st.sampled_from(nodes)).metadata.name)
        for number in range(draw(st.integers(0, 5)))
    ]
    requests = draw(_AMOUNTS)
    if least_cpu:
        requests["cpu"] = max(requests.get("cpu", 0), least_cpu)
    return nodes, placed, pod("incoming", requests=requests)


@dataclass(frozen=True)
class OneNode:
    """One resource on one node: capacity, requests of existing pods, request of the incoming pod, and weight."""

    capacity: int
    used: int
    added: int
    weight: int = 1


def divided(dividend: int, divisor: int) -> int:
    """Return the quotient rounded towards zero, as in Go."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def plain_least(resources: Sequence[OneNode]) -> int:
    """Return the LeastAllocated score."""

    def score(requested: int, capacity: int) -> int:
        return 0 if requested > capacity else divided((capacity - requested) * 100, capacity)

    return _weighted(resources, score)


def plain_most(resources: Sequence[OneNode]) -> int:
    """Return the MostAllocated score."""
    return _weighted(resources, lambda requested, capacity: divided(min(requested, capacity) * 100, capacity))


def plain_ratio(resources: Sequence[OneNode], points: Sequence[tuple[int, int]]) -> int:
    """Return the RequestedToCapacityRatio score; the scores of ``points`` are 0 to 100."""
    total = weights = 0
    for resource in resources:
        if resource.capacity == 0:
            continue
        requested = resource.used + resource.added
        percentage = 100 if requested > resource.capacity else divided(requested * 100, resource.capacity)
        score = plain_shape(points, percentage)
        if score > 0:
            total += score * resource.weight
            weights += resource.weight
    if weights == 0:
        return 0
    mean = float(total) / float(weights)
    whole = math.floor(mean)
    return whole + 1 if mean - whole >= 0.5 else whole


def plain_shape(points: Sequence[tuple[int, int]], percentage: int) -> int:
    """Return the score by linear interpolation between points, constant outside of them."""
    previous: tuple[int, int] | None = None
    for x, y in points:
        if percentage <= x:
            if previous is None:
                return y
            return previous[1] + divided((y - previous[1]) * (percentage - previous[0]), x - previous[0])
        previous = (x, y)
    return points[-1][1]


def plain_balanced(resources: Sequence[OneNode]) -> int:
    """Return the NodeResourcesBalancedAllocation score: the balance with the pod compared with the one without it."""
    after = _balance([(each.used + each.added, each.capacity) for each in resources])
    before = _balance([(each.used, each.capacity) for each in resources])
    return 50 + divided(50 + after - before, 2)


def _weighted(resources: Sequence[OneNode], score: Callable[[int, int], int]) -> int:
    total = weights = 0
    for resource in resources:
        if resource.capacity:
            total += score(resource.used + resource.added, resource.capacity) * resource.weight
            weights += resource.weight
    return divided(total, weights) if weights else 0


def _balance(amounts: Sequence[tuple[int, int]]) -> int:
    fractions = [min(float(requested) / float(capacity), 1.0) for requested, capacity in amounts if capacity]
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        # sum() compensates for rounding errors from Python 3.12 on; kube-scheduler does not.
        total = squares = 0.0
        for fraction in fractions:
            total = total + fraction
        mean = total / len(fractions)
        for fraction in fractions:
            squares = squares + (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    return int((1 - deviation) * 100.0)
