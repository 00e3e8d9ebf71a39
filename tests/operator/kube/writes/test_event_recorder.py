"""Tests of EventRecorder: requests, truncated notes, and series."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, DispatcherOptions
from bayplan.kube.writes.event_recorder import EventRecorder, cut_note

from scheduler_core.ports import Event, ObjectReference
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock, VirtualTimer

EVENTS = "/apis/events.k8s.io/v1/namespaces/n/events"
POD = ObjectReference("Pod", "a", "n", "uid-a")
FAILED = Event(POD, "Warning", "FailedScheduling", "Scheduling", "0/1 nodes are available: 1 Insufficient cpu.")


class TimerReportingClock(VirtualClock):
    """Virtual clock that sets an event when a timer is set, for example for a retry."""

    def __init__(self) -> None:
        super().__init__()
        self.timer_set = asyncio.Event()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        self.timer_set.set()
        return super().call_later(seconds, callback)


@pytest.fixture
def time() -> TimerReportingClock:
    return TimerReportingClock()


@pytest.fixture
async def dispatcher(time: VirtualClock) -> AsyncIterator[ApiDispatcher]:
    dispatcher = ApiDispatcher(DispatcherOptions(), time, lambda: False)
    yield dispatcher
    await dispatcher.close()


@pytest.fixture
async def recorder(api: FakeApi, dispatcher: ApiDispatcher, time: VirtualClock) -> AsyncIterator[EventRecorder]:
    async with ApiConnection(api, ConnectionOptions(), time) as connection:
        recorder = EventRecorder(connection, dispatcher, time, 5.0)
        yield recorder
        recorder.close()


def path_of(name: str) -> str:
    return f"{EVENTS}/{name}"


async def record_first(api: FakeApi, recorder: EventRecorder) -> str:
    """Record FAILED and return the name of the created Event."""
    api.on("POST", EVENTS, Response(201))
    recorder.record(FAILED)
    await api.until(lambda: len(api.requests("POST")) == 1)
    name = api.requests("POST")[0].json["metadata"]["name"]
    api.on("PATCH", path_of(name), Response())
    return str(name)


async def test_event_as_sent(api: FakeApi, recorder: EventRecorder) -> None:
    """An event is created with all fields that events.k8s.io requires."""
    api.on("POST", EVENTS, Response(201))
    recorder.record(replace(FAILED, related=ObjectReference("Node", "node-1")))
    await api.until(lambda: len(api.received) == 1)
    sent = api.received[0].json
    assert sent["reportingInstance"].startswith("bayplan-")
    assert sent["metadata"]["name"].startswith("a.")
    del sent["reportingInstance"], sent["metadata"]["name"]
    assert sent == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "n"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": FAILED.note,
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "a", "uid": "uid-a"},
        "related": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        "reportingController": "bayplan",
    }


@table(
    "controller, written",
    ("scheduler name", "batch", "batch"),
    ("with dots", "ml.example.com", "ml.example.com"),
    ("longer than the API allows", "a" * 64, "bayplan"),
)
async def test_reporting_controller(api: FakeApi, recorder: EventRecorder, controller: str, written: str) -> None:
    """An event names the profile that reports it, unless the API would reject that name."""
    api.on("POST", EVENTS, Response(201))
    recorder.record(replace(FAILED, reporting_controller=controller))
    await api.until(lambda: len(api.received) == 1)
    sent = api.received[0].json
    assert (sent["reportingController"], sent["reportingInstance"].startswith(f"{written}-")) == (written, True)


async def test_cluster_scoped_object(api: FakeApi, recorder: EventRecorder) -> None:
    """An event about a cluster-scoped object is created in ``default`` with a valid name."""
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    api.on("POST", path, Response(201))
    recorder.record(replace(FAILED, regarding=ObjectReference("Thing", "Über", api_version="x/v1")))
    await api.until(lambda: len(api.received) == 1)
    assert (api.received[0].path, len(api.received[0].json["metadata"]["name"])) == (path, 36)


async def test_names_are_unique(api: FakeApi, recorder: EventRecorder) -> None:
    """Different events about one object in one microsecond have different names."""
    api.on("POST", EVENTS, Response(201))
    for n in range(3):
        recorder.record(replace(FAILED, note=f"note {n}"))
    await api.until(lambda: len(api.received) == 3)
    assert len({seen.json["metadata"]["name"] for seen in api.received}) == 3


async def test_repetition_becomes_a_series(api: FakeApi, recorder: EventRecorder, time: VirtualClock) -> None:
    """The second occurrence patches the series at once; later occurrences are counted and sent once a minute."""
    name = await record_first(api, recorder)
    time.advance(1.0)
    recorder.record(FAILED)
    await api.until(lambda: len(api.requests("PATCH")) == 1)
    time.advance(1.0)
    for _ in range(10):
        recorder.record(FAILED)
    time.advance(60.0)
    await api.until(lambda: len(api.requests("PATCH", path_of(name))) == 2)
    assert [seen.json for seen in api.requests("PATCH")] == [
        {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}},
        {"series": {"count": 12, "lastObservedTime": "2026-01-01T00:00:02.000000Z"}},
    ]
    assert len(api.requests("POST")) == 1
    assert (recorder.recorded, recorder.repeated) == (12, 11)


async def test_single_events_are_not_stored(api: FakeApi, recorder: EventRecorder) -> None:
    """Events that occur once per pod, such as Scheduled, are not stored for a series."""
    api.on("POST", EVENTS, Response(201))
    bound = Event(POD, "Normal", "Scheduled", "Binding", "Successfully assigned n/a to node-1")
    recorder.record(bound)
    recorder.record(bound)
    await api.until(lambda: len(api.requests("POST")) == 2)
    assert recorder.repeated == 0


async def test_series_ends_after_six_minutes(api: FakeApi, recorder: EventRecorder, time: VirtualClock) -> None:
    """A repetition after six minutes without the event is a new event."""
    await record_first(api, recorder)
    time.advance(361.0)
    recorder.record(FAILED)
    await api.until(lambda: len(api.requests("POST")) == 2)
    assert api.requests("PATCH") == []


async def test_expired_event_is_created_again(api: FakeApi, recorder: EventRecorder) -> None:
    """An event that expired on the server is created again with its count."""
    name = await record_first(api, recorder)
    api.on("PATCH", path_of(name), error_response(404, "expired"))
    recorder.record(FAILED)
    await api.until(lambda: len(api.requests("POST")) == 2)
    assert api.requests("POST")[1].json["series"]["count"] == 2


async def test_repetition_before_the_event_is_sent(api: FakeApi, connection: ApiConnection, time: VirtualClock) -> None:
    """Repetitions of a queued event become part of its creation."""
    are_binds_pending = True
    dispatcher = ApiDispatcher(DispatcherOptions(), time, lambda: are_binds_pending)
    recorder = EventRecorder(connection, dispatcher, time, 5.0)
    api.on("POST", EVENTS, Response(201))
    for _ in range(3):
        recorder.record(FAILED)
    are_binds_pending = False
    recorder.close()
    await dispatcher.drain(5.0)
    await dispatcher.close()
    [seen] = api.received
    assert seen.json["series"]["count"] == 3


async def test_lost_response_of_a_creation(
    api: FakeApi, recorder: EventRecorder, dispatcher: ApiDispatcher, time: TimerReportingClock
) -> None:
    """A creation whose response was lost is repeated, and AlreadyExists counts as success."""
    api.on("POST", EVENTS, Response(disconnect=True), error_response(409, "exists"))
    recorder.record(FAILED)
    await api.until(lambda: len(api.received) == 1)
    await time.timer_set.wait()
    time.advance(1.0)
    await dispatcher.drain(5.0)
    assert (dispatcher.written, dispatcher.given_up) == (1, 0)


@table(
    "note, cut",
    ("fits", "x" * 1024, "x" * 1024),
    ("one-too-long", "x" * 1025, "x" * 1020 + " ..."),
    ("far-too-long", "x" * 5000, "x" * 1020 + " ..."),
    ("never-inside-a-character", "x" * 1019 + "é" * 5, "x" * 1019 + " ..."),
)
def test_notes_are_cut(note: str, cut: str) -> None:
    """A note is cut at 1,024 bytes, marked, and stays valid text."""
    assert cut_note(note) == cut
    assert len(cut.encode()) <= 1024


@table(
    "moment, written",
    ("microseconds", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
    ("a whole second", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
    ("last", datetime(2026, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "2026-12-31T23:59:59.999999Z"),
)
async def test_event_time_has_microseconds(
    api: FakeApi, connection: ApiConnection, dispatcher: ApiDispatcher, moment: datetime, written: str
) -> None:
    """The event time always has six fractional digits, as a MicroTime requires."""

    class Stopped(VirtualClock):
        """Clock with a fixed time."""

        def wall(self) -> datetime:
            return moment

    api.on("POST", EVENTS, Response(201))
    EventRecorder(connection, dispatcher, Stopped(), 5.0).record(FAILED)
    await api.until(lambda: len(api.received) == 1)
    assert api.received[0].json["eventTime"] == written
