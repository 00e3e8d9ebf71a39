"""What a pod costs, counted and never timed: a busy machine does not change how often something is done.

Counted are calls of functions, operations on vectors (arrays of as many elements as there are nodes, or more), elements
that these go over and bytes that are allocated for them. The bounds of calls stand 3 % above what was counted when they
were set, the others about a third; who raises one says in the change log what it buys. Two laws are the design's:
nothing that is called for a pod is called once for each node, and what grows with the nodes are the lengths of vectors,
not their number.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats

import pytest

from benchmarks.core_drain import Size, measure
from benchmarks.vector_counts import VectorCounts, counted_arrays
from benchmarks.workloads import workload_named

_PODS = 300
_FEW, _MANY = 500, 2000

CALLS_PER_POD = [
    pytest.param("basic", 502, id="all-alike"),
    pytest.param("sizes", 730, id="every-pod-another-size"),
    pytest.param("node-affinity", 515, id="node-affinity"),
    pytest.param("affinity", 751, id="required-affinity"),
    pytest.param("preferred-affinity", 701, id="preferred-affinity"),
    pytest.param("anti-affinity", 697, id="required-anti-affinity"),
    pytest.param("spread", 647, id="required-spread"),
    pytest.param("preferred-spread", 674, id="preferred-spread"),
    pytest.param("unschedulable", 727, id="a-fifth-fits-nowhere"),
    pytest.param("churn", 556, id="churn"),
]

CALLS_PER_PREEMPTION = 9800

VECTORS_PER_POD = [
    pytest.param("basic", (12, 13, 19), id="all-alike"),
    pytest.param("sizes", (50, 61, 81), id="every-pod-another-size"),
    pytest.param("node-affinity", (9, 12, 15), id="node-affinity"),
    pytest.param("affinity", (24, 33, 87), id="required-affinity"),
    pytest.param("preferred-affinity", (25, 44, 147), id="preferred-affinity"),
    pytest.param("anti-affinity", (40, 58, 130), id="required-anti-affinity"),
    pytest.param("spread", (29, 32, 42), id="required-spread"),
    pytest.param("preferred-spread", (45, 47, 139), id="preferred-spread"),
    pytest.param("unschedulable", (21, 23, 27), id="a-fifth-fits-nowhere"),
    pytest.param("churn", (12, 13, 18), id="churn"),
]
"""Operations on vectors, those of a ranking included; elements for each node that there is; bytes for each."""


def _size(name: str, nodes: int) -> Size:
    return Size(nodes, min(_PODS, workload_named(name).at_most(nodes)))


def calls_per_pod(name: str, nodes: int) -> float:
    """Calls of Python functions and of methods built in, for deciding and binding one pod."""
    profiler = cProfile.Profile()
    asyncio.run(measure(workload_named(name), _size(name, nodes), profiler))
    statistics = pstats.Stats(profiler)
    return float(statistics.total_calls) / _PODS  # type: ignore[attr-defined] # typeshed does not name it


def vectors_per_pod(name: str, nodes: int) -> tuple[float, float, float]:
    """Operations on vectors, elements and bytes, for deciding and binding one pod."""
    counts = VectorCounts(long=nodes)
    with counted_arrays():
        pods = asyncio.run(measure(workload_named(name), _size(name, nodes), counts)).created
    return counts.operations / pods, counts.elements / pods, counts.allocated / pods


@pytest.mark.parametrize(("name", "bound"), CALLS_PER_POD)
def test_calls_for_a_pod(name: str, bound: int) -> None:
    """No more than the bound, and no more on four times the nodes."""
    few, many = calls_per_pod(name, _FEW), calls_per_pod(name, _MANY)
    assert few <= bound
    assert many <= 1.02 * few


def test_calls_for_a_preemption() -> None:
    """No more than the bound; on more nodes a preemption compares more candidates."""
    assert calls_per_pod("preemption", _FEW) <= CALLS_PER_PREEMPTION


@pytest.mark.parametrize(("name", "bounds"), VECTORS_PER_POD)
def test_vectors_for_a_pod(name: str, bounds: tuple[int, int, int]) -> None:
    """No more operations than the bound, over no more elements and bytes a node; and no more of them on more nodes."""
    few, many = vectors_per_pod(name, _FEW), vectors_per_pod(name, _MANY)
    elements, allocated = ((more - less) / (_MANY - _FEW) for less, more in zip(few[1:], many[1:], strict=True))
    assert 0 < many[0] <= bounds[0]
    assert many[0] <= 1.05 * few[0] + 0.1
    assert 0 < elements <= bounds[1]
    assert 0 < allocated <= bounds[2]
