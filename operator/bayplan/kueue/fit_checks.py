"""The controller of Kueue's admission check ``bayplan.dev/fit``.

A Workload with reserved quota is Ready if its pods fit now, or after evictions that the profiles allow; their room is
held from then on. If they do not fit, the state is Retry: the quota is released, and after a delay that doubles Kueue
queues the Workload behind others of its priority. Workloads are answered one after the other, so that no two count on
the same room.

    quota reserved ──other checks not Ready──▶ Pending
          │ all others Ready
          ├──fits──▶ room held ──written──▶ Ready ──all pods have nodes──▶ done, nothing is held
          │                                  │ the room is lost ──fits elsewhere──▶ room held
          └──does not fit, room lost, no pod has a node within the time──▶ Retry ──evicted──▶ (quota reserved)

Kueue v0.17 itself evicts a Workload with Retry only at the end of the delay, and then considers it a second before
others that wait for the quota. So the condition Evicted is written with Retry: Kueue releases the quota and records the
end of the delay in ``status.requeueState``. Then the state becomes Pending, which Kueue's own eviction would set: its
scheduler skips Workloads with Retry.

After a restart, the room of Workloads that became Ready a short time ago is searched again before the first cycle.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from bayplan.fit.claim_templates import named_templates
from bayplan.fit.room_search import FitDryRun, RoomHolding
from bayplan.kube.timing import delay_of_try, wait_at_most
from bayplan.kueue.workloads import (
    CONTROLLER,
    EVICTED,
    GROUP,
    PENDING,
    READY,
    RETRY,
    AdmissionCheck,
    CheckState,
    MissingFlavorError,
    ResourceFlavor,
    Workload,
    labels_of,
    pods_of,
)
from scheduler_core.errors import ClusterWriteError, ConfigError, NotFoundError, SchedulerCoreError
from scheduler_core.gangs.held_room import (
    POD_SET_LABEL,
    WORKLOAD_LABEL,
    HeldRoom,
    Holder,
    Terms,
    admitted_workload,
)
from scheduler_core.ports import Clock, Event, ObjectReference, Timer
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.node_columns import NodeColumns

log = logging.getLogger(__name__)

HOLD_SECONDS = 600.0
"""Maximum time for which room is held; pods with long grace periods may have to end first."""
SETTLE_SECONDS = 5.0
"""Maximum time that the first scheduling cycle waits for the room that was held before a restart."""
_LOOK_SECONDS = 1.0
_TRIES = 3
"""Dry runs for one answer; the room may be taken while a copy of the process searches."""
_RETRY_INITIAL_SECONDS = 3
"""Written times have whole seconds, so up to one is lost; Kueue considers others one second after quota is released."""
_RETRY_MAXIMUM_SECONDS = 30
_WRITE_INITIAL_SECONDS, _WRITE_MAXIMUM_SECONDS = 0.5, 30.0
_LONGEST_MESSAGE = 1024
_WAIT_SECONDS = 5.0
"""Interval of the searches for an elastic Job that has grown, while its earlier pods run."""

_ALL_HELD = "the Workloads with held room"
ACTIVE = "Active"
_ACTIVE_MESSAGE = "Bayplan answers whether the pods of Workloads fit"


class StateWrite(Struct, frozen=True):
    """New state of the checks of one Workload, valid for the version of the Workload that it was determined for.

    Attributes:
        checks: Names of all checks of the Workload that Bayplan answers; a queue may have more than one.
        retry_count: Number of times that the checks had the state Retry; None for unchanged.
        evicted: Message of the condition Evicted, which is set; None to leave it alone.
    """

    workload: Workload
    checks: tuple[str, ...]
    state: str
    message: str
    since: datetime
    requeue_after_seconds: int | None = None
    pod_set_updates: list[dict[str, Any]] | None = None
    retry_count: int | None = None
    evicted: str | None = None


class CheckRequests(Protocol):
    """Requests of the controller.

    Attributes:
        version: Version of Kueue's API.
    """

    version: str

    async def write_state(self, write: StateWrite) -> None:
        """Write the state of the checks; raises ConflictError if the Workload has changed."""

    async def write_active(self, check: AdmissionCheck, message: str, since: datetime) -> None:
        """Write the condition Active of an AdmissionCheck; raises ConflictError if it has changed."""

    async def priority_classes(self) -> Sequence[dict[str, Any]]:
        """Return the PriorityClasses of the cluster, as manifests."""

    async def claim_templates(self, namespace: str, names: Collection[str]) -> Sequence[dict[str, Any]]:
        """Return those of the named ResourceClaimTemplates that exist, as manifests."""


@dataclass(slots=True)
class _Record:
    """What is known about one Workload.

    Attributes:
        uid: UID of the Workload.
        done: Time at which the check became Ready in the admission for which nothing is held any more; None for none.
        held_until: Time at which the room ends.
        planned: State of the nodes on which room is held, by name.
        counts: Number of pods of each pod set for which room is held.
        answered: Resource version of the Workload for which a state was written; the watch may lag behind the write.
        look: Timer of the next search for a Workload of which some pods run.
    """

    uid: str
    answered: str = ""
    done: datetime | None = None
    held_until: float = 0.0
    planned: dict[str, object] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    look: Timer | None = None


@dataclass(slots=True)
class _Retry:
    """Failures in succession, and the timer of the next try."""

    failures: int = 0
    timer: Timer | None = None


class _Part(Enum):
    """What may fail for one key."""

    CHECK = "an AdmissionCheck"
    WORKLOAD = "the answer to a Workload"
    ROOM = "the look at held room"


class _AdmittedPods:
    """Rows of the nodes that have pods of each Workload, refreshed where nodes or their pods have changed."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._position = -1
        self._marks_on: dict[int, set[str]] = {}
        self._rows_of = defaultdict[str, set[int]](set)

    def rows_of(self, mark: str) -> list[int]:
        """Return the rows with pods whose label has this value, in any namespace."""
        nodes = self._nodes
        changed, position = nodes.changes.since(self._position), nodes.changes.position
        for row in range(len(nodes.pods)) if changed is None else set(changed):
            before = self._marks_on.pop(row, set())
            labels = (info.pod.metadata.labels for info in nodes.pods[row].values())
            marks = {each[WORKLOAD_LABEL] for each in labels if WORKLOAD_LABEL in each}
            for each in before - marks:
                self._rows_of[each].remove(row)
                if not self._rows_of[each]:
                    del self._rows_of[each]
            for each in marks - before:
                self._rows_of[each].add(row)
            if marks:
                self._marks_on[row] = marks
        self._position = position
        return sorted(self._rows_of.get(mark, ()))


