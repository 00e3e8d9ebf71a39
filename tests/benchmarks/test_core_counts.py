"""What a pod costs, counted and never timed: calls of functions, which a busy machine does not change.

The bounds stand a sixth above what was counted when they were set; who raises one says in the change log what it buys.
The second law is the design's: nothing that is called for a pod is called once for each node.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats

import pytest

from benchmarks.core import Size, measure
from benchmarks.workloads import workload_named

_PODS = 300

CALLS_PER_POD = [
    pytest.param("basic", 750, id="all-alike"),
    pytest.param("sizes", 1370, id="every-pod-another-size"),
    pytest.param("node-affinity", 780, id="node-affinity"),
    pytest.param("affinity", 1670, id="required-affinity"),
    pytest.param("preferred-affinity", 1600, id="preferred-affinity"),
    pytest.param("anti-affinity", 1610, id="required-anti-affinity"),
    pytest.param("spread", 1530, id="required-spread"),
    pytest.param("preferred-spread", 1550, id="preferred-spread"),
    pytest.param("unschedulable", 1030, id="a-fifth-fits-nowhere"),
    pytest.param("churn", 820, id="churn"),
]


def calls_per_pod(name: str, nodes: int) -> float:
    """Calls of Python functions and of methods built in, for deciding and binding one pod."""
    profiler = cProfile.Profile()
    workload = workload_named(name)
    asyncio.run(measure(workload, Size(nodes, min(_PODS, workload.at_most(nodes))), profiler))
    statistics = pstats.Stats(profiler)
    return float(statistics.total_calls) / _PODS  # type: ignore[attr-defined] # typeshed does not name it


@pytest.mark.parametrize(("name", "bound"), CALLS_PER_POD)
def test_calls_for_a_pod(name: str, bound: int) -> None:
    """No more than the bound, and no more on four times the nodes."""
    few, many = calls_per_pod(name, 500), calls_per_pod(name, 2000)
    assert few <= bound
    assert many <= 1.02 * few
