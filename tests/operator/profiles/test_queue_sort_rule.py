"""Tests of the decision which profiles can go live with their QueueSort."""

from __future__ import annotations

import pytest
from bayplan.profiles.desired_profiles import ProfileQueueSort, QueueSort, decide_queue_sort

PRIORITY, FAIR, AGE = ("PrioritySort", ""), ("FairSort", ""), ("AgeSort", "")


def row(profile: str, live: QueueSort | None, wanted: QueueSort | None) -> ProfileQueueSort:
    return ProfileQueueSort(profile, live, wanted)


ROWS = [
    pytest.param([row("a", PRIORITY, PRIORITY), row("b", None, PRIORITY)], "ab", {}, id="no-change"),
    pytest.param([row("a", PRIORITY, FAIR)], "a", {}, id="single-profile"),
    pytest.param([row("a", PRIORITY, FAIR), row("b", PRIORITY, PRIORITY)], "b", {"a": ("b",)}, id="one-of-two-waits"),
    pytest.param([row("a", PRIORITY, FAIR), row("b", PRIORITY, FAIR)], "ab", {}, id="all-together"),
    pytest.param(
        [row("a", PRIORITY, FAIR), row("b", PRIORITY, AGE)], "", {"a": ("b",), "b": ("a",)}, id="no-agreement"
    ),
    pytest.param(
        [row("a", PRIORITY, FAIR), row("b", PRIORITY, None)],
        "",
        {"a": ("b",)},
        id="invalid-profile-keeps-its-queue-sort",
    ),
    pytest.param([row("a", PRIORITY, PRIORITY), row("b", None, FAIR)], "a", {"b": ("a",)}, id="new-profile-waits"),
    pytest.param(
        [row("a", PRIORITY, FAIR), row("b", None, FAIR), row("c", None, PRIORITY)],
        "ab",
        {"c": ("a",)},
        id="new-profiles-follow-live-ones",
    ),
    pytest.param([row("a", None, FAIR), row("b", None, PRIORITY)], "a", {"b": ("a",)}, id="oldest-goes-first"),
    pytest.param(
        [row("a", None, None), row("b", None, PRIORITY)], "b", {}, id="profile-without-queue-sort-does-not-count"
    ),
    pytest.param([row("a", PRIORITY, ("PrioritySort", "x"))], "a", {}, id="other-args-are-another-queue-sort"),
    pytest.param([], "", {}, id="no-profiles"),
]


@pytest.mark.parametrize(("profiles", "ready", "waiting"), ROWS)
def test_profiles_wait_for_a_common_queue_sort(
    profiles: list[ProfileQueueSort], ready: str, waiting: dict[str, tuple[str, ...]]
) -> None:
    """A profile waits while a live profile has another QueueSort, and the decision names that profile."""
    decision = decide_queue_sort(profiles)
    assert (decision.ready, decision.waiting) == (frozenset(ready), waiting)
