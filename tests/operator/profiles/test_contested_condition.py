"""Tests of the condition Contested: its status, its message, and when it is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bayplan.profiles.profile_status import CONTESTED_SECONDS, ProfileFindings, Progress, profile_status, status_change

from scheduler_core.metrics.profile_metrics import LostBind

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIVE = ProfileFindings(generation=3, scheduler_name="batch", holds_name=True, live_revision="r1")


def progress_with_lost_binds(count: int, seconds_ago: float = 0.0) -> Progress:
    """Return the progress of a process that has lost binds to another client."""
    last = LostBind(f"n/p{count}", "ours", "theirs", NOW - timedelta(seconds=seconds_ago))
    return Progress(lost_binds=count, last_lost_bind=last)


def condition_of(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in status["conditions"] if one["type"] == "Contested")
    return found


def status_after(written: dict[str, Any], progress: Progress, seconds: float) -> dict[str, Any]:
    return profile_status(LIVE, progress, written, NOW + timedelta(seconds=seconds))


def test_the_message_names_the_pod_and_both_nodes() -> None:
    """The message has the last lost bind, the number of lost binds, and the remedy."""
    condition = condition_of(profile_status(LIVE, progress_with_lost_binds(3), {}, NOW))
    assert (condition["status"], condition["reason"]) == ("True", "BindsLostToRival")
    for words in ("3 pods", "n/p3 to node theirs", "to ours", "event Scheduled", "stop the other scheduler"):
        assert words in condition["message"]


def test_the_first_loss_has_no_count() -> None:
    """The message about the first lost bind has no count."""
    message = condition_of(profile_status(LIVE, progress_with_lost_binds(1), {}, NOW))["message"]
    assert message.startswith(
        "Another client has bound pod n/p1 to node theirs, while this profile was binding it to ours."
    )


@pytest.mark.parametrize(
    ("seconds", "status"),
    [
        pytest.param(0, "True", id="at once"),
        pytest.param(CONTESTED_SECONDS - 1, "True", id="before the end"),
        pytest.param(CONTESTED_SECONDS, "False", id="at the end"),
    ],
)
def test_the_condition_ends_ten_minutes_after_the_last_loss(seconds: float, status: str) -> None:
    """Ten minutes after the last lost bind the condition is False, and the count stays."""
    status_now = profile_status(LIVE, progress_with_lost_binds(1, seconds), {}, NOW)
    assert (condition_of(status_now)["status"], status_now["lostBinds"]) == (status, 1)


def test_the_condition_survives_a_restart() -> None:
    """A process that has lost no bind keeps the condition of the status until its end."""
    written = profile_status(LIVE, progress_with_lost_binds(2), {}, NOW)
    restarted = status_after(written, Progress(), 300)
    assert condition_of(restarted) == condition_of(written)
    assert condition_of(status_after(restarted, Progress(), CONTESTED_SECONDS))["status"] == "False"


@pytest.mark.parametrize("text", [pytest.param("soon", id="not-a-time"), pytest.param(7, id="not-a-string")])
def test_an_unreadable_time_is_ignored(text: object) -> None:
    """An unreadable time in the status counts as no lost bind."""
    assert condition_of(status_after({"lastLostBindTime": text}, Progress(), 0))["status"] == "False"


def test_a_further_loss_is_written_with_the_counts() -> None:
    """A further lost bind is written together with the counts, so a rival does not cause a write for each pod."""
    first = profile_status(LIVE, progress_with_lost_binds(1), {}, NOW)
    change = status_change(first, status_after(first, progress_with_lost_binds(2), 1))
    assert (change.at_once, change.counts) == (False, True)
    assert condition_of({"conditions": change.patch["conditions"]})["message"] != condition_of(first)["message"]


def test_the_first_loss_is_written_at_once() -> None:
    """The start and the end of the condition are written at once."""
    uncontested = profile_status(LIVE, Progress(), {}, NOW)
    begun = status_after(uncontested, progress_with_lost_binds(1), 0)
    assert status_change(uncontested, begun).at_once
    assert status_change(begun, status_after(begun, progress_with_lost_binds(1), CONTESTED_SECONDS)).at_once
