"""The controller of PodGroup statuses: writes the state of gangs to their objects and records events.

Statuses are compared with what this controller has written, not with watch events, because an event from before a
write would cause a second write.

    idle --changed--> dirty --a tenth of a second--> reconciled --differs, and delay is over--> queued --sent--> idle
                        ^                                |                                         |
                        +-- a second after the last -----+     changed meanwhile, or write failed -+--> dirty

Rate: a phase or a condition's reason is written immediately, counts and messages a second after the last write of the
group, the time of an attempt alone after ten. A token bucket limits the writes of all groups together, so that 3,000
gangs that change at the same time take ten seconds and do not overload the API server; later changes are merged into
the same write.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from pydantic import ValidationError

from bayplan.gangs.group_phase import Phase
from bayplan.gangs.group_status import (
    GroupStatus,
    GroupStatusWrite,
    OtherProcesses,
    RecordedEvent,
    SeenGroup,
    StatusDifference,
    Urgency,
    current_event,
    group_event,
    group_status,
    healing_event,
    recorded_event,
    status_difference,
)
from bayplan.kube.http.api_request import TokenBucket
from bayplan.kube.timing import delay_of_try
from bayplan.kube.writes.api_dispatcher import WriteDroppedError
from bayplan.resources.pod_group import LostMemberStatus
from scheduler_core.errors import NotFoundError, Problem
from scheduler_core.explain.findings import NewNodes
from scheduler_core.model.pod_group import NEWEST_VERSIONS, GroupKey, GroupSource
from scheduler_core.ports import Clock, Event, ObjectReference, Timer
from scheduler_core.queueing.gang_members import Gang, HealingOutcome, RecordedLoss
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)


class GroupStatusWriter(Protocol):
    def write(self, write: GroupStatusWrite) -> None:
        """Queue a write; ``write.done`` is called exactly once with the result."""


class EventSink(Protocol):
    def record(self, event: Event) -> None:
        """Queue an event."""


@dataclass(frozen=True, slots=True)
class GroupPace:
    """Rate limits of status writes and events.

    Attributes:
        gather_seconds: Delay after a change, so that a gang is reconciled once and not for each member.
        count_seconds: Minimum time between two writes of a group if only counts or messages differ.
        attempt_seconds: Minimum time between two writes of a group if only the time of the last attempt differs.
        event_seconds: Minimum time between two events of a group with the same reason and different messages.
        queued: Maximum number of writes in the dispatcher's queue; other writes wait here, where they can be merged.
        retry_initial_seconds: Delay after the first rejected write.
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


_RECONCILES_PER_YIELD = 16
"""Groups that are reconciled before other tasks run."""
_HEALING_EVENTS = 64
"""Events of a group that are stored until its next reconcile."""
_TAKEN_SECONDS = 5.0
"""Interval between checks whether pods of higher priority have taken the room of lost members."""


async def _none_taken(gang: Gang) -> Collection[str]:
    del gang
    return ()


async def taken_room(scheduler: Scheduler, gang: Gang) -> set[str]:
    """Return the UIDs of lost members of a gang whose held room pods of a higher priority have taken."""
    await scheduler.context.suspension.over()
    reservations = scheduler.reservations
    rooms = {uid: reservations.held.of(uid) for uid, lost in gang.lost_members.items() if lost.has_room}
    return {uid for uid, room in rooms.items() if room is not None and not reservations.stands(room)}


@dataclass(slots=True)
class _Record:
    """What is known and was written; ``healing`` has what happened to lost members since the last reconcile."""

    uid: str
    generation: int
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    version: str = ""
    written: dict[str, Any] = field(default_factory=dict)
    written_at: float = float("-inf")
    keeps_start: bool = False
    is_writing: bool = False
    is_foreign: bool = False
    changed_since: bool = False
    failures: int = 0
    retry_at: float = float("-inf")
    taken: Collection[str] = ()
    timer: Timer | None = None
    last_event: RecordedEvent | None = None
    last_event_at: float = float("-inf")
    healing: deque[HealingOutcome] = field(default_factory=lambda: deque(maxlen=_HEALING_EVENTS))

    def read(self, status: Mapping[str, Any]) -> None:
        """Take a status for the one that was written."""
        self.written = dict(status)
        self.keeps_start = bool(status.get("scheduleStartTime"))
        self.last_event = recorded_event(status)


