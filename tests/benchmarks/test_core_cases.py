"""Cases of the benchmarks of the core end with their documented decision."""

from __future__ import annotations

import pytest

from benchmarks.core_drain import Size, measure
from benchmarks.device_workloads import CORE_DEVICE_WORKLOADS
from benchmarks.gang_core import CASES as GANG_CASES
from benchmarks.gang_core import Case, decide
from benchmarks.workloads import WORKLOADS, Workload
from tests.support.tables import table


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in GANG_CASES])
async def test_a_case_has_its_decision(case: Case) -> None:
    """All members are placed, or all but one fit and none is placed; any other decision raises an error."""
    decision = await decide(case, nodes=30, members=12)
    assert (decision.case, decision.nodes, decision.members) == (case.name, 30, 12)
    assert decision.cpu_seconds > 0
    assert decision.wall_seconds > 0


PREEMPTING = [each for each in (*WORKLOADS, *CORE_DEVICE_WORKLOADS) if each.preempts]


@table(
    "workload, victims",
    *((each.name, each, victims) for each, victims in zip(PREEMPTING, (1, 1, 4), strict=True)),
)
async def test_each_preemptor_evicts_no_more_than_it_needs(workload: Workload, victims: int) -> None:
    """All preemptors are bound, and each evicts as many pods as hold what it needs."""
    found = await measure(workload, Size(6, 5))
    assert (found.bound, found.victims) == (5, victims * 5)
    assert found.decided_us > 0
