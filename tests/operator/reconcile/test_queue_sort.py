"""When the order of the queue may change."""

from __future__ import annotations

import pytest
from bayplan.reconcile.queue_sort import ProfileQueueSort, QueueSort, decide_queue_sort

PRIORITY, FAIR, AGE = ("PrioritySort", ""), ("FairSort", ""), ("AgeSort", "")


def wish(profile: str, live: QueueSort | None, wanted: QueueSort | None) -> ProfileQueueSort:
    return ProfileQueueSort(profile, live, wanted)


ROWS = [
    pytest.param([wish("a", PRIORITY, PRIORITY), wish("b", None, PRIORITY)], "ab", {}, id="no-change"),
    pytest.param([wish("a", PRIORITY, FAIR)], "a", {}, id="alone"),
    pytest.param([wish("a", PRIORITY, FAIR), wish("b", PRIORITY, PRIORITY)], "b", {"a": ("b",)}, id="one-of-two-waits"),
    pytest.param([wish("a", PRIORITY, FAIR), wish("b", PRIORITY, FAIR)], "ab", {}, id="all-together"),
    pytest.param(
        [wish("a", PRIORITY, FAIR), wish("b", PRIORITY, AGE)], "", {"a": ("b",), "b": ("a",)}, id="no-agreement"
    ),
    pytest.param([wish("a", PRIORITY, FAIR), wish("b", PRIORITY, None)], "", {"a": ("b",)}, id="a-broken-one-stays"),
    pytest.param([wish("a", PRIORITY, PRIORITY), wish("b", None, FAIR)], "a", {"b": ("a",)}, id="a-new-one-waits"),
    pytest.param(
        [wish("a", PRIORITY, FAIR), wish("b", None, FAIR), wish("c", None, PRIORITY)],
        "ab",
        {"c": ("a",)},
        id="new-ones-follow-the-live",
    ),
    pytest.param([wish("a", None, FAIR), wish("b", None, PRIORITY)], "a", {"b": ("a",)}, id="the-oldest-begins"),
    pytest.param([wish("a", None, None), wish("b", None, PRIORITY)], "b", {}, id="one-that-cannot-run-does-not-decide"),
    pytest.param([wish("a", PRIORITY, ("PrioritySort", "x"))], "a", {}, id="args-are-an-order-too"),
    pytest.param([], "", {}, id="nobody"),
]


@pytest.mark.parametrize(("profiles", "ready", "waiting"), ROWS)
def test_who_goes_live(profiles: list[ProfileQueueSort], ready: str, waiting: dict[str, tuple[str, ...]]) -> None:
    """A profile waits while a live one asks for another order, and knows for whom."""
    decision = decide_queue_sort(profiles)
    assert (decision.ready, decision.waiting) == (frozenset(ready), waiting)
