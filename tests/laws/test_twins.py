"""The law of reuse: a scheduler that reuses results decides as one that computes everything.

The same node and number of feasible nodes, events, status patches, victims and gangs, over random lives with volumes
and third-party plugins. `make twins` runs as many decisions as are asked for.
"""

from __future__ import annotations

import pytest

from scheduler_core.runtime.reuse_limits import DEFAULT_LIMITS, ReuseLimits
from tests.laws.twins.life import TINY_LIMITS, Life

_DECISIONS = 120


@pytest.mark.parametrize("seed", [101, 105, 107, 109])
@pytest.mark.parametrize(
    "limits", [pytest.param(DEFAULT_LIMITS, id="real bounds"), pytest.param(TINY_LIMITS, id="tiny bounds")]
)
@pytest.mark.parametrize("has_gangs", [pytest.param(False, id="pods"), pytest.param(True, id="gangs")])
def test_twins_decide_alike(seed: int, limits: ReuseLimits, *, has_gangs: bool) -> None:
    """No decision differs, reuse saves work, and reuse itself does not fail."""
    counts = Life(seed, limits, has_gangs=has_gangs).run(_DECISIONS)
    assert counts.problem == ""
    assert counts.placed > _DECISIONS // 10
    assert counts.saved > 0
    assert "" not in counts.reuse_errors
