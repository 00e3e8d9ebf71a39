"""Tests of the condition Contested: when it is true, its message, and how often it is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bayplan.profiles.applied_profile import ProfileFindings
from bayplan.profiles.contested_condition import CONTESTED_SECONDS
from bayplan.profiles.profile_status import Progress, profile_status, status_change

from scheduler_core.metrics.profile_metrics import LostBind

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIVE = ProfileFindings(generation=3, scheduler_name="batch", holds_name=True, live_revision="r1")


def lost(count: int, seconds_ago: float = 0.0) -> Progress:
    """Return the progress of a process that has lost binds."""
    last = LostBind(f"n/p{count}", "ours", "theirs", NOW - timedelta(seconds=seconds_ago))
    return Progress(lost_binds=count, last_lost_bind=last)


def contested(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in status["conditions"] if one["type"] == "Contested")
    return found


def after(written: dict[str, Any], progress: Progress, seconds: float) -> dict[str, Any]:
    return profile_status(LIVE, progress, written, NOW + timedelta(seconds=seconds))


def test_it_names_the_pod_and_both_nodes() -> None:
    """The message says what happened last, how often, and what to do."""
    condition = contested(profile_status(LIVE, lost(3), {}, NOW))
    assert (condition["status"], condition["reason"]) == ("True", "BindsLostToRival")
    for words in ("3 pods", "n/p3 to node theirs", "to ours", "event Scheduled", "stop the other scheduler"):
        assert words in condition["message"]


def test_the_first_loss_has_no_count() -> None:
    """The message names the pod."""
    message = contested(profile_status(LIVE, lost(1), {}, NOW))["message"]
    assert message.startswith(
        "Another client has bound pod n/p1 to node theirs, while this profile was binding it to ours."
    )


@pytest.mark.parametrize(
    ("seconds", "status"),
    [
        pytest.param(0, "True", id="now"),
        pytest.param(CONTESTED_SECONDS - 1, "True", id="within"),
        pytest.param(CONTESTED_SECONDS, "False", id="over"),
    ],
)
def test_it_ends_ten_minutes_after_the_last(seconds: float, status: str) -> None:
    """Later it is uncontested, but the count stays."""
    status_now = profile_status(LIVE, lost(1, seconds), {}, NOW)
    assert (contested(status_now)["status"], status_now["lostBinds"]) == (status, 1)


def test_another_process_keeps_it_until_its_time_is_over() -> None:
    """A process that has lost no bind uses the status: the condition keeps its message and its time."""
    written = profile_status(LIVE, lost(2), {}, NOW)
    restarted = after(written, Progress(), 300)
    assert contested(restarted) == contested(written)
    assert contested(after(restarted, Progress(), CONTESTED_SECONDS))["status"] == "False"


@pytest.mark.parametrize("text", [pytest.param("soon", id="no-time"), pytest.param(7, id="no-text")])
def test_a_time_that_cannot_be_read_counts_as_never(text: object) -> None:
    """A status of another version is no error."""
    assert contested(after({"lastLostBindTime": text}, Progress(), 0))["status"] == "False"


def test_a_further_loss_is_written_with_the_counts() -> None:
    """A message with a count is written with the counts, so that a rival does not cause a write for each pod."""
    first = profile_status(LIVE, lost(1), {}, NOW)
    change = status_change(first, after(first, lost(2), 1))
    assert (change.at_once, change.counts) == (False, True)
    assert contested({"conditions": change.patch["conditions"]})["message"] != contested(first)["message"]


def test_the_first_loss_is_written_at_once() -> None:
    """The begin and the end are written when they happen."""
    quiet = profile_status(LIVE, Progress(), {}, NOW)
    begun = after(quiet, lost(1), 0)
    assert status_change(quiet, begun).at_once
    assert status_change(begun, after(begun, lost(1), CONTESTED_SECONDS)).at_once
