"""Statuses of custom resources, written when they differ.

Owns what is written already and when counts were. It must not know what the statuses mean. Why it trusts its own
account of what is written and not each watch event: an event from before a write would make it write again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from bayplan.reconcile.status import COUNT_INTERVAL_SECONDS, status_change
from bayplan.resources.conditions import ConditionState
from bayplan.resources.resource_model import ObjectMeta
from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.ports import Clock, Event

log = logging.getLogger(__name__)


class StatusWriter(Protocol):
    """Writes statuses of cluster-scoped custom resources."""

    async def patch_status(self, plural: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge ``patch`` over an object's status."""


class StatusSource(Struct, frozen=True):
    """A status to be written.

    Attributes:
        plural: The resource's name in URLs.
        meta: The object.
        seen: The status that the object carried when it was seen.
        make: Makes the status from the one that is written and the time.
        events: What of a change of the status, from the first to the second, is told by events.
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
    """Writes statuses, counts of one object at most every ten seconds, and tells of them by events.

    Args:
        writer: Takes statuses.
        clock: The time.
        record: Takes events, each after the status that it tells of is written: what fails is tried again as a whole.
    """

    def __init__(self, writer: StatusWriter, clock: Clock, record: Callable[[Event], None]) -> None:
        self._writer = writer
        self._clock = clock
        self._record = record
        self._written: dict[str, _Written] = {}

    async def publish(self, sources: Iterable[StatusSource], *, counts_too: bool = False) -> None:
        """Write what differs.

        Args:
            sources: The statuses of all objects; what is written of others is forgotten.
            counts_too: Write counts also before their time: this process stops.

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

    def conditions(self) -> Iterator[ConditionState]:
        """Every condition of every object, as it is written."""
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
