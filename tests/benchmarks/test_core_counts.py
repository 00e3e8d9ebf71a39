"""The cost of a pod in counts, which a busy machine does not change as it does durations.

Counted are function calls, operations on vectors (arrays with at least one element per node), their elements and the
allocated bytes. The bounds on calls are 3 % above the counts when they were set, the other bounds about a third; the
change log gives the reason for each raised bound. Two rules hold: no call for a pod is repeated for each node, and more
nodes make vectors longer, but not more numerous.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats

from benchmarks.core_drain import Size, measure
from benchmarks.vector_counts import VectorCounts, counted_arrays
from benchmarks.workloads import workload_named
from tests.support.tables import table

_PODS = 300
_FEW, _MANY = 500, 2000
CALLS_PER_PREEMPTION = 9730

"""Operations on vectors, including those of a ranking; elements per node; bytes per node."""


def _size(name: str, nodes: int) -> Size:
    return Size(nodes, min(_PODS, workload_named(name).at_most(nodes)))


def calls_per_pod(name: str, nodes: int) -> float:
    """Return the calls of Python functions and builtin methods for the decision and the bind of one pod."""
    profiler = cProfile.Profile()
    asyncio.run(measure(workload_named(name), _size(name, nodes), profiler))
    statistics = pstats.Stats(profiler)
    return float(statistics.total_calls) / _PODS  # type: ignore[attr-defined] # typeshed does not name it


def vectors_per_pod(name: str, nodes: int) -> tuple[float, float, float]:
    """Return the operations on vectors, elements and bytes for the decision and the bind of one pod."""
    counts = VectorCounts(long=nodes)
    with counted_arrays():
        pods = asyncio.run(measure(workload_named(name), _size(name, nodes), counts)).created
    return counts.operations / pods, counts.elements / pods, counts.allocated / pods


@table(
    "name, bound",
    ("one-class", "basic", 383),
    ("different-sizes", "sizes", 607),
    ("node-affinity", "node-affinity", 399),
    ("required-affinity", "affinity", 643),
    ("preferred-affinity", "preferred-affinity", 588),
    ("required-anti-affinity", "anti-affinity", 582),
    ("required-spread", "spread", 530),
    ("preferred-spread", "preferred-spread", 556),
    ("a-fifth-infeasible", "unschedulable", 608),
    ("churn", "churn", 422),
)
def test_calls_for_a_pod(name: str, bound: int) -> None:
    """The calls do not exceed the bound, and do not grow with four times the nodes."""
    few, many = calls_per_pod(name, _FEW), calls_per_pod(name, _MANY)
    assert few <= bound
    assert many <= 1.02 * few


def test_calls_for_a_preemption() -> None:
    """The calls do not exceed the bound; they grow with the nodes, because more candidates are compared."""
    assert calls_per_pod("preemption", _FEW) <= CALLS_PER_PREEMPTION


@table(
    "name, bounds",
    ("one-class", "basic", (12, 13, 19)),
    ("different-sizes", "sizes", (50, 61, 81)),
    ("node-affinity", "node-affinity", (9, 12, 15)),
    ("required-affinity", "affinity", (24, 33, 87)),
    ("preferred-affinity", "preferred-affinity", (25, 44, 147)),
    ("required-anti-affinity", "anti-affinity", (40, 58, 130)),
    ("required-spread", "spread", (29, 32, 42)),
    ("preferred-spread", "preferred-spread", (45, 47, 139)),
    ("a-fifth-infeasible", "unschedulable", (21, 23, 27)),
    ("churn", "churn", (12, 13, 18)),
)
def test_vectors_for_a_pod(name: str, bounds: tuple[int, int, int]) -> None:
    """Operations, elements and bytes do not exceed the bounds, and operations do not grow with the nodes."""
    few, many = vectors_per_pod(name, _FEW), vectors_per_pod(name, _MANY)
    elements, allocated = ((more - less) / (_MANY - _FEW) for less, more in zip(few[1:], many[1:], strict=True))
    assert 0 < many[0] <= bounds[0]
    assert many[0] <= 1.05 * few[0] + 0.1
    assert 0 < elements <= bounds[1]
    assert 0 < allocated <= bounds[2]
