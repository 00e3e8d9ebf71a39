"""Writes the statuses of custom resources when they change.

It compares with what it wrote last and not with each watch event: an event from before a write would make it write
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from bayplan.profiles.profile_status import COUNT_INTERVAL_SECONDS, status_change
from bayplan.resources.conditions import ConditionState
from bayplan.resources.resource_model import ObjectMeta
from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.ports import Clock, Event

log = logging.getLogger(__name__)


class StatusWriter(Protocol):
    """Interface for writing statuses of cluster-scoped custom resources."""

    async def patch_status(self, plural: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge ``patch`` over an object's status."""


class StatusSource(Struct, frozen=True):
    """A status to write.

    Attributes:
        plural: The resource's name in URLs.
        meta: The object's metadata.
        seen: The status of the object as it was read.
        make: Makes the status from the one last written and the time.
        events: Returns the events to record for a change from the first status to the second.
    """

    plural: str
    meta: ObjectMeta
    seen: Mapping[str, Any]
    make: Callable[[Mapping[str, Any], datetime], dict[str, Any]]
    events: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[Event]]


class _Written(Struct):
    plural: str
    name: str
    status: dict[str, Any]
    counts_at: float = float("-inf")


class StatusPublisher:
    """Writer of statuses and of the events about their changes; counts of an object at most every ten seconds.

    Args:
        writer: Writes statuses.
        clock: Clock.
        record: Records events, each after its status is written: a failed write is retried as a whole.
    """

    def __init__(self, writer: StatusWriter, clock: Clock, record: Callable[[Event], None]) -> None:
        self._writer = writer
        self._clock = clock
        self._record = record
        self._written: dict[str, _Written] = {}

    async def publish(self, sources: Iterable[StatusSource], *, counts_too: bool = False) -> None:
        """Write the statuses that changed.

        Args:
            sources: The statuses of all objects; the memory of other objects is dropped.
            counts_too: Write counts before their interval is over, too: this process stops.

        Raises:
            ClusterWriteError: At least one could not be written; the others were.
        """
        sources = list(sources)
        uids = {source.meta.uid for source in sources}
        self._written = {uid: written for uid, written in self._written.items() if uid in uids}
        failure: ClusterWriteError | None = None
        for source in sources:
            try:
                await self._publish(source, counts_too=counts_too)
            except NotFoundError:
                log.debug("%s %s is gone; its status is not written", source.plural, source.meta.name)
            except ClusterWriteError as error:
                failure = error
        if failure is not None:
            raise failure

    def status_of(self, uid: str) -> Mapping[str, Any] | None:
        """Return the status of an object as last written; None if it was not looked at yet."""
        written = self._written.get(uid)
        return None if written is None else written.status

    def conditions(self) -> Iterator[ConditionState]:
        """Yield every condition of every object, as last written."""
        for written in self._written.values():
            for condition in written.status.get("conditions") or ():
                yield ConditionState(
                    written.plural, written.name, str(condition.get("type")), str(condition.get("status"))
                )

    async def _publish(self, source: StatusSource, *, counts_too: bool) -> None:
        new = _Written(source.plural, source.meta.name, dict(source.seen))
        written = self._written.setdefault(source.meta.uid, new)
        wanted = source.make(written.status, self._clock.wall())
        change = status_change(written.status, wanted)
        now = self._clock.now()
        due = counts_too or now - written.counts_at >= COUNT_INTERVAL_SECONDS
        if not change.patch or not (change.at_once or due):
            return
        await self._writer.patch_status(source.plural, source.meta.name, change.patch)
        before, written.status = written.status, wanted
        if change.counts:
            written.counts_at = now
        for event in source.events(before, wanted):
            self._record(event)
