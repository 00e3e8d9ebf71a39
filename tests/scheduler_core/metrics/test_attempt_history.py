"""The last attempts of pods: newest first, and within the bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.metrics.attempt_reports import AttemptHistory, EndedAttempt


def attempt(number: int, result: str = "unschedulable") -> EndedAttempt:
    return EndedAttempt(float(number), "batch", result, "", "no node")


def test_attempts_are_newest_first() -> None:
    """The history of a pod starts with its newest attempt, also after it is scheduled."""
    history = AttemptHistory()
    history.add("a", attempt(1))
    history.add("a", attempt(2))
    history.scheduled("a", attempt(3, "scheduled"))
    assert [each.ended for each in history.of("a")] == [3, 2, 1]
    assert history.of("b") == []


def test_scheduled_pods_do_not_displace_pending_pods() -> None:
    """Scheduled pods and pending pods are stored in two tables, each with its own bound."""
    history = AttemptHistory(subjects=2)
    history.add("pending", attempt(0))
    for number in range(5):
        history.scheduled(f"bound-{number}", attempt(number, "scheduled"))
    assert history.of("pending")
    assert [bool(history.of(f"bound-{number}")) for number in range(5)] == [False, False, False, True, True]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_bounds(steps: list[tuple[int, bool]]) -> None:
    """The history stores only the last attempts of the last subjects."""
    history = AttemptHistory(subjects=3, attempts=2)
    failed: list[int] = []
    for number, (subject, is_bound) in enumerate(steps):
        if is_bound:
            history.scheduled(subject, attempt(number, "scheduled"))
        else:
            history.add(subject, attempt(number))
            failed.append(subject)
        assert history.of(subject)[0].ended == number
        # At most three subjects in each of the two tables.
        assert all(len(history.of(each)) <= 2 for each in range(6))
        assert sum(bool(history.of(each)) for each in range(6)) <= 6
    recent = list(dict.fromkeys(reversed(failed)))[:1]
    assert all(history.of(each) for each in recent)
