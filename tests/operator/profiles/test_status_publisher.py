"""Tests of StatusPublisher: which events are recorded, when, and what follows a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import pytest
from bayplan.profiles.status_publisher import StatusPublisher, StatusSource
from bayplan.resources.resource_model import ObjectMeta

from scheduler_core.errors import NotFoundError, ServerUnavailableError
from scheduler_core.ports import Event, ObjectReference
from tests.support.fake_cluster_objects import FakeStatuses
from tests.support.virtual_clock import VirtualClock

REGARDING = ObjectReference("SchedulerProfile", "batch")


class PublishedStatus:
    """Status that the test sets, and the events recorded about it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.statuses = FakeStatuses()
        self.recorded: list[str] = []
        self.wanted: dict[str, Any] = {}
        self._publisher = self._new_publisher()

    def _new_publisher(self) -> StatusPublisher:
        return StatusPublisher(self.statuses, self.clock, lambda event: self.recorded.append(event.note))

    async def publish(self, *, counts_too: bool = False, uid: str = "u", **wanted: Any) -> None:
        """Set the status and publish it."""
        self.wanted = wanted
        seen = dict(self.statuses.statuses.get(("schedulerprofiles", "batch"), {}))
        meta = ObjectMeta(name="batch", uid=uid)
        source = StatusSource("schedulerprofiles", meta, seen, self._make, self._events)
        await self._publisher.publish([source], counts_too=counts_too)

    def restart(self) -> None:
        """Start another process, which reads the object's status."""
        self._publisher = self._new_publisher()

    def _make(self, written: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        del written, now
        return dict(self.wanted)

    def _events(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
        if before.get("activeRevision") != after.get("activeRevision"):
            note = f"{before.get('activeRevision')} -> {after.get('activeRevision')}"
            yield Event(REGARDING, "Normal", "Activated", "Activating", note)


async def test_a_transition_is_recorded_once() -> None:
    """A transition is recorded once, however often the status is published."""
    published = PublishedStatus()
    for revision in ("a", "a", "b", "b"):
        await published.publish(activeRevision=revision)
    assert published.recorded == ["None -> a", "a -> b"]


async def test_a_restart_repeats_no_event() -> None:
    """A change that is already in the object's status is not recorded again."""
    published = PublishedStatus()
    await published.publish(activeRevision="a")
    published.restart()
    await published.publish(activeRevision="a")
    await published.publish(activeRevision="b")
    assert published.recorded == ["None -> a", "a -> b"]


async def test_the_event_follows_the_write() -> None:
    """After a failed write the event is recorded when the retry succeeds."""
    published = PublishedStatus()
    published.statuses.failures.append(ServerUnavailableError("away"))
    with pytest.raises(ServerUnavailableError):
        await published.publish(activeRevision="a")
    assert published.recorded == []
    await published.publish(activeRevision="a")
    assert published.recorded == ["None -> a"]


async def test_no_event_about_a_deleted_object() -> None:
    """No event is recorded about a deleted object."""
    published = PublishedStatus()
    published.statuses.failures.append(NotFoundError("gone"))
    await published.publish(activeRevision="a")
    assert published.recorded == []


async def test_an_unchanged_object_is_not_written() -> None:
    """An unchanged object is not written, however often it is reconciled and by any process."""
    published = PublishedStatus()
    await published.publish(activeRevision="a", pending=1)
    published.statuses.patches.clear()
    for _ in range(50):
        published.clock.advance(60)
        published.restart()
        await published.publish(activeRevision="a", pending=1, counts_too=True)
    assert published.statuses.patches == []


async def test_a_write_names_the_object_that_it_is_about() -> None:
    """The status of a deleted object is not written to a later one of the same name."""
    published = PublishedStatus()
    await published.publish(activeRevision="a")
    await published.publish(uid="u2", activeRevision="b")
    assert published.statuses.uids == ["u", "u2"]
