"""Recorder of events: names, truncated notes, and series for repeated events.

A repeated event (same object, type, reason, action and note) within six minutes is not created again: its ``series`` is
patched, at the second occurrence at once, later once a minute, as client-go v0.37.1 ``tools/events`` does with longer
intervals.

    new --created--> single --repeats--> series --counts patched, once a minute--> dropped 6 min after its last
"""

from __future__ import annotations

import re
import socket
import uuid
from collections import OrderedDict
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import MERGE_PATCH, METADATA_ONLY, ApiConnection, ApiRequest
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, Rank, Write
from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.ports import Clock, Event, ObjectReference, Timer

NOTE_BYTES = 1024
SERIES_SECONDS = 360.0
_FLUSH_SECONDS = 60.0
_REMEMBERED = 20_000
_TRIES = 5
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUFFIX = " ..."
_HOST = socket.gethostname()
_ONCE = frozenset({"Scheduled"})
"""Reasons of events that never repeat and are not stored: a pod is bound once."""
_CONTROLLER = "bayplan"
_CONTROLLER_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def cut_note(note: str) -> str:
    """Truncate a note to 1,024 bytes of UTF-8, marking the cut by `` ...``.

    Follows kube-scheduler v1.37.1, ``pkg/scheduler/schedule_one.go`` ``truncateMessage``, but never cuts a character in
    two.
    """
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES:
        return note
    # Not as in Go, whose JSON writes a replacement character for a cut one, which can make the note too long again.
    return encoded[: NOTE_BYTES - len(_SUFFIX)].decode(errors="ignore") + _SUFFIX


def _micro_time(moment: datetime) -> str:
    """Format a moment in UTC as ``metav1.MicroTime``."""
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"


class _Reference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Name(msgspec.Struct, frozen=True, gc=False):
    name: str
    namespace: str


