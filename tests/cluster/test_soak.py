"""A soak of a few seconds."""

from __future__ import annotations

import pytest

from benchmarks.soak import soak
from benchmarks.soak_load import Plan

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(300)]


def test_a_short_soak() -> None:
    """Every kind of action is done, pods are bound, and no pod is lost, bound twice or overcommitted to a node."""
    outcome = soak(Plan(seconds=6.0, rate=20.0, nodes=20, live=30, seed=3), quiet=True)
    assert outcome.violations == []
    assert {"created", "bound", "deleted", "cordoned"} <= set(outcome.done)
    assert outcome.done["bound"] >= 60
    assert outcome.samples[-1].scheduled >= 60
