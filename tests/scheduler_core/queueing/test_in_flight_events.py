"""Events are recorded for the attempts in flight, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.queueing.in_flight_events import InFlightEvents


def test_nothing_is_recorded_without_an_attempt() -> None:
    """An event without an attempt in flight is dropped."""
    flights = InFlightEvents()
    flights.note(NODE_ADD, None, None)
    assert flights.event_count == 0
    assert flights.events_of("nobody") is None


@given(st.lists(st.tuples(st.sampled_from(["begin", "note", "end"]), st.sampled_from("abcd")), max_size=60))
def test_each_sees_the_events_of_its_time(steps: list[tuple[str, str]]) -> None:
    """In any order of attempts; memory is freed with the last one that needs it."""
    flights = InFlightEvents()
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
        assert {each: [event.new for event in flights.events_of(each) or ()] for each in seen} == seen
        assert flights.event_count == max((len(events) for events in seen.values()), default=0)
        assert len(flights) == len(seen)
        assert all(each in flights for each in seen)


def test_a_record_that_is_too_long_loses_its_older_half() -> None:
    """Attempts that began before the rest have no record any more; later ones keep theirs."""
    flights = InFlightEvents(max_events=4)
    flights.begin("early")
    for _ in range(3):
        flights.note(NODE_ADD, None, None)
    flights.begin("late")
    for number in range(2):
        flights.note(NODE_ADD, None, number)
    late = flights.events_of("late")
    assert late is not None
    assert (flights.events_of("early"), [seen.new for seen in late]) == (None, [0, 1])
    assert flights.event_count == 2
    for number in range(100):
        flights.note(NODE_ADD, None, number)
    assert (flights.event_count, len(flights)) == (0, 0)


def test_counts() -> None:
    """Events by label, attempts among them."""
    flights = InFlightEvents()
    assert flights.counts() == {}
    flights.begin("a")
    flights.begin("b")
    flights.note(NODE_ADD, None, None)
    assert flights.counts() == {"NodeAdd": 1, "PodPopped": 2}


def test_a_pod_that_begins_again() -> None:
    """Its earlier record is dropped, those of others are not."""
    flights = InFlightEvents()
    flights.begin("a")
    flights.note(NODE_ADD, None, None)
    flights.begin("b")
    flights.note(NODE_ADD, None, None)
    flights.begin("a")
    assert (flights.events_of("a"), flights.event_count) == ([], 2)
    flights.end("a")
    assert len(flights.events_of("b") or ()) == 1
