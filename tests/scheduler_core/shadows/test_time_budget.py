"""The share of the scheduler's time that a shadow uses, whatever its decisions take."""

from __future__ import annotations

import pytest

from scheduler_core.shadows.time_budget import TimeBudget
from tests.support.busy_scheduler import WorkingClock


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "durations",
    [
        pytest.param((0.0001,), id="short decisions"),
        pytest.param((0.0001, 0.0001, 0.02), id="some are slow"),
        pytest.param((0.03,), id="all are slow"),
        pytest.param((2.0, 0.001), id="longer than the full credit"),
    ],
)
def test_the_share_is_never_exceeded_for_long(share: float, durations: tuple[float, ...]) -> None:
    """Over any time, no more than the share of it, of the first second, and of one decision is used."""
    clock = WorkingClock()
    budget, started, made = TimeBudget(share, clock.now), clock.now(), 0
    for _ in range(2000):
        clock.spend(0.005)
        allowed = budget.decisions(10)
        for _ in range(allowed):
            seconds = durations[made % len(durations)]
            made += 1
            clock.spend(seconds)
            budget.charge(seconds, 1)
        elapsed = clock.now() - started
        assert budget.spent <= share * (elapsed + 1) + 10 * max(durations)
    assert made


def test_debt_is_paid_before_the_next_decision() -> None:
    """A decision that took ten times the credit stops all others until ten times as much time has passed."""
    clock = WorkingClock()
    budget = TimeBudget(0.1, clock.now)
    assert budget.decisions(5) == 1
    clock.spend(1.0)
    budget.charge(1.0, 1)
    assert budget.decisions(5) == 0
    clock.spend(8.9)
    assert budget.decisions(5) == 0
    clock.spend(1.5)
    assert budget.decisions(5) == 1


def test_a_decision_longer_than_the_credit_is_made_when_the_credit_is_full() -> None:
    """The shadow of a large cluster is compared less often, not never."""
    clock = WorkingClock()
    budget = TimeBudget(0.01, clock.now)
    budget.charge(0.05, 1)
    clock.spend(10)
    assert budget.decisions(5) == 1


def test_decisions_end_before_others_wait_for_long() -> None:
    """However much credit there is, one pause between two slices has as many decisions as fit into 10 ms."""
    clock = WorkingClock()
    budget = TimeBudget(1.0, clock.now)
    budget.charge(0.001, 1)
    clock.spend(1)
    assert budget.decisions(100) == 10
