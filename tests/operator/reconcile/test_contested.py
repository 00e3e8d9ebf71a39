"""The condition Contested: when it holds, what it says, and how often that is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bayplan.reconcile.contested import CONTESTED_SECONDS
from bayplan.reconcile.status import ProfileFindings, Progress, profile_status, status_change

from scheduler_core.cycle.context import LostBind

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIVE = ProfileFindings(generation=3, scheduler_name="batch", holds_name=True, live_revision="r1")


def lost(count: int, seconds_ago: float = 0.0) -> Progress:
    """A process that has lost binds."""
    last = LostBind(f"n/p{count}", "ours", "theirs", NOW - timedelta(seconds=seconds_ago))
    return Progress(lost_binds=count, last_lost_bind=last)


def contested(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in status["conditions"] if one["type"] == "Contested")
    return found


def after(written: dict[str, Any], progress: Progress, seconds: float) -> dict[str, Any]:
    return profile_status(LIVE, progress, written, NOW + timedelta(seconds=seconds))


def test_it_names_the_pod_and_both_nodes() -> None:
    """Whoever reads it knows what happened last, how often, and what to do."""
    told = contested(profile_status(LIVE, lost(3), {}, NOW))
    assert (told["status"], told["reason"]) == ("True", "BindsLostToRival")
    for words in ("3 pods", "n/p3 to node theirs", "to ours", "event Scheduled", "stop the other scheduler"):
        assert words in told["message"]


def test_the_first_loss_is_told_without_a_count() -> None:
    """One pod is named, not counted."""
    told = contested(profile_status(LIVE, lost(1), {}, NOW))["message"]
    assert told.startswith(
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
    """Later it is uncontested, though the count stands."""
    told = profile_status(LIVE, lost(1, seconds), {}, NOW)
    assert (contested(told)["status"], told["lostBinds"]) == (status, 1)


def test_another_process_keeps_it_until_its_time_is_over() -> None:
    """Who has lost nothing itself goes by the status: the condition neither goes nor changes its words or its time."""
    written = profile_status(LIVE, lost(2), {}, NOW)
    restarted = after(written, Progress(), 300)
    assert contested(restarted) == contested(written)
    assert contested(after(restarted, Progress(), CONTESTED_SECONDS))["status"] == "False"


@pytest.mark.parametrize("text", [pytest.param("soon", id="no-time"), pytest.param(7, id="no-text")])
def test_a_time_that_cannot_be_read_counts_as_never(text: object) -> None:
    """Another version's status does not stop this one."""
    assert contested(after({"lastLostBindTime": text}, Progress(), 0))["status"] == "False"


def test_a_further_loss_waits_for_its_turn() -> None:
    """Words that count are written with the counts, so that a rival costs no write for each pod."""
    first = profile_status(LIVE, lost(1), {}, NOW)
    change = status_change(first, after(first, lost(2), 1))
    assert (change.at_once, change.counts) == (False, True)
    assert contested({"conditions": change.patch["conditions"]})["message"] != contested(first)["message"]


def test_the_first_loss_is_written_at_once() -> None:
    """That it has begun, and that it is over, are told when it happens."""
    quiet = profile_status(LIVE, Progress(), {}, NOW)
    begun = after(quiet, lost(1), 0)
    assert status_change(quiet, begun).at_once
    assert status_change(begun, after(begun, lost(1), CONTESTED_SECONDS)).at_once
