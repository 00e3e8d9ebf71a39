"""Tests of changes of the QueueSort."""

from __future__ import annotations

import pytest
from bayplan.profiles.queue_sort_rule import ProfileQueueSort, QueueSort, decide_queue_sort

PRIORITY, FAIR, AGE = ("PrioritySort", ""), ("FairSort", ""), ("AgeSort", "")


def row(profile: str, live: QueueSort | None, wanted: QueueSort | None) -> ProfileQueueSort:
    return ProfileQueueSort(profile, live, wanted)


ROWS = [
    pytest.param([row("a", PRIORITY, PRIORITY), row("b", None, PRIORITY)], "ab", {}, id="no-change"),
    pytest.param([row("a", PRIORITY, FAIR)], "a", {}, id="alone"),
    pytest.param([row("a", PRIORITY, FAIR), row("b", PRIORITY, PRIORITY)], "b", {"a": ("b",)}, id="one-of-two-waits"),
    pytest.param([row("a", PRIORITY, FAIR), row("b", PRIORITY, FAIR)], "ab", {}, id="all-together"),
    pytest.param(
        [row("a", PRIORITY, FAIR), row("b", PRIORITY, AGE)], "", {"a": ("b",), "b": ("a",)}, id="no-agreement"
    ),
    pytest.param([row("a", PRIORITY, FAIR), row("b", PRIORITY, None)], "", {"a": ("b",)}, id="a-broken-one-stays"),
    pytest.param([row("a", PRIORITY, PRIORITY), row("b", None, FAIR)], "a", {"b": ("a",)}, id="a-new-one-waits"),
    pytest.param(
        [row("a", PRIORITY, FAIR), row("b", None, FAIR), row("c", None, PRIORITY)],
        "ab",
        {"c": ("a",)},
        id="new-ones-follow-the-live",
    ),
    pytest.param([row("a", None, FAIR), row("b", None, PRIORITY)], "a", {"b": ("a",)}, id="the-oldest-begins"),
    pytest.param([row("a", None, None), row("b", None, PRIORITY)], "b", {}, id="one-that-cannot-run-does-not-decide"),
    pytest.param([row("a", PRIORITY, ("PrioritySort", "x"))], "a", {}, id="args-are-an-order-too"),
    pytest.param([], "", {}, id="nobody"),
]


@pytest.mark.parametrize(("profiles", "ready", "waiting"), ROWS)
def test_who_goes_live(profiles: list[ProfileQueueSort], ready: str, waiting: dict[str, tuple[str, ...]]) -> None:
    """A profile waits while a live one has another QueueSort, and the decision names that one."""
    decision = decide_queue_sort(profiles)
    assert (decision.ready, decision.waiting) == (frozenset(ready), waiting)
