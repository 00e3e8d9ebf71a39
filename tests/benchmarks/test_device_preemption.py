"""The benchmark of preemption for devices on a few nodes: how many pods each preemptor evicts."""

from __future__ import annotations

from benchmarks.device_preemption import CASES, DEVICES, measure
from benchmarks.workloads import Workload
from tests.support.tables import table


@table(
    "case, victims",
    *((each.name, each, victims) for each, victims in zip(CASES, (1, 1, DEVICES), strict=True)),
)
async def test_each_preemptor_evicts_no_more_than_it_needs(case: Workload, victims: int) -> None:
    """All preemptors are bound, and each evicts as many pods as hold what it needs."""
    found = await measure(case, 6, 4, 1)
    assert found.victims == victims * found.pods
    assert found.decided_ms > 0