class GroupController:
    """Controller that writes the statuses of PodGroups.

    Args:
        gangs: Gangs of the scheduler; the controller subscribes to their ``on_change``.
        others: Other processes that serve some of the profiles; None if there are none.
        new_nodes: Returns the new nodes that would help a gang; None if they were not searched.
        taken: Returns the UIDs of a gang's lost members whose held room other pods have taken, when no cycle is midway.
    """

    def __init__(
        self,
        gangs: Gangs,
        statuses: GroupStatusWriter,
        events: EventSink,
        clock: Clock,
        *,
        others: OtherProcesses | None = None,
        new_nodes: Callable[[Gang], NewNodes | None] = lambda _: None,
        taken: Callable[[Gang], Awaitable[Collection[str]]] = _none_taken,
        pace: GroupPace | None = None,
    ) -> None:
        self._gangs = gangs
        self._statuses = statuses
        self._events = events
        self._clock = clock
        self._pace = pace or GroupPace()
        self._others = others
        self._new_nodes = new_nodes
        self._taken = taken
        self._records: dict[GroupKey, _Record] = {}
        self._dirty: dict[GroupKey, None] = {}
        self._has_dirty = asyncio.Event()
        self._queued = asyncio.Semaphore(self._pace.queued)
        self._bucket = TokenBucket(self._pace.writes_per_second, self._pace.burst, clock)
        gangs.on_change.append(self._changed)
        gangs.on_healing.append(self._healing_changed)

    # -- objects ------------------------------------------------------------------------------------------------

    def known(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any], *, version: str = "") -> None:
        """Handle an object with a valid spec; its status is used only if it is new or was recreated."""
        record = self._seen(key, uid, generation, status)
        record.problems = ()
        record.version = version
        self.mark(key)

    def invalid(self, key: GroupKey, uid: str, generation: int, problems: Iterable[Problem]) -> None:
        self._seen(key, uid, generation, {}).problems = tuple(problems)
        self.mark(key)

    def warned(self, key: GroupKey, warnings: Sequence[Problem]) -> None:
        record = self._records.get(key)
        if record is not None and record.warnings != tuple(warnings):
            record.warnings = tuple(warnings)
            self.mark(key)

    def gone(self, key: GroupKey) -> None:
        """Handle a deleted object: its status is not written any more."""
        record = self._records.pop(key, None)
        if record is not None and record.timer is not None:
            record.timer.cancel()

    def _seen(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any]) -> _Record:
        record = self._records.get(key)
        if record is None or record.uid != uid:
            self.gone(key)
            record = self._records[key] = _Record(uid, generation)
            record.read(status)
        record.generation = generation
        return record

    def _changed(self, gang: Gang) -> None:
        self.mark(gang.key)

    def _healing_changed(self, gang: Gang, outcome: HealingOutcome) -> None:
        record = self._records.get(gang.key)
        if record is not None:
            record.healing.append(outcome)
            self.mark(gang.key)

    def mark(self, key: GroupKey) -> None:
        """Reconcile a group soon."""
        if key in self._records:
            self._dirty[key] = None
            self._has_dirty.set()

    def recorded_losses(self) -> Iterator[tuple[GroupKey, RecordedLoss]]:
        """Yield the lost members for which the statuses state that room is held until a time."""
        for key, record in self._records.items():
            if key.source is not GroupSource.BAYPLAN or not record.written.get("lost"):
                continue
            try:
                lost = [LostMemberStatus.model_validate(each) for each in record.written["lost"]]
            except ValidationError as problem:
                log.warning("status.lost of PodGroup %s cannot be read, so no room is held again: %s", key, problem)
                continue
            for each in lost:
                if each.held and each.until is not None:
                    replacement, index = each.replacement or "", each.index or ""
                    yield key, RecordedLoss(each.name, each.node, index, each.until, replacement)

    def take_over(self) -> None:
        """Reload the statuses from the objects, because another process has written them until now."""
        for key, record in self._records.items():
            self._reload(key, record)
        self.reconcile_all()

    def reconcile_all(self) -> None:
        """Reconcile every group, because the assignment of scheduler names to processes has changed."""
        for key in self._records:
            self.mark(key)

    def _reload(self, key: GroupKey, record: _Record) -> None:
        status = None if self._others is None else self._others.status_of(key)
        record.healing.clear()
        if status is not None:
            record.read(status)

    # -- reconciling --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write statuses until cancelled.

        Start it only after every pod has been listed: before that a gang seems to have no members.
        """
        while True:
            await self._has_dirty.wait()
            await self._clock.sleep(self._pace.gather_seconds)
            self._has_dirty.clear()
            dirty, self._dirty = self._dirty, {}
            for number, key in enumerate(dirty, start=1):
                await self._reconcile(key)
                if number % _RECONCILES_PER_YIELD == 0:
                    await self._clock.sleep(0)

    async def _reconcile(self, key: GroupKey) -> None:
        record = self._records.get(key)
        if record is None:
            return
        if record.is_writing:
            record.changed_since = True
            return
        try:
            gang = self._gangs.get(key)
            is_healing = gang is not None and any(lost.has_room for lost in gang.lost_members.values())
            record.taken = await self._taken(gang) if gang is not None and is_healing else ()
            if self._records.get(key) is not record:
                return
            status = self._desired_status(key, record)
        except Exception:
            # The status stays as it is until the group changes; statuses of other groups are written.
            log.exception("The status of PodGroup %s cannot be computed because of a bug; please report it", key)
            return
        if status is None:
            return
        while record.healing:
            self._events.record(healing_event(_reference(key, record), record.healing.popleft()))
        difference = status_difference(key.source, record.written, status.fields)
        delays = [self._record_event(key, record, status), self._until_due(record, difference)]
        if delays[-1] == 0.0:
            await self._write(key, record)
        later = [seconds for seconds in (*delays, _TAKEN_SECONDS if is_healing else None) if seconds]
        if later:
            self._reconcile_after(key, record, min(later))

    def _desired_status(self, key: GroupKey, record: _Record) -> GroupStatus | None:
        """Return the desired status; None if the scheduler does not have the object or another process writes it."""
        gang = self._gangs.get(key)
        if self._others is not None and self._others.write(gang):
            record.is_foreign = True
            return None
        if record.is_foreign:
            record.is_foreign = False
            self._reload(key, record)
        group = None if gang is None else gang.group
        if group is not None and group.uid != record.uid:
            return None
        if group is None and not record.problems:
            return None
        seen = SeenGroup(
            key,
            record.generation,
            record.written,
            record.problems,
            record.keeps_start,
            record.version,
            record.warnings,
            None if gang is None else self._new_nodes(gang),
            record.taken,
        )
        status = group_status(seen, gang, self._clock.wall())
        if status.verdict.phase is Phase.PENDING and record.keeps_start:
            # Members are missing: scheduling starts again when the quorum is complete.
            record.keeps_start = False
        return status

    def _until_due(self, record: _Record, difference: StatusDifference) -> float | None:
        """Return the seconds until the difference must be written; None if there is none."""
        match difference.urgency:
            case Urgency.NEVER:
                return None
            case Urgency.IMMEDIATE:
                due = record.retry_at
            case Urgency.SOON:
                due = max(record.retry_at, record.written_at + self._pace.count_seconds)
            case Urgency.LATER:
                due = max(record.retry_at, record.written_at + self._pace.attempt_seconds)
        return max(0.0, due - self._clock.now())

    def _reconcile_after(self, key: GroupKey, record: _Record, seconds: float) -> None:
        if record.timer is not None:
            record.timer.cancel()
        record.timer = self._clock.call_later(seconds, partial(self.mark, key))

    # -- writing ------------------------------------------------------------------------------------------------

    async def _write(self, key: GroupKey, record: _Record) -> None:
        await self._bucket.take()
        await self._queued.acquire()
        # A change before the patch is made is in the patch, but its event is due, too.
        record.is_writing, record.changed_since = True, False
        sent: list[dict[str, Any]] = []
        self._statuses.write(
            GroupStatusWrite(
                key,
                record.uid,
                partial(self._patch, key, record, sent),
                partial(self._ended, key, record, sent),
                record.version,
                lambda: record.written,
            )
        )

    def _patch(self, key: GroupKey, record: _Record, sent: list[dict[str, Any]]) -> Mapping[str, Any]:
        """Compute the patch when it is sent; empty if the object was deleted or recreated."""
        sent.clear()
        if self._records.get(key) is not record:
            return {}
        status = self._desired_status(key, record)
        if status is None:
            return {}
        # What is sent has its event, even if the members end before the next reconcile.
        self._record_event(key, record, status)
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
            self.mark(key)
            return
        record.failures = 0
        record.written_at = self._clock.now()
        for fields in sent:
            record.written |= fields
            owned = status_difference(key.source, record.written, fields).patch
            for name in owned:
                record.written.pop(name, None)
        if record.changed_since:
            self.mark(key)

    # -- events -------------------------------------------------------------------------------------------------

    def _record_event(self, key: GroupKey, record: _Record, status: GroupStatus) -> float | None:
        """Record an event if one is due; return the seconds until one will be due, None for none."""
        last = record.last_event = current_event(status.verdict, record.last_event)
        event = group_event(_reference(key, record), status.verdict, last)
        if event is None:
            return None
        now = self._clock.now()
        if last is not None and last.reason == event.reason:
            wait = record.last_event_at + self._pace.event_seconds - now
            if wait > 0.0:
                return wait
        record.last_event, record.last_event_at = RecordedEvent(event.reason, event.note), now
        self._events.record(event)
        return None


def _reference(key: GroupKey, record: _Record) -> ObjectReference:
    version = record.version or NEWEST_VERSIONS[key.source]
    return ObjectReference("PodGroup", key.name, key.namespace, record.uid, f"{key.source.value}/{version}")
