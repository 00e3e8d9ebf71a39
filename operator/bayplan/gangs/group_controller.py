"""The controller of PodGroup statuses: what gangs become is written to their objects, and told in events.

Owns which groups must be looked at, what is written already, and the pace. It must not know who watches the objects,
nor what the fields mean. Why it trusts its own account of what is written and not each watch event: an event from
before a write would make it write again.

    idle --changed--> dirty --a tenth of a second--> looked at --differs, and its time has come--> queued --sent--> idle
                        ^                                |                                            |
                        +-- a second after the last -----+     changed meanwhile, or given up --------+--> dirty

Pace: a phase or a condition's reason is written at once, counts and words a second after the last write of the group,
the time of an attempt alone after ten. All groups together share a bucket of writes, so that 3,000 gangs that change at
the same time take ten seconds and not the API server; what changes meanwhile is in the same write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from bayplan.gangs.group_events import Told, group_event, still_told, told_by
from bayplan.gangs.group_status import (
    GroupStatus,
    SeenGroup,
    StatusDifference,
    Urgency,
    group_status,
    status_difference,
)
from bayplan.gangs.group_status_writes import GroupStatusWrite
from bayplan.gangs.group_verdict import Phase
from bayplan.gangs.neighbours import Neighbours
from bayplan.kube.backoff import delay_of_try
from bayplan.kube.queued_write import WriteDroppedError
from bayplan.kube.rate_limit import TokenBucket
from scheduler_core.errors import NotFoundError, Problem
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import Clock, Event, Timer
from scheduler_core.queueing.gang import Gang
from scheduler_core.queueing.gangs import Gangs

log = logging.getLogger(__name__)


class GroupStatusWriter(Protocol):
    """Writes statuses of PodGroups."""

    def write(self, write: GroupStatusWrite) -> None:
        """Queue a write; ``write.done`` is told how it ended, exactly once."""


class EventSink(Protocol):
    """Takes events."""

    def record(self, event: Event) -> None:
        """Queue an event."""


@dataclass(frozen=True, slots=True)
class GroupPace:
    """How often statuses are written.

    Attributes:
        gather_seconds: How long a change waits for others, so that a gang is looked at once and not for each member.
        count_seconds: Shortest time between two writes of a group where only counts or words differ.
        attempt_seconds: The same where only the time of the last attempt differs.
        event_seconds: Shortest time between two events of a group with the same reason and other words.
        writes_per_second: Of all groups together.
        burst: Writes that may exceed it at once.
        queued: Writes in the dispatcher's queue at once; the others wait here, where they still merge.
        retry_initial_seconds: Delay after a write that was refused.
        retry_maximum_seconds: Longest delay between tries.
    """

    gather_seconds: float = 0.1
    count_seconds: float = 1.0
    attempt_seconds: float = 10.0
    event_seconds: float = 10.0
    writes_per_second: float = 300.0
    burst: int = 100
    queued: int = 64
    retry_initial_seconds: float = 1.0
    retry_maximum_seconds: float = 60.0


_LOOKS_AT_A_STRETCH = 16
"""Groups looked at before other tasks run."""


class _Record:
    """What is known of one object."""

    __slots__ = (
        "changed_since",
        "failures",
        "generation",
        "is_others",
        "is_writing",
        "keeps_start",
        "problems",
        "retry_at",
        "timer",
        "told",
        "told_at",
        "uid",
        "written",
        "written_at",
    )

    def __init__(self, uid: str, generation: int, status: Mapping[str, Any]) -> None:
        self.uid = uid
        self.generation = generation
        self.problems: tuple[Problem, ...] = ()
        self.written: dict[str, Any] = dict(status)
        self.written_at = float("-inf")
        self.keeps_start = bool(status.get("scheduleStartTime"))
        self.is_writing = False
        self.is_others = False
        self.changed_since = False
        self.failures = 0
        self.retry_at = float("-inf")
        self.timer: Timer | None = None
        self.told: Told | None = told_by(status)
        self.told_at = float("-inf")


class GroupController:
    """Keeps the status of PodGroups.

    Args:
        gangs: What the scheduler knows; their ``on_change`` is subscribed to.
        statuses: Status subresources.
        events: Takes events about PodGroups.
        clock: Time.
        pace: How often statuses are written.

    Attributes:
        neighbours: What other processes do; None where there is no other.
    """

    def __init__(
        self,
        gangs: Gangs,
        statuses: GroupStatusWriter,
        events: EventSink,
        clock: Clock,
        *,
        pace: GroupPace | None = None,
    ) -> None:
        self._gangs = gangs
        self._statuses = statuses
        self._events = events
        self._clock = clock
        self._pace = pace or GroupPace()
        self.neighbours: Neighbours | None = None
        self._records: dict[GroupKey, _Record] = {}
        self._dirty: dict[GroupKey, None] = {}
        self._has_dirty = asyncio.Event()
        self._queued = asyncio.Semaphore(self._pace.queued)
        self._bucket = TokenBucket(self._pace.writes_per_second, self._pace.burst, clock)
        gangs.on_change.append(self._changed)

    # -- what was seen ------------------------------------------------------------------------------------------

    def known(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any]) -> None:
        """An object was seen, and its spec is valid.

        Args:
            key: Which group.
            uid: The object's UID.
            generation: Its ``metadata.generation``.
            status: Its status; looked at when the object is new here, or another one of that name.
        """
        self._seen(key, uid, generation, status).problems = ()
        self._mark(key)

    def invalid(
        self,
        key: GroupKey,
        uid: str,
        generation: int,
        problems: Iterable[Problem],
        status: Mapping[str, Any] | None = None,
    ) -> None:
        """An object was seen, and its spec is not valid.

        Args:
            key: Which group.
            uid: The object's UID.
            generation: Its ``metadata.generation``.
            problems: All that is wrong, at least one.
            status: Its status; see :meth:`known`.
        """
        self._seen(key, uid, generation, status or {}).problems = tuple(problems)
        self._mark(key)

    def gone(self, key: GroupKey) -> None:
        """An object is gone: nothing more is written of it."""
        record = self._records.pop(key, None)
        if record is not None and record.timer is not None:
            record.timer.cancel()

    def _seen(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any]) -> _Record:
        record = self._records.get(key)
        if record is None or record.uid != uid:
            self.gone(key)
            record = self._records[key] = _Record(uid, generation, status)
        record.generation = generation
        return record

    def _changed(self, gang: Gang) -> None:
        self._mark(gang.key)

    def _mark(self, key: GroupKey) -> None:
        if key in self._records:
            self._dirty[key] = None
            self._has_dirty.set()

    def take_over(self) -> None:
        """Take what is written from the objects again: another process has written it until now."""
        for key, record in self._records.items():
            self._learn(key, record)
        self.look_again()

    def look_again(self) -> None:
        """Look at every group: who serves which scheduler name has changed."""
        for key in self._records:
            self._mark(key)

    def _learn(self, key: GroupKey, record: _Record) -> None:
        shown = None if self.neighbours is None else self.neighbours.shown(key)
        if shown is not None:
            record.written = dict(shown)
            record.keeps_start = bool(shown.get("scheduleStartTime"))
            record.told = told_by(shown)

    # -- looking ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write statuses until cancelled.

        To be started when every pod has been listed: a gang whose members are not known yet looks as if it had none.
        """
        while True:
            await self._has_dirty.wait()
            await self._clock.sleep(self._pace.gather_seconds)
            self._has_dirty.clear()
            dirty, self._dirty = self._dirty, {}
            for number, key in enumerate(dirty, start=1):
                await self._look(key)
                if number % _LOOKS_AT_A_STRETCH == 0:
                    await self._clock.sleep(0)

    async def _look(self, key: GroupKey) -> None:
        record = self._records.get(key)
        if record is None:
            return
        if record.is_writing:
            record.changed_since = True
            return
        try:
            status = self._wanted(key, record)
        except Exception:
            log.exception("The status of PodGroup %s could not be made, by a fault of its own; please report it", key)
            return
        if status is None:
            return
        difference = status_difference(key.source, record.written, status.fields)
        waits = [self._tell(key, record, status), self._until_due(record, difference)]
        if waits[-1] == 0.0:
            await self._write(key, record)
        later = [seconds for seconds in waits if seconds]
        if later:
            self._look_in(key, record, min(later))

    def _wanted(self, key: GroupKey, record: _Record) -> GroupStatus | None:
        """The status as it should be; None while the scheduler does not know the object."""
        gang = self._gangs.get(key)
        if self.neighbours is not None and self.neighbours.write(gang):
            record.is_others = True
            return None
        if record.is_others:
            record.is_others = False
            self._learn(key, record)
        group = None if gang is None else gang.group
        if group is not None and group.uid != record.uid:
            return None
        if group is None and not record.problems:
            return None
        seen = SeenGroup(key, record.generation, record.written, record.problems, record.keeps_start)
        status = group_status(seen, gang, self._clock.wall())
        if status.verdict.phase is Phase.PENDING and record.keeps_start:
            # A quorum is missing: when it is whole again scheduling begins anew.
            record.keeps_start = False
        return status

    def _until_due(self, record: _Record, difference: StatusDifference) -> float | None:
        """Seconds until a difference is to be written; None for no difference."""
        match difference.urgency:
            case Urgency.NEVER:
                return None
            case Urgency.AT_ONCE:
                due = record.retry_at
            case Urgency.SOON:
                due = max(record.retry_at, record.written_at + self._pace.count_seconds)
            case Urgency.AT_LEISURE:
                due = max(record.retry_at, record.written_at + self._pace.attempt_seconds)
        return max(0.0, due - self._clock.now())

    def _look_in(self, key: GroupKey, record: _Record, seconds: float) -> None:
        if record.timer is not None:
            record.timer.cancel()
        record.timer = self._clock.call_later(seconds, partial(self._mark, key))

    # -- writing ------------------------------------------------------------------------------------------------

    async def _write(self, key: GroupKey, record: _Record) -> None:
        await self._bucket.take()
        await self._queued.acquire()
        record.is_writing = True
        sent: list[dict[str, Any]] = []
        self._statuses.write(
            GroupStatusWrite(
                key, record.uid, partial(self._patch, key, record, sent), partial(self._ended, key, record, sent)
            )
        )

    def _patch(self, key: GroupKey, record: _Record, sent: list[dict[str, Any]]) -> Mapping[str, Any]:
        """The patch at the moment when it is sent; nothing once the object is gone or another one."""
        sent.clear()
        if self._records.get(key) is not record:
            return {}
        record.changed_since = False
        status = self._wanted(key, record)
        if status is None:
            return {}
        sent.append(status.fields)
        return status_difference(key.source, record.written, status.fields).patch

    def _ended(self, key: GroupKey, record: _Record, sent: list[dict[str, Any]], error: Exception | None) -> None:
        self._queued.release()
        record.is_writing = False
        if isinstance(error, NotFoundError | WriteDroppedError):
            return
        if error is not None:
            record.failures += 1
            pace = self._pace
            delay = delay_of_try(record.failures, pace.retry_initial_seconds, pace.retry_maximum_seconds)
            record.retry_at = self._clock.now() + delay
            self._mark(key)
            return
        record.failures = 0
        record.written_at = self._clock.now()
        for fields in sent:
            record.written |= fields
            owned = status_difference(key.source, record.written, fields).patch
            for name in owned:
                record.written.pop(name, None)
        if record.changed_since:
            self._mark(key)

    # -- telling ------------------------------------------------------------------------------------------------

    def _tell(self, key: GroupKey, record: _Record, status: GroupStatus) -> float | None:
        """Record an event where one is due; seconds until one will be, None for none."""
        record.told = still_told(status.verdict, record.told)
        event = group_event(key, record.uid, status.verdict, record.told)
        if event is None:
            return None
        told, now = record.told, self._clock.now()
        if told is not None and told.reason == event.reason:
            wait = record.told_at + self._pace.event_seconds - now
            if wait > 0.0:
                return wait
        record.told, record.told_at = Told(event.reason, event.note), now
        self._events.record(event)
        return None