class FitChecks:
    """Controller of the check while this process leads; ``restored`` when earlier room, if any, is held again."""

    def __init__(self, scheduler: Scheduler, dry_run: FitDryRun, requests: CheckRequests, clock: Clock) -> None:
        self.restored = asyncio.Event()
        self._scheduler = scheduler
        self._held = scheduler.reservations.held
        self._holding = RoomHolding(scheduler)
        self._admitted = _AdmittedPods(scheduler.context.cache.columns)
        self._dry_run = dry_run
        self._requests = requests
        self._clock = clock
        self._workloads: dict[str, Workload] = {}
        self._checks: dict[str, AdmissionCheck] = {}
        self._flavors: dict[str, ResourceFlavor] = {}
        self._records: dict[str, _Record] = {}
        self._dirty: dict[str, None] = {}
        self._dirty_checks: dict[str, None] = {}
        self._retries: dict[tuple[_Part, str], _Retry] = {}
        self._has_dirty = asyncio.Event()

    # -- changes ------------------------------------------------------------------------------------------------

    def workload_changed(self, workload: Workload) -> None:
        self._workloads[workload.key] = workload
        self._mark(workload.key)

    def workload_deleted(self, workload: Workload) -> None:
        self._workloads.pop(workload.key, None)
        self._mark(workload.key)

    def check_changed(self, check: AdmissionCheck) -> None:
        name = check.metadata.name
        if check.spec.controller_name != CONTROLLER:
            self.check_deleted(check)
            return
        self._checks[name] = check
        self._dirty_checks[name] = None
        self._mark_all()

    def check_deleted(self, check: AdmissionCheck) -> None:
        if self._checks.pop(check.metadata.name, None) is not None:
            self._mark_all()

    def flavor_changed(self, flavor: ResourceFlavor) -> None:
        self._flavors[flavor.metadata.name] = flavor
        self._mark_all()

    def flavor_deleted(self, flavor: ResourceFlavor) -> None:
        self._flavors.pop(flavor.metadata.name, None)

    def _mark(self, key: str) -> None:
        self._dirty[key] = None
        self._has_dirty.set()

    def _mark_all(self) -> None:
        self._dirty.update(dict.fromkeys(self._workloads))
        self._has_dirty.set()

    async def settle(self) -> None:
        """Wait until :attr:`restored` is set, at most :data:`SETTLE_SECONDS`."""
        await wait_at_most(self.restored, SETTLE_SECONDS)

    # -- reconciling --------------------------------------------------------------------------------------------

    async def run(self, listed: Awaitable[None]) -> None:
        """Answer Workloads until cancelled, after ``listed``, when all objects are listed for the first time."""
        await listed
        while True:
            await wait_at_most(self._has_dirty, _LOOK_SECONDS)
            self._has_dirty.clear()
            for name in self._taken(self._dirty_checks):
                await self._guarded(_Part.CHECK, name, self._announce)
            await self._look_at_held()
            dirty = self._taken(self._dirty)
            for key in sorted(dirty, key=self._turn):
                await self._guarded(_Part.WORKLOAD, key, self._reconcile)
            self.restored.set()

    def _taken(self, marks: dict[str, None]) -> list[str]:
        found = list(marks)
        marks.clear()
        return found

    def _turn(self, key: str) -> tuple[bool, int, str]:
        """Return the sort key of a Workload: those that are Ready first, then by priority and age."""
        workload = self._workloads.get(key)
        if workload is None:
            return False, 0, ""
        is_ready = any(each.state == READY for each in workload.checks)
        return not is_ready, -(workload.spec.priority or 0), str(workload.metadata.creation_timestamp)

    async def _guarded(self, part: _Part, key: str, act: Callable[[str], Awaitable[None]]) -> None:
        try:
            await act(key)
        except NotFoundError:
            pass
        except ClusterWriteError as error:
            log.warning("The admission check of %s cannot be written: %s", key, error)
            self._retry_later(part, key)
            return
        except Exception:
            # The other Workloads are answered all the same.
            log.exception("The admission check of %s failed because of a bug; please report it", key)
            self._retry_later(part, key)
            return
        retry = self._retries.pop((part, key), None)
        if retry is not None and retry.timer is not None:
            retry.timer.cancel()

    def _retry_later(self, part: _Part, key: str) -> None:
        retry = self._retries.setdefault((part, key), _Retry())
        if retry.timer is not None:
            # One timer for each: a change of a Workload is handled at once, and may fail, too.
            retry.timer.cancel()
        retry.failures += 1
        delay = delay_of_try(retry.failures, _WRITE_INITIAL_SECONDS, _WRITE_MAXIMUM_SECONDS)
        retry.timer = self._clock.call_later(delay, partial(self._retry_now, part, key))

    def _retry_now(self, part: _Part, key: str) -> None:
        retry = self._retries.get((part, key))
        if retry is not None:
            retry.timer = None
        if part is _Part.CHECK:
            self._dirty_checks[key] = None
        elif part is _Part.WORKLOAD:
            self._dirty[key] = None
        self._has_dirty.set()

    def _waits(self, key: str) -> bool:
        """Return whether a look at held room has failed, and is not due again."""
        retry = self._retries.get((_Part.ROOM, key))
        return retry is not None and retry.timer is not None

    async def _announce(self, name: str) -> None:
        check = self._checks.get(name)
        if check is None:
            return
        conditions = check.status.conditions or ()
        if not any(
            each.type == ACTIVE and each.status == "True" and each.message == _ACTIVE_MESSAGE for each in conditions
        ):
            await self._requests.write_active(check, _ACTIVE_MESSAGE, self._clock.wall())

    async def _reconcile(self, key: str) -> None:
        workload, record = self._workloads.get(key), self._records.get(key)
        if record is not None and (workload is None or workload.metadata.uid != record.uid):
            await self._end(record.uid)
            del self._records[key]
            self._retries.pop((_Part.ROOM, key), None)
            record = None
        state = None if workload is None else self._own_state(workload)
        if workload is None or state is None or not workload.has_quota or state.state not in (PENDING, READY):
            if record is not None:
                await self._end(record.uid)
                record.done = None
            if workload is not None and state is not None and state.state == RETRY:
                await self._finish_retry(workload, state)
            return
        record = self._records.setdefault(key, _Record(workload.metadata.uid))
        if state.state == READY:
            await self._restore(workload, record, state)
            return
        if workload.metadata.resource_version == record.answered:
            return
        record.done = None
        waits = [each.name for each in workload.checks if each.name not in self._checks and each.state != READY]
        if waits:
            await self._end(record.uid)
            await self._write_pending(workload, state, f"Waits until admission check {waits[0]} is Ready")
            return
        await self._answer(workload, record, state)

    def _own_state(self, workload: Workload) -> CheckState | None:
        """Return the state of Bayplan's check; of several, one that is not Ready."""
        own = [each for each in workload.checks if each.name in self._checks]
        ended = (each for each in own if each.state not in (PENDING, READY))
        return next(ended, next((each for each in own if each.state == PENDING), next(iter(own), None)))

    def _own_checks(self, workload: Workload) -> tuple[str, ...]:
        return tuple(each.name for each in workload.checks if each.name in self._checks)

    async def _answer(self, workload: Workload, record: _Record, state: CheckState) -> None:
        fits, message = await self._hold(workload, record)
        if fits is None:
            # Not answered: it is looked at again with the next change of a flavor.
            await self._write_pending(workload, state, message)
            return
        if fits:
            updates = [
                {"name": pod_set.name, "labels": labels_of(workload, pod_set.name)}
                for pod_set in workload.spec.pod_sets or ()
            ]
            own = self._own_checks(workload)
            write = StateWrite(workload, own, READY, message, self._clock.wall(), None, updates)
            try:
                await self._requests.write_state(write)
            except ClusterWriteError:
                await self._end(record.uid)
                raise
            log.info("Workload %s fits: %s", workload.key, message)
        elif placed := self._count_placed(workload):
            # Retry would stop them.
            message = f"{placed} pods run, and the others wait for room: {message}"
            await self._write_pending(workload, state, message[:_LONGEST_MESSAGE])
            self._look_later(workload.key, record)
            return
        else:
            await self._write_retry(workload, state, message)
        record.answered = workload.metadata.resource_version

    def _look_later(self, key: str, record: _Record) -> None:
        if record.look is not None:
            record.look.cancel()
        record.look = self._clock.call_later(_WAIT_SECONDS, partial(self._mark, key))

    async def _write_pending(self, workload: Workload, state: CheckState, message: str) -> None:
        if state.message != message or state.state != PENDING:
            own = self._own_checks(workload)
            await self._requests.write_state(StateWrite(workload, own, PENDING, message, self._clock.wall()))

    async def _write_retry(self, workload: Workload, state: CheckState, message: str) -> None:
        await self._end(workload.metadata.uid)
        delay = min(_RETRY_INITIAL_SECONDS * 2 ** min(state.retry_count or 0, 16), _RETRY_MAXIMUM_SECONDS)
        log.info("Workload %s is queued again after %d s: %s", workload.key, delay, message)
        own, short = self._own_checks(workload), message[:_LONGEST_MESSAGE]
        write = StateWrite(
            workload, own, RETRY, short, self._clock.wall(), requeue_after_seconds=delay, retry_count=state.retry_count,
            evicted=short if self._evicts(workload) else None,
        )  # fmt: skip
        await self._requests.write_state(write)
        # Of a Workload that it evicts itself, Kueue soon replaces the message of the check.
        meta = workload.metadata
        regarding = ObjectReference(
            "Workload", meta.name, meta.namespace, meta.uid, f"{GROUP}/{self._requests.version}"
        )
        self._scheduler.context.writer.record(Event(regarding, "Warning", "AdmissionCheckRetry", "Admitting", message))

    def _evicts(self, workload: Workload) -> bool:
        """Return whether the condition Evicted is written here.

        Otherwise Kueue's own eviction resets more: the states of other checks, and what belongs to pods that exist.
        """
        return len(self._own_checks(workload)) == len(workload.checks) and not workload.is_true("Admitted")

    async def _finish_retry(self, workload: Workload, state: CheckState) -> None:
        """Set the state to Pending when Kueue has released the quota and recorded the end of the delay.

        Kueue does not record an end that is over by its clock, and not that of a Workload that a user deactivates.
        """
        released = workload.is_true(EVICTED) and not workload.is_true("QuotaReserved")
        if not released or workload.is_true("Finished"):
            return
        end, recorded, now = state.requeue_at, workload.requeue_at, self._clock.wall()
        if end is not None and workload.spec.active is not False and (recorded is None or recorded < end) and now < end:
            self._clock.call_later((end - now).total_seconds(), partial(self._mark, workload.key))
            return
        # With the condition, because a change of its time lets Kueue consider a Workload that it has skipped.
        own, count, message = self._own_checks(workload), (state.retry_count or 0) + 1, state.message
        await self._requests.write_state(
            StateWrite(workload, own, PENDING, message, now, retry_count=count, evicted=message)
        )

    # -- held room ----------------------------------------------------------------------------------------------

    async def _hold(self, workload: Workload, record: _Record) -> tuple[bool | None, str]:
        """Hold room for pods without nodes, instead of earlier room; return whether they fit, None if not known yet."""
        await self._end(record.uid)
        meta = workload.metadata
        target = admitted_workload(meta.namespace, meta.name, meta.uid, workload.mark)
        message = ""
        try:
            classes = await self._requests.priority_classes()
            for _ in range(_TRIES):
                pods = pods_of(workload, self._checks, self._flavors, self._placed(workload))
                if not pods:
                    return True, "All pods have nodes"
                templates = await self._requests.claim_templates(meta.namespace, named_templates(pods))
                request = self._dry_run.read(f"Workload {workload.key}", [*pods, *templates], classes)
                found = await self._dry_run.search(request)
                message = found.message
                if not found.fits:
                    return False, message
                room = self._holding.room(target, request, found, Terms(frozenset(found.ends), is_admitted=True))
                if await self._holding.hold(room):
                    record.held_until = self._clock.now() + HOLD_SECONDS
                    record.planned, record.counts = self._states_of(room), workload.counts
                    return True, message
        except MissingFlavorError as error:
            return None, f"Waits: {error}"
        except ConfigError as error:
            return False, f"The pods cannot be evaluated: {'; '.join(map(str, error.problems))}"
        except ClusterWriteError:
            raise
        except SchedulerCoreError as error:
            return False, f"The pods cannot be evaluated: {error}"
        return False, "The room that was found was taken during each of the searches"

    async def _end(self, uid: str) -> None:
        room = self._held.of(uid)
        if room is not None:
            await self._holding.end(room)

    def _placed(self, workload: Workload) -> dict[str, list[Mapping[str, str]]]:
        """Return the labels of the nodes of the pods of a Workload that have one, by pod set.

        Pods that terminate are those of an earlier admission, or are replaced.
        """
        mark, namespace, found = workload.mark, workload.metadata.namespace, dict[str, list[Mapping[str, str]]]()
        nodes = self._scheduler.context.cache.columns
        for row in self._admitted.rows_of(mark):
            node = nodes.nodes[row]
            for info in nodes.pods[row].values():
                labels, is_own = info.pod.metadata.labels, info.pod.metadata.namespace == namespace
                if labels.get(WORKLOAD_LABEL) == mark and is_own and not info.is_leaving:
                    of_node = {} if node is None else node.metadata.labels
                    found.setdefault(labels.get(POD_SET_LABEL, ""), []).append(of_node)
        return found

    def _count_placed(self, workload: Workload) -> int:
        return sum(map(len, self._placed(workload).values()))

    async def _restore(self, workload: Workload, record: _Record, state: CheckState) -> None:
        """Hold the room of a Ready Workload again after a restart."""
        since = state.last_transition_time
        if self._held.of(record.uid) is not None or (record.done is not None and record.done == since):
            return
        age = HOLD_SECONDS if since is None else (self._clock.wall() - since).total_seconds()
        if age < HOLD_SECONDS:
            fits, message = await self._hold(workload, record)
            if fits:
                record.held_until = self._clock.now() + HOLD_SECONDS - age
                log.info("The room of Workload %s is held again", workload.key)
            else:
                await self._lost(workload, state, message)
        # At last: after an error it is tried again.
        record.done = since

    async def _lost(self, workload: Workload, state: CheckState, message: str) -> None:
        """Let Kueue queue a Workload again, unless some of its pods run already."""
        placed = self._count_placed(workload)
        if placed:
            log.warning("The room of Workload %s is lost, and %d of its pods run: %s", workload.key, placed, message)
        else:
            await self._write_retry(workload, state, f"The room that was held is lost. {message}")

    async def _look_at_held(self) -> None:
        """End room that all pods have taken or whose time is over, and search other room for what is lost."""
        if not len(self._held) and not self._retries:
            return
        if not self._waits(_ALL_HELD):
            await self._guarded(_Part.ROOM, _ALL_HELD, self._settle_held)
        rooms = {f"{room.holder.namespace}/{room.holder.name}": room for room in self._held if room.terms.is_admitted}
        failed = [key for part, key in self._retries if part is _Part.ROOM and key != _ALL_HELD and key not in rooms]
        for key in (*failed, *rooms):
            if key not in self._dirty and not self._waits(key):
                look = partial(self._look_at, rooms[key]) if key in rooms else self._finish_look
                await self._guarded(_Part.ROOM, key, look)

    async def _settle_held(self, _: str) -> None:
        suspension, complete = self._scheduler.context.suspension, list[Holder]()
        await suspension.over()
        suspension.run_or_defer(lambda: complete.extend(self._held.settle()))
        for each in complete:
            if each.kind == "Workload":
                log.info("All pods of Workload %s/%s have nodes", each.namespace, each.name)
                self._done(f"{each.namespace}/{each.name}")

    async def _look_at(self, room: HeldRoom, key: str) -> None:
        if self._needs_answer(key, room):
            await self._look_again(key)

    async def _finish_look(self, key: str) -> None:
        """Repeat a look that has failed after it had ended the room, unless the Workload has another state now."""
        workload, record = self._workloads.get(key), self._records.get(key)
        state = None if workload is None else self._own_state(workload)
        if record is None or state is None or state.state != READY or self._held.of(record.uid) is not None:
            return
        # Otherwise it is Ready in another admission.
        if record.done == state.last_transition_time:
            await self._look_again(key)

    def _needs_answer(self, key: str, room: HeldRoom) -> bool:
        record, workload = self._records.get(key), self._workloads.get(key)
        if record is None or workload is None or self._clock.now() >= record.held_until:
            return True
        if record.counts != workload.counts:
            return True
        return not room.reservation.fits_then() or record.planned != self._states_of(room)

    async def _look_again(self, key: str) -> None:
        workload, record = self._workloads.get(key), self._records.get(key)
        state = None if workload is None else self._own_state(workload)
        if workload is None or record is None or state is None:
            self._mark(key)
            return
        self._done(key)
        if self._clock.now() >= record.held_until:
            await self._end(record.uid)
            if not self._count_placed(workload):
                message = f"No pod was scheduled in {HOLD_SECONDS:.0f} s after the Workload became Ready"
                await self._write_retry(workload, state, message)
            return
        until = record.held_until
        fits, message = await self._hold(workload, record)
        if fits:
            record.held_until = until
        else:
            await self._lost(workload, state, message)

    def _done(self, key: str) -> None:
        workload, record = self._workloads.get(key), self._records.get(key)
        state = None if workload is None else self._own_state(workload)
        if record is not None and state is not None and state.state == READY:
            record.done = state.last_transition_time

    def _states_of(self, room: HeldRoom) -> dict[str, object]:
        return self._holding.node_states(room.reservation.plan.node_names)
