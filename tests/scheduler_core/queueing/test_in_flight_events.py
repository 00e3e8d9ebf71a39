"""Events that are stored while attempts that may need them are in flight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.queueing.event_wakeups import InFlightEvents
from tests.support.presence import present


def test_no_event_is_stored_without_an_attempt() -> None:
    """An event is dropped if no attempt is in flight."""
    flights = InFlightEvents()
    flights.note(NODE_ADD, None, None)
    assert flights.event_count == 0
    assert flights.events_of("unknown") is None


@given(st.lists(st.tuples(st.sampled_from(["begin", "note", "end"]), st.sampled_from("abcd")), max_size=60))
def test_each_attempt_has_the_events_since_its_start(steps: list[tuple[str, str]]) -> None:
    """Each attempt has the events since its start, and events that no attempt needs are dropped."""
    flights = InFlightEvents()
    expected: dict[str, list[int]] = {}
    for number, (step, uid) in enumerate(steps):
        if step == "begin" and uid not in expected:
            flights.begin(uid)
            expected[uid] = []
        elif step == "note":
            flights.note(NODE_ADD, None, number)
            for events in expected.values():
                events.append(number)
        elif step == "end":
            flights.end(uid)
            expected.pop(uid, None)
        assert {each: [event.new for event in flights.events_of(each) or ()] for each in expected} == expected
        assert flights.event_count == max((len(events) for events in expected.values()), default=0)
        assert len(flights) == len(expected)
        assert all(each in flights for each in expected)


def test_the_older_half_is_dropped_at_the_maximum() -> None:
    """At the maximum the older half of the events is dropped, with the records of attempts that began before."""
    flights = InFlightEvents(max_events=4)
    flights.begin("early")
    for _ in range(3):
        flights.note(NODE_ADD, None, None)
    flights.begin("late")
    for number in range(2):
        flights.note(NODE_ADD, None, number)
    late = present(flights.events_of("late"))
    assert (flights.events_of("early"), [expected.new for expected in late]) == (None, [0, 1])
    assert flights.event_count == 2
    for number in range(100):
        flights.note(NODE_ADD, None, number)
    assert (flights.event_count, len(flights)) == (0, 0)


def test_counts() -> None:
    """Events and attempts are counted by label."""
    flights = InFlightEvents()
    assert flights.counts() == {}
    flights.begin("a")
    flights.begin("b")
    flights.note(NODE_ADD, None, None)
    assert flights.counts() == {"NodeAdd": 1, "PodPopped": 2}


def test_a_second_attempt_of_a_pod() -> None:
    """A second attempt of a pod drops the events of its first attempt, but not those of other pods."""
    flights = InFlightEvents()
    flights.begin("a")
    flights.note(NODE_ADD, None, None)
    flights.begin("b")
    flights.note(NODE_ADD, None, None)
    flights.begin("a")
    assert (flights.events_of("a"), flights.event_count) == ([], 2)
    flights.end("a")
    assert len(flights.events_of("b") or ()) == 1
