"""The cases of the gang benchmark end with their documented decision."""

from __future__ import annotations

import pytest

from benchmarks.gang_core import CASES, Case, decide


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
async def test_a_case_has_its_decision(case: Case) -> None:
    """All members are placed, or all but one fit and none is placed; any other decision raises an error."""
    decision = await decide(case, nodes=30, members=12)
    assert (decision.case, decision.nodes, decision.members) == (case.name, 30, 12)
    assert decision.cpu_seconds > 0
    assert decision.wall_seconds > 0
