"""Law of reuse: a scheduler with cached results makes the same decisions as one that computes everything.

The decisions are nodes, numbers of feasible nodes, events, status patches, victims and gangs, over random runs with
volumes and third-party plugins. `make twins` compares more decisions.
"""

from __future__ import annotations

import pytest

from tests.laws.twins.cluster_run import ClusterRun
from tests.laws.twins.twin import REAL, TINY, Bounds
from tests.support.tables import table

_DECISIONS = 120


@pytest.mark.parametrize("seed", [101, 105, 107, 109])
@table("bounds", ("real bounds", REAL), ("tiny bounds", TINY))
@table("has_gangs", ("pods", False), ("gangs", True))
def test_twins_decide_equally(seed: int, bounds: Bounds, *, has_gangs: bool) -> None:
    """No decision differs, results are reused, and the reuse causes no error."""
    counts = ClusterRun(seed, bounds, has_gangs=has_gangs).run(_DECISIONS)
    assert counts.problem == ""
    assert counts.placed > _DECISIONS // 10
    assert counts.reused > 0
    assert "" not in counts.reuse_errors


@pytest.mark.parametrize("seed", [201, 203, 204])
@table("bounds", ("real bounds", REAL), ("tiny bounds", TINY))
def test_twins_with_devices_decide_equally(seed: int, bounds: Bounds) -> None:
    """With devices no decision and no allocation differs, results are reused, and the reuse causes no error."""
    counts = ClusterRun(seed, bounds, has_devices=True).run(_DECISIONS)
    assert counts.problem == ""
    assert counts.allocated > 0
    assert counts.placed > _DECISIONS // 10
    assert counts.reused > 0
    assert "" not in counts.reuse_errors
