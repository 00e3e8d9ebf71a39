"""Tests of statuses and the events about their changes: what is recorded, when, and what follows a failure."""

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


class Story:
    """A status that the test sets, and the events recorded about it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.statuses = FakeStatuses()
        self.recorded: list[str] = []
        self.wanted: dict[str, Any] = {}
        self._publisher = self._new_publisher()

    def _new_publisher(self) -> StatusPublisher:
        return StatusPublisher(self.statuses, self.clock, lambda event: self.recorded.append(event.note))

    async def publish(self, *, counts_too: bool = False, **wanted: Any) -> None:
        """Publish this status from now on."""
        self.wanted = wanted
        seen = dict(self.statuses.statuses.get(("schedulerprofiles", "batch"), {}))
        meta = ObjectMeta(name="batch", uid="u")
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
    """However often it is published."""
    story = Story()
    for revision in ("a", "a", "b", "b"):
        await story.publish(activeRevision=revision)
    assert story.recorded == ["None -> a", "a -> b"]


async def test_a_restart_repeats_nothing() -> None:
    """A change that the object's status shows was recorded before."""
    story = Story()
    await story.publish(activeRevision="a")
    story.restart()
    await story.publish(activeRevision="a")
    await story.publish(activeRevision="b")
    assert story.recorded == ["None -> a", "a -> b"]


async def test_the_event_follows_the_write() -> None:
    """A failed write is retried, and the event is recorded after the one that succeeds."""
    story = Story()
    story.statuses.failures.append(ServerUnavailableError("away"))
    with pytest.raises(ServerUnavailableError):
        await story.publish(activeRevision="a")
    assert story.recorded == []
    await story.publish(activeRevision="a")
    assert story.recorded == ["None -> a"]


async def test_no_event_about_a_deleted_object() -> None:
    """Its reader would look for an object that does not exist."""
    story = Story()
    story.statuses.failures.append(NotFoundError("gone"))
    await story.publish(activeRevision="a")
    assert story.recorded == []


async def test_an_untouched_object_is_not_written() -> None:
    """However often it is reconciled, and by any process."""
    story = Story()
    await story.publish(activeRevision="a", pending=1)
    story.statuses.patches.clear()
    for _ in range(50):
        story.clock.advance(60)
        story.restart()
        await story.publish(activeRevision="a", pending=1, counts_too=True)
    assert story.statuses.patches == []
