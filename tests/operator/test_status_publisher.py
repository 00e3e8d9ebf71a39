"""Statuses and the events that tell of them: what is told, when, and what a failure leaves to be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import pytest
from bayplan.resources.resource_model import ObjectMeta
from bayplan.status_publisher import StatusPublisher, StatusSource

from scheduler_core.errors import NotFoundError, ServerUnavailableError
from scheduler_core.ports import Event, ObjectReference
from tests.support.fake_cluster_objects import FakeStatuses
from tests.support.virtual_clock import VirtualClock

REGARDING = ObjectReference("SchedulerProfile", "batch")


class Story:
    """A status that says what the test says, and what is told of it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.statuses = FakeStatuses()
        self.told: list[str] = []
        self.wanted: dict[str, Any] = {}
        self._publisher = self._new_publisher()

    def _new_publisher(self) -> StatusPublisher:
        return StatusPublisher(self.statuses, self.clock, lambda event: self.told.append(event.note))

    async def publish(self, *, counts_too: bool = False, **wanted: Any) -> None:
        """Write what is wanted from now on."""
        self.wanted = wanted
        seen = dict(self.statuses.statuses.get(("schedulerprofiles", "batch"), {}))
        meta = ObjectMeta(name="batch", uid="u")
        source = StatusSource("schedulerprofiles", meta, seen, self._make, self._events)
        await self._publisher.publish([source], counts_too=counts_too)

    def restart(self) -> None:
        """Another process, which knows what the object says."""
        self._publisher = self._new_publisher()

    def _make(self, written: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        del written, now
        return dict(self.wanted)

    def _events(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
        if before.get("activeRevision") != after.get("activeRevision"):
            note = f"{before.get('activeRevision')} -> {after.get('activeRevision')}"
            yield Event(REGARDING, "Normal", "Activated", "Activating", note)


async def test_a_transition_is_told_once() -> None:
    """However often it is published."""
    story = Story()
    for revision in ("a", "a", "b", "b"):
        await story.publish(activeRevision=revision)
    assert story.told == ["None -> a", "a -> b"]


async def test_a_restart_repeats_nothing() -> None:
    """What the object says was told."""
    story = Story()
    await story.publish(activeRevision="a")
    story.restart()
    await story.publish(activeRevision="a")
    await story.publish(activeRevision="b")
    assert story.told == ["None -> a", "a -> b"]


async def test_what_is_not_written_is_not_told_yet() -> None:
    """A failed write is tried again, and its event follows the one that succeeds."""
    story = Story()
    story.statuses.failures.append(ServerUnavailableError("away"))
    with pytest.raises(ServerUnavailableError):
        await story.publish(activeRevision="a")
    assert story.told == []
    await story.publish(activeRevision="a")
    assert story.told == ["None -> a"]


async def test_nothing_is_told_of_what_is_gone() -> None:
    """An event about it would find nobody."""
    story = Story()
    story.statuses.failures.append(NotFoundError("gone"))
    await story.publish(activeRevision="a")
    assert story.told == []


async def test_an_untouched_object_is_not_written() -> None:
    """However often it is reconciled, and whoever does."""
    story = Story()
    await story.publish(activeRevision="a", pending=1)
    story.statuses.patches.clear()
    for _ in range(50):
        story.clock.advance(60)
        story.restart()
        await story.publish(activeRevision="a", pending=1, counts_too=True)
    assert story.statuses.patches == []