class _Body(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    api_version: str
    kind: str
    metadata: _Name
    event_time: str
    type: str
    reason: str
    action: str
    note: str
    regarding: _Reference
    reporting_controller: str
    reporting_instance: str
    related: _Reference | None = None
    series: dict[str, Any] | None = None


def _reference(reference: ObjectReference) -> _Reference:
    return _Reference(reference.api_version, reference.kind, reference.namespace, reference.name, reference.uid)


@lru_cache(maxsize=256)
def _reporter(reporting_controller: str) -> tuple[str, str]:
    """Return controller and instance."""
    # A scheduler name may be longer than the API allows for a controller.
    controller = reporting_controller if _CONTROLLER_NAME.fullmatch(reporting_controller) else _CONTROLLER
    return controller, f"{controller}-{_HOST}"[:128]


class _Series:
    __slots__ = ("count", "event", "first_wall", "last_now", "last_wall", "name", "namespace", "sent_count")

    def __init__(self, event: Event, name: str, now: float, wall: str) -> None:
        self.event = event
        # Events are namespaced; as client-go does, those of cluster-scoped objects are created in default.
        self.namespace = event.regarding.namespace or "default"
        self.name = name
        self.count = 1
        self.sent_count = 1
        self.last_now = now
        self.first_wall = self.last_wall = wall

    def body(self) -> bytes:
        # Only when it is sent, since thousands are stored.
        event = self.event
        controller, instance = _reporter(event.reporting_controller)
        return msgspec.json.encode(
            _Body(
                "events.k8s.io/v1",
                "Event",
                _Name(self.name, self.namespace),
                self.first_wall,
                event.type,
                event.reason[:128],
                event.action[:128],
                cut_note(event.note),
                _reference(event.regarding),
                controller,
                instance,
                None if event.related is None else _reference(event.related),
                self.series_field() if self.count > 1 else None,
            )
        )

    def series_field(self) -> dict[str, Any]:
        return {"count": self.count, "lastObservedTime": self.last_wall}


class _EventWrite(Write):
    """Creation of an event, or a patch of its series; the body is made when it is sent."""

    __slots__ = ("_connection", "_series", "_timeout", "creates")

    def __init__(self, connection: ApiConnection, series: _Series, timeout: float, *, creates: bool) -> None:
        super().__init__(("Event", series.namespace, series.name, ""), Rank.EVENT, _TRIES)
        self._connection = connection
        self._series = series
        self._timeout = timeout
        self.creates = creates

    def absorb(self, later: Write) -> bool:
        """Accept a later patch of the series: the body of this write includes it."""
        return isinstance(later, _EventWrite) and not later.creates

    async def carry_out(self) -> None:
        """Create or patch; an event that expired on the server is created again."""
        if self.creates:
            await self._create()
            return
        series = self._series
        # Before the request: what is counted while it is in flight is sent by the next flush.
        series.sent_count = series.count
        path = f"{_events_path(series.namespace)}/{path_part(series.name)}"
        patch = msgspec.json.encode({"series": series.series_field()})
        try:
            await self._connection.request(
                ApiRequest("PATCH", path, patch, content_type=MERGE_PATCH, timeout=self._timeout, accept=METADATA_ONLY)
            )
        except NotFoundError:
            await self._create()

    async def _create(self) -> None:
        series = self._series
        series.sent_count = series.count
        try:
            await self._connection.request(
                ApiRequest(
                    "POST", _events_path(series.namespace), series.body(), timeout=self._timeout, accept=METADATA_ONLY
                )
            )
        except ConflictError:
            if not self.tries:
                raise
            # An earlier attempt succeeded although its response was lost.


class EventRecorder:
    """Converts the core's events to writes; ``repeated`` counts those that were counted into a series."""

    def __init__(self, connection: ApiConnection, dispatcher: ApiDispatcher, clock: Clock, timeout: float) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._clock = clock
        self._timeout = timeout
        # Unlike client-go, the note is compared too, so that an event with another note is not lost.
        self._recent: OrderedDict[Event, _Series] = OrderedDict()
        self._dirty: dict[Event, _Series] = {}
        self._flush: Timer | None = None
        self._last_stamp = 0
        self.recorded = 0
        self.repeated = 0

    def record(self, event: Event) -> None:
        """Queue an event, or count it into the series of an equal one."""
        self.recorded += 1
        now, wall = self._clock.now(), self._clock.wall()
        is_once = event.reason in _ONCE
        series = None if is_once else self._recent.get(event)
        if series is not None and now - series.last_now < SERIES_SECONDS:
            self.repeated += 1
            series.count += 1
            series.last_now, series.last_wall = now, _micro_time(wall)
            # In the order of the last occurrence, so that old series are found at the front.
            self._recent.move_to_end(event)
            if series.count == 2:
                self._send(series, creates=False)
            else:
                self._dirty[event] = series
                self._schedule_flush()
            return
        series = _Series(event, self._name(event.regarding.name, wall), now, _micro_time(wall))
        if not is_once:
            self._recent[event] = series
            self._recent.move_to_end(event)
            self._forget_old(now)
        self._send(series, creates=True)

    def flush(self) -> None:
        """Queue the counts that were not sent yet."""
        dirty, self._dirty = self._dirty, {}
        for series in dirty.values():
            if series.count > series.sent_count:
                self._send(series, creates=False)

    def close(self) -> None:
        """Cancel the timer and queue the last counts."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        self.flush()

    def _send(self, series: _Series, *, creates: bool) -> None:
        self._dispatcher.submit(_EventWrite(self._connection, series, self._timeout, creates=creates))

    def _schedule_flush(self) -> None:
        if self._flush is None:
            self._flush = self._clock.call_later(_FLUSH_SECONDS, self._on_flush)

    def _on_flush(self) -> None:
        self._flush = None
        self.flush()

    def _forget_old(self, now: float) -> None:
        while self._recent:
            event, series = next(iter(self._recent.items()))
            if len(self._recent) <= _REMEMBERED and now - series.last_now < SERIES_SECONDS:
                return
            del self._recent[event]

    def _name(self, regarding: str, wall: datetime) -> str:
        """Return ``<object>.<nanoseconds in hex>``, client-go's name of an event."""
        # Different events about one object in the same microsecond need different names.
        self._last_stamp = max(self._last_stamp + 1, int(wall.timestamp() * 1_000_000) * 1000)
        name = f"{regarding}.{self._last_stamp:x}"
        if len(name) > 253 or not _DNS_SUBDOMAIN.fullmatch(name):
            # As client-go: not every object's name is valid in the name of an event.
            return str(uuid.uuid4())
        return name


def _events_path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{path_part(namespace)}/events"
