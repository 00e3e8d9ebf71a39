"""Events are kept for the attempts of their time, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.queueing.in_flight import InFlight


def test_nothing_is_kept_for_nobody() -> None:
    """An event without an attempt under way is dropped."""
    flights = InFlight()
    flights.note(NODE_ADD, None, None)
    assert flights.event_count == 0
    assert flights.events_of("nobody") == []


@given(st.lists(st.tuples(st.sampled_from(["begin", "note", "end"]), st.sampled_from("abcd")), max_size=60))
def test_each_sees_the_events_of_its_time(steps: list[tuple[str, str]]) -> None:
    """Whatever the order in which attempts begin and end; memory ends with the last one that needs it."""
    flights = InFlight()
    seen: dict[str, list[int]] = {}
    for number, (what, uid) in enumerate(steps):
        if what == "begin" and uid not in seen:
            flights.begin(uid)
            seen[uid] = []
        elif what == "note":
            flights.note(NODE_ADD, None, number)
            for events in seen.values():
                events.append(number)
        elif what == "end":
            flights.end(uid)
            seen.pop(uid, None)
        assert {each: [event.new for event in flights.events_of(each)] for each in seen} == seen
        assert flights.event_count == max((len(events) for events in seen.values()), default=0)
        assert len(flights) == len(seen)
        assert all(each in flights for each in seen)
