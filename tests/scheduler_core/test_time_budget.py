"""The time budget of a shadow, which limits its share of the scheduler's time."""

from __future__ import annotations

import pytest

from scheduler_core.step_counter import TimeBudget
from tests.support.busy_scheduler import WorkingClock
from tests.support.tables import table


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
@table(
    "durations",
    ("short decisions", (0.0001,)),
    ("some are slow", (0.0001, 0.0001, 0.02)),
    ("all are slow", (0.03,)),
    ("longer than the full budget", (2.0, 0.001)),
)
def test_the_share_is_never_exceeded_for_long(share: float, durations: tuple[float, ...]) -> None:
    """The used time never exceeds the share of the elapsed time by more than one second's share and ten decisions."""
    clock = WorkingClock()
    budget, started, decision_count = TimeBudget(share, clock.now), clock.now(), 0
    for _ in range(2000):
        clock.spend(0.005)
        allowed = budget.decisions(10)
        for _ in range(allowed):
            seconds = durations[decision_count % len(durations)]
            decision_count += 1
            clock.spend(seconds)
            budget.charge(seconds, 1)
        elapsed = clock.now() - started
        assert budget.spent <= share * (elapsed + 1) + 10 * max(durations)
    assert decision_count


def test_an_overdrawn_budget_recovers_before_the_next_decision() -> None:
    """After a decision that overdraws the budget, no decision is allowed until the budget has recovered."""
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


@table(
    "share, charged, seconds, most, allowed",
    ("one that takes longer than the full budget", 0.01, 0.05, 10, 5, 1),
    ("only as many as fit in a slice of 10 ms", 1.0, 0.001, 1, 100, 10),
)
def test_the_decisions_of_a_full_budget(share: float, charged: float, seconds: float, most: int, allowed: int) -> None:
    """A full budget allows a decision of any duration, and no more than a slice has time for."""
    clock = WorkingClock()
    budget = TimeBudget(share, clock.now)
    budget.charge(charged, 1)
    clock.spend(seconds)
    assert budget.decisions(most) == allowed
