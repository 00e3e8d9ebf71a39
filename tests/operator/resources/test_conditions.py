"""Tests of conditions: transition times, order, and length of messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bayplan.resources.conditions import (
    MAX_MESSAGE_LENGTH,
    Condition,
    ConditionStatus,
    ConditionUpdate,
    find_condition,
    set_condition,
)

from tests.support.tables import table

THEN = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = THEN + timedelta(hours=1)


def condition(kind: str = "Ready", status: ConditionStatus = "True") -> Condition:
    return Condition(
        type=kind, status=status, reason="Live", message="is live", last_transition_time=THEN, observed_generation=1
    )


@table(
    "update, time",
    ("unchanged", ConditionUpdate("Ready", "True", "Live", "is live"), THEN),
    ("another-reason", ConditionUpdate("Ready", "True", "LastGoodRevision", "is live"), THEN),
    ("another-message", ConditionUpdate("Ready", "True", "Live", "is still live"), THEN),
    ("another-status", ConditionUpdate("Ready", "False", "Live", "is live"), NOW),
    ("unknown", ConditionUpdate("Ready", "Unknown", "Live", "is live"), NOW),
)
def test_transition_time(update: ConditionUpdate, time: datetime) -> None:
    """The transition time is that of the last change of the status; reason and message are always updated."""
    (changed,) = set_condition([condition()], update, 2, NOW)
    assert changed.last_transition_time == time
    assert (changed.status, changed.reason, changed.message) == (update.status, update.reason, update.message)
    assert changed.observed_generation == 2


def test_the_same_result_returns_an_equal_list() -> None:
    """A reconcile with the same result returns an equal list, so nothing is written."""
    before = [condition("Accepted"), condition()]
    assert set_condition(before, ConditionUpdate("Ready", "True", "Live", "is live"), 1, NOW) == before


def test_a_new_condition_goes_to_the_end() -> None:
    """A new condition is appended with the current time in whole seconds."""
    before = [condition("Accepted")]
    after = set_condition(before, ConditionUpdate("Ready", "False", "NotLive", ""), 1, NOW.replace(microsecond=999_999))
    assert [each.type for each in after] == ["Accepted", "Ready"]
    assert after[1].last_transition_time == NOW
    assert [each.type for each in before] == ["Accepted"]


def test_a_changed_condition_keeps_its_position() -> None:
    """A changed condition keeps its position, and the other conditions are unchanged."""
    before = [condition("Accepted"), condition(), condition("Other")]
    after = set_condition(before, ConditionUpdate("Ready", "False", "NotLive", ""), 2, NOW)
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1].status == "False"


@table("length, ending", ("maximum-length", MAX_MESSAGE_LENGTH, "xxxx"), ("longer", MAX_MESSAGE_LENGTH + 1, " ..."))
def test_long_messages_are_cut(length: int, ending: str) -> None:
    """A message longer than the API server's limit is cut and marked."""
    (made,) = set_condition([], ConditionUpdate("Ready", "False", "NotLive", "x" * length), 1, NOW)
    assert len(made.message) == MAX_MESSAGE_LENGTH
    assert made.message.endswith(ending)


def test_find_condition() -> None:
    """A condition is found by its type, or None is returned."""
    conditions = [condition("Accepted"), condition()]
    assert find_condition(conditions, "Ready") is conditions[1]
    assert find_condition(conditions, "Valid") is None
