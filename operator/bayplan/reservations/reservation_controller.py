"""The controller of NodeReservations: searches their room, holds it, and writes their status.

::

    Pending ──fits──▶ Reserved ──all pods bound──▶ Consumed
       ▲ │               │ │
       │ └─time is over──┼─┴──time is over──▶ Expired
       └───room is lost──┘

Reservations are answered one after the other, so that no two count on the same room. After a restart the room is held
again from the status, before the first cycle.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from pydantic import ValidationError

from bayplan.fit.claim_templates import claim_template_manifests, named_templates
from bayplan.fit.room_search import FitDryRun, FitResult, RoomHolding
from bayplan.gangs.group_sources import priority_class_manifests
from bayplan.kube.custom_resources import ObjectPath, replace_status
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.timing import delay_of_try, wait_at_most
from bayplan.reservations.reservation_list import ListedReservation, listed_reservation
from bayplan.reservations.reserved_pods import (
    KIND,
    RoomLeft,
    holder_of,
    manifests_of,
    pods_prefix,
    prioritized,
    rooms_left,
    without_searched_names,
)
from bayplan.resources.conditions import ConditionUpdate, find_condition, problems_message, set_condition
from bayplan.resources.missing_references import missing_of_reservation, scheduler_name_of
from bayplan.resources.node_reservation import (
    MAX_NODES,
    MAX_PODS,
    NodeReservation,
    NodeReservationStatus,
    Phase,
    ReservedNode,
)
from bayplan.resources.object_store import Body, ObjectStore
from bayplan.resources.resource_model import API_VERSION, GROUP, VERSION, CustomResource
from bayplan.texts.document_formats import counted, listed
from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import ClusterWriteError, ConfigError, NotFoundError, Problem, SchedulerCoreError
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import EndReason, HeldRoom, Terms
from scheduler_core.model.pod import Pod
from scheduler_core.placement.reservations import Slot
from scheduler_core.ports import Clock, Event, ObjectReference
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.pod_info import NO_ROW

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
"""Maximum time that the first scheduling cycle waits for the room that was held before a restart."""
_LOOK_SECONDS = 1.0
_TRIES = 3
"""Dry runs for one answer; the room may be taken while a copy of the process searches."""
_RETRY_INITIAL_SECONDS, _RETRY_MAXIMUM_SECONDS = 1.0, 30.0
_WRITE_INITIAL_SECONDS, _WRITE_MAXIMUM_SECONDS = 0.5, 30.0
_UNCHANGED_SECONDS = 60.0
"""Interval between searches while neither a node nor a pod changes."""
_LONGEST_MESSAGE = 1024
_SPEC_CHANGED = "The spec was changed afterwards"
_CHANGED_BEFORE = "The spec was changed while no operator ran"
_SHOWN_NODES = 3

_Key = tuple[str, str]


class ReservationRequests(Protocol):
    """Requests of the controller."""

    async def write_status(self, namespace: str, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Replace the status of a NodeReservation; raises NotFoundError if the one with this UID is gone."""

    async def priority_classes(self) -> Sequence[dict[str, Any]]:
        """Return the PriorityClasses of the cluster, as manifests."""

    async def claim_templates(self, namespace: str, names: Collection[str]) -> Sequence[dict[str, Any]]:
        """Return those of the named ResourceClaimTemplates that exist, as manifests."""


@dataclass(slots=True)
class _Record:
    """What is known about one NodeReservation.

    Attributes:
        status: The status that was written last, or read first.
        is_restored: Whether the room of the status was held again, or none had to be.
        remaining: Number of pods that need room.
        held: The room; None if none is held.
        is_outdated: Whether other room is searched in place of ``held``.
        lost: Why the room was not held again after a restart, until other room is searched.
        body: The object as it was read last, and its model.
        shown: Number of pods that room is held for by node, and UIDs of pods that have used other room, as the status
            has them; None until it is written.
        planned: What decides whether pods may use the nodes on which room is held, by name.
        known: UIDs of the pods that were on these nodes when the room was held.
        ended: Why the room has ended by itself.
        settled, counted: UIDs of pods that need none of the room that was held last, and of those that have used it.
        unserved: Scheduler name that no live profile had at the last search; "" for none.
        next_try: Clock time of the next search.
        tried_at: Clock time of the last search, and the number of changes that were reported until then.
        failures, write_failures: Numbers in succession.
        write_after: Clock time before which no failed write is repeated.
    """

    uid: str
    generation: int
    status: NodeReservationStatus
    is_restored: bool = False
    remaining: int = 0
    held: HeldRoom | None = None
    is_outdated: bool = False
    lost: str = ""
    body: tuple[Body, NodeReservation] | None = None
    shown: tuple[Counter[str], frozenset[str]] | None = None
    planned: dict[str, object] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    ended: EndReason | None = None
    settled: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    unserved: str = ""
    next_try: float = 0.0
    tried_at: tuple[float, int] | None = None
    failures: int = 0
    write_failures: int = 0
    write_after: float = 0.0


class ReservationController:
    """Controller of NodeReservations while this process leads; ``restored`` when all earlier room is held again."""

    def __init__(self, scheduler: Scheduler, dry_run: FitDryRun, requests: ReservationRequests, clock: Clock) -> None:
        self.restored = asyncio.Event()
        self._scheduler = scheduler
        self._dry_run = dry_run
        self._holding = RoomHolding(scheduler)
        self._requests = requests
        self._clock = clock
        self._store = ObjectStore()
        self._records: dict[_Key, _Record] = {}
        self._has_changed = asyncio.Event()
        self._by_namespace: dict[str, list[Pod]] | None = None
        """Pods that have nodes, by namespace, while room is held again after a restart."""
        self._left: dict[str, dict[str, RoomLeft]] = {}
        """What is left of the room by UID, by namespace, in the same look."""
        self._classes: Sequence[dict[str, Any]] | ClusterWriteError | None = None
        """The PriorityClasses in a look, or the error of the request; None until they are read."""

    # -- changes ------------------------------------------------------------------------------------------------

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        """Handle an object that was added, changed or reported again."""
        del kind
        if self._store.seen(body):
            self._has_changed.set()

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        del kind
        if self._store.gone(body):
            self._has_changed.set()

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        """Handle a complete list."""
        del kind
        if self._store.listed(bodies, resource_version):
            self._has_changed.set()

    def readings(self, namespace: str = "") -> list[ListedReservation]:
        """Return the reservations of a namespace ("" for all) as they were read last, by namespace and name."""
        found = (body for body in self._store.bodies() if namespace in ("", body["metadata"].get("namespace")))
        return [listed_reservation(body) for body in found]

    async def settle(self) -> None:
        """Wait until :attr:`restored` is set, at most :data:`SETTLE_SECONDS`."""
        if not await wait_at_most(self.restored, SETTLE_SECONDS):
            log.warning("Scheduling begins before the room of all NodeReservations is held again")

    # -- reconciling --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Hold room and write statuses until cancelled."""
        while True:
            await self.look()
            if all(record.is_restored and not record.lost for record in self._records.values()):
                self.restored.set()
            await wait_at_most(self._has_changed, _LOOK_SECONDS)

    async def look(self) -> None:
        """Handle each reservation once."""
        self._has_changed.clear()
        for key in sorted({*self._records, *map(_key, self._store.bodies())}, key=self._turn):
            await self._guarded(key)
        self._by_namespace, self._classes = None, None
        self._left.clear()

    def _turn(self, key: _Key) -> tuple[bool, int, str, _Key]:
        """Return the sort key: reservations whose room is held come first, then by priority and age."""
        body = self._store.body(*key) or {}
        spec, status = body.get("spec") or {}, body.get("status") or {}
        priority = spec.get("priority")
        created = str((body.get("metadata") or {}).get("creationTimestamp"))
        is_reserved = status.get("phase") == "Reserved"
        return not is_reserved, -priority if isinstance(priority, int) else 0, created, key

    async def _guarded(self, key: _Key) -> None:
        try:
            await self._reconcile(key)
        except NotFoundError:
            return
        except ClusterWriteError as error:
            log.warning("%s %s/%s is tried again, because a request failed: %s", KIND, *key, error)
            self._retry_write(key)
        except Exception:
            # The other reservations are answered all the same.
            log.exception("%s %s/%s failed because of a bug; please report it", KIND, *key)
            self._retry_write(key)

    def _retry_write(self, key: _Key) -> None:
        record = self._records.get(key)
        if record is not None:
            record.write_failures += 1
            delay = delay_of_try(record.write_failures, _WRITE_INITIAL_SECONDS, _WRITE_MAXIMUM_SECONDS)
            record.write_after = self._clock.now() + delay

    async def _reconcile(self, key: _Key) -> None:
        body, record = self._store.body(*key), self._records.get(key)
        metadata: Mapping[str, Any] = {} if body is None else body["metadata"]
        if record is not None and metadata.get("uid") != record.uid:
            await self._end(record)
            record = None
            del self._records[key]
        if body is None or metadata.get("deletionTimestamp"):
            if record is not None:
                await self._end(record)
            return
        if record is not None and self._clock.now() < record.write_after:
            return
        if record is None or record.body is None or record.body[0] is not body:
            try:
                reservation = NodeReservation.from_object(body)
            except ConfigError as error:
                await self._refuse(key, body, error)
                return
            if record is not None and _differs_in_time_alone(record, reservation):
                # The room stays, so that nothing else gets it meanwhile.
                record.generation, record.shown = reservation.metadata.generation, None
            elif record is None or record.generation != reservation.metadata.generation:
                before, written = record, None if record is None else await self._counted(record)
                record = self._begin_record(key, reservation, written)
                if before is not None and before.ended is None and record.remaining:
                    # It is held until other room is found, so that nothing else gets it meanwhile.
                    record.held, record.is_outdated = before.held, before.held is not None
                elif before is not None:
                    await self._end(before)
            record.body = body, reservation
        await self._advance(key, record.body[1], record)

    async def _counted(self, record: _Record) -> NodeReservationStatus:
        """Return the last status with the pods that were bound since it was written."""
        if record.held is None or record.is_outdated or record.body is None:
            return record.status
        await self._scheduler.context.suspension.over()
        # Pods that have been bound since the last look take their slots.
        self._scheduler.reservations.held.of(record.uid)
        left = 0 if record.ended is EndReason.CONSUMED else len(self._slots_of(record.held))
        return record.status.model_copy(update={"consumed": record.body[1].spec.count - left})

    def _begin_record(self, key: _Key, reservation: NodeReservation, written: NodeReservationStatus | None) -> _Record:
        meta, status = reservation.metadata, reservation.status if written is None else written
        is_current = status.observed_generation == meta.generation
        record = _Record(meta.uid, meta.generation, status)
        # Pods that were counted for an earlier spec stay counted.
        record.remaining = max(0, reservation.spec.count - status.consumed)
        # If the spec was changed while no operator ran, too, the room of all others is held again first.
        is_left = is_current or (written is None and record.remaining > 0)
        record.is_restored = not (is_left and status.phase == "Reserved")
        self._records[key] = record
        return record

    async def _refuse(self, key: _Key, body: Body, error: ConfigError) -> None:
        meta = body["metadata"]
        record = self._records.get(key)
        if record is not None and record.generation == meta.get("generation") and not record.write_failures:
            return
        status = _status_of(body) if record is None else await self._counted(record)
        if record is not None:
            await self._end(record)
        record = self._records[key] = _Record(meta["uid"], meta.get("generation", 0), status)
        record.is_restored = True
        message = problems_message(error.problems)
        await self._write(key, record, "Pending", ConditionUpdate("Reserved", "False", "InvalidSpec", message))

    async def _advance(self, key: _Key, reservation: NodeReservation, record: _Record) -> None:
        now, until = self._clock.now(), self._end_time(reservation)
        if record.status.phase in ("Consumed", "Expired") and record.status.observed_generation == record.generation:
            return
        is_complete = record.is_restored and not record.remaining
        if record.ended is EndReason.CONSUMED or (is_complete and record.held is None):
            record.held, record.remaining = None, 0
            await self._write_consumed(key, reservation, record)
            return
        if record.ended is EndReason.EXPIRED or (until is not None and until <= now):
            consumed = (await self._counted(record)).consumed
            await self._end(record)
            message = f"The time of {reservation.spec.ttl_seconds} s is over"
            await self._write(
                key,
                record,
                "Expired",
                ConditionUpdate("Expired", "True", "TimeIsOver", message),
                ConditionUpdate("Reserved", "False", "Expired", message),
                consumed=consumed,
            )
            self._event(reservation, "Normal", "ReservationExpired", message)
            return
        lost, record.lost = record.lost, ""
        if not record.is_restored:
            is_held = await self._restore(reservation, record)
            record.is_restored, record.write_failures = True, 0
            if is_held:
                log.info("The room of %s %s/%s is held again", KIND, *key)
            else:
                # Other room is searched when the room of all others is held again.
                is_current = record.status.observed_generation == record.generation
                record.lost = "The room that was held before the restart is taken" if is_current else _CHANGED_BEFORE
                self._has_changed.set()
            if not record.remaining or record.lost:
                return
        if record.held is not None and not record.is_outdated:
            # The time of the spec may have been changed, and the wall clock set.
            record.held.until = until
            lost = await self._lost(record)
            if not lost:
                await self._write_reserved(key, reservation, record)
                return
        if lost or record.is_outdated or self._is_due(record):
            await self._search(key, reservation, record, lost)

    def _is_due(self, record: _Record) -> bool:
        """Return whether to search again: after a delay that grows, and only after a change in the cluster."""
        now = self._clock.now()
        if record.tried_at is None or (record.unserved and record.unserved in self._scheduler.context.profiles):
            return True
        at, reported = record.tried_at
        has_changed = reported != self._scheduler.context.suspension.reported
        return now >= record.next_try and (has_changed or now >= at + _UNCHANGED_SECONDS)

    def _end_time(self, reservation: NodeReservation) -> float | None:
        """Return the clock time at which a reservation expires; None for never."""
        expires = reservation.expiration
        if expires is None:
            return None
        return self._clock.now() + (expires - self._clock.wall()).total_seconds()

    # -- room ---------------------------------------------------------------------------------------------------

    async def _search(self, key: _Key, reservation: NodeReservation, record: _Record, lost: str) -> None:
        before_nodes = set[str]() if record.held is None else _node_names(record.held)
        classes = await self._priority_classes()
        named = named_templates([reservation.spec.template or {}])
        templates = await self._requests.claim_templates(reservation.metadata.namespace, named)
        if missing := self._missing(reservation, record, classes, templates):
            record.tried_at = self._clock.now(), self._scheduler.context.suspension.reported
            found, reason = FitResult(message=problems_message(missing)), "NotFound"
        else:
            found, reason = await self._find(reservation, record, classes, templates)
        has_moved = lost and (record.held is None or record.is_outdated or _node_names(record.held) != before_nodes)
        if has_moved:
            self._event(reservation, "Warning", "ReservedRoomLost", lost)
        if record.held is not None and not record.is_outdated:
            record.failures = 0
            if has_moved or not lost:
                self._event(reservation, "Normal", "RoomReserved", f"Room is held on {_names(record.held.free_slots)}")
            await self._write_reserved(key, reservation, record)
            return
        await self._end(record)
        record.failures += 1
        delay = delay_of_try(record.failures, _RETRY_INITIAL_SECONDS, _RETRY_MAXIMUM_SECONDS)
        record.next_try = self._clock.now() + delay
        message = found.message if not found.fits else "The room that was found was taken during each of the searches"
        message = without_searched_names(reservation, message)
        message = (f"{lost}. {message}" if lost else message)[:_LONGEST_MESSAGE]
        before = find_condition(record.status.conditions, "Reserved")
        await self._write(
            key,
            record,
            "Pending",
            ConditionUpdate("Reserved", "False", reason, message),
            ConditionUpdate("Impossible", "True", "NeverFits", message)
            if found.is_impossible
            else ConditionUpdate("Impossible", "False", "MayFit", "It is not proved that the pods never fit"),
            expires=reservation.expiration,
        )
        if before is None or before.reason != reason:
            self._event(reservation, "Warning", reason, message)

    async def _find(
        self,
        reservation: NodeReservation,
        record: _Record,
        classes: Sequence[dict[str, Any]],
        templates: Sequence[dict[str, Any]],
    ) -> tuple[FitResult, str]:
        """Search room and hold it; return the last result, and the reason of the condition if nothing is held."""
        found = FitResult()
        try:
            request = self._request(reservation, record.remaining, classes, templates)
            for _ in range(_TRIES):
                record.tried_at = self._clock.now(), self._scheduler.context.suspension.reported
                found = await self._dry_run.search(request)
                if not found.fits:
                    break
                terms = self._terms(reservation, record, found.ends)
                if await self._hold(record, self._holding.room(holder_of(reservation), request, found, terms)):
                    break
        except ConfigError as error:
            problems = _of_template(reservation, error.problems)
            return FitResult(message=problems_message(problems)), "InvalidTemplate"
        except ClusterWriteError:
            raise
        except SchedulerCoreError as error:
            return FitResult(message=f"The pods cannot be evaluated: {error}"), "NoRoom"
        return found, "Impossible" if found.is_impossible else "NoRoom"

    def _missing(
        self,
        reservation: NodeReservation,
        record: _Record,
        classes: Sequence[dict[str, Any]],
        templates: Sequence[dict[str, Any]],
    ) -> list[Problem]:
        """Return what the reservation names and does not exist, without which no room is searched."""
        names = [each["metadata"]["name"] for each in classes]
        found = list(missing_of_reservation(reservation, names, (), ()))
        absent = named_templates([reservation.spec.template or {}]) - {each["metadata"]["name"] for each in templates}
        found += (
            Problem("spec.template.spec.resourceClaims", f'there is no ResourceClaimTemplate "{name}"; create it')
            for name in sorted(absent)
        )
        scheduler_name, path = scheduler_name_of(reservation)
        record.unserved = ""
        live = [instance.name for instance in self._scheduler.context.profiles]
        if scheduler_name not in live:
            record.unserved, hint = scheduler_name, did_you_mean(scheduler_name, live)
            available = ", ".join(sorted(live)) or "none"
            text = f'no live profile has the schedulerName "{scheduler_name}"{hint}; available profiles: {available}'
            found.append(Problem(path, text))
        return found

    def _request(
        self,
        reservation: NodeReservation,
        count: int,
        classes: Sequence[dict[str, Any]],
        templates: Sequence[dict[str, Any]] = (),
    ) -> FitRequest:
        meta = reservation.metadata
        objects = [*manifests_of(reservation, count), *templates]
        return prioritized(reservation, self._dry_run.read(f"{KIND} {meta.namespace}/{meta.name}", objects, classes))

    def _terms(self, reservation: NodeReservation, record: _Record, ends: Iterable[str] = ()) -> Terms:
        until, on_end = self._end_time(reservation), partial(self._on_end, record)
        return Terms(frozenset(ends), until, prefers_slots=True, on_end=on_end)

    async def _hold(self, record: _Record, room: HeldRoom) -> bool:
        if not await self._holding.hold(room):
            return False
        record.held, record.is_outdated, record.ended, record.shown = room, False, None, None
        record.settled, record.counted = room.settled, room.counted
        record.planned = self._states_of(room)
        record.known = {uid for name in room.reservation.plan.node_names for uid in self._pods_on(name)}
        return True

    def _on_end(self, record: _Record, reason: EndReason) -> None:
        record.ended = reason
        self._has_changed.set()

    async def _end(self, record: _Record) -> None:
        record.is_restored, record.is_outdated = True, False
        if record.held is not None:
            room, record.held = record.held, None
            await self._holding.end(room)

    async def _restore(self, reservation: NodeReservation, record: _Record) -> bool:
        """Hold the room of the status again, without the part that pods have used since it was written."""
        left, holder = self._rooms_left(reservation.metadata.namespace).get(record.uid), holder_of(reservation)
        if left is None:
            # The object was replaced after this look had begun.
            return False
        record.remaining, record.counted = len(left.nodes), {*left.counted}
        if not left.nodes:
            self._on_end(record, EndReason.CONSUMED)
            return True
        try:
            request = self._request(reservation, len(left.nodes), await self._priority_classes())
        except ConfigError:
            return False
        terms = self._terms(reservation, record, record.status.in_the_way)
        # Its pods are known, so that no further scan is needed.
        holder = replace(holder, pods=replace(holder.pods, are_new=True))
        room = self._holding.room(holder, request, FitResult(left.nodes), terms)
        room.settled.update(left.own)
        room.counted.update(left.counted)
        return await self._hold(record, room)

    def _rooms_left(self, namespace: str) -> dict[str, RoomLeft]:
        """Return what is left of the room of a namespace's reservations, by UID, computed once in a look."""
        if namespace not in self._left:
            if self._by_namespace is None:
                self._by_namespace = defaultdict(list)
                for pods in self._scheduler.context.cache.columns.pods:
                    for info in pods.values():
                        self._by_namespace[info.pod.metadata.namespace].append(info.pod)
            bodies = [body for body in self._store.bodies() if body["metadata"].get("namespace") == namespace]
            found = [
                each
                for body in sorted(bodies, key=lambda body: self._turn(_key(body)))
                if (each := self._read_status(body)) is not None
            ]
            key_of = self._scheduler.context.queue.gangs.key_of
            self._left[namespace] = rooms_left(found, self._by_namespace.get(namespace, []), key_of)
        return self._left[namespace]

    def _read_status(self, body: Body) -> tuple[NodeReservation, NodeReservationStatus, bool] | None:
        """Return a reservation, its last status, and whether its room must be held again; None if it is invalid."""
        record = self._records.get(_key(body))
        try:
            reservation = NodeReservation.from_object(body)
        except ConfigError:
            return None
        meta, status = reservation.metadata, reservation.status if record is None else record.status
        is_current = status.observed_generation == meta.generation and not body["metadata"].get("deletionTimestamp")
        is_open = is_current and (record is None or not record.is_restored)
        return reservation, status, is_open and status.phase == "Reserved"

    async def _priority_classes(self) -> Sequence[dict[str, Any]]:
        """Return the PriorityClasses, from one request in a look; raises its error for each reservation."""
        if self._classes is None:
            try:
                self._classes = await self._requests.priority_classes()
            except ClusterWriteError as error:
                self._classes = error
        if isinstance(self._classes, ClusterWriteError):
            raise self._classes
        return self._classes

    async def _lost(self, record: _Record) -> str:
        """Return why the held room does not exist any more; "" if it exists."""
        room = record.held
        assert room is not None
        await self._scheduler.context.suspension.over()
        reservations = self._scheduler.reservations
        if reservations.held.of(record.uid) is not room:
            # It has ended by itself meanwhile.
            return ""
        stands = reservations.stands(room)
        changed = [name for name, state in self._states_of(room).items() if record.planned.get(name) != state]
        if stands and not changed:
            return ""
        reason = f"Node {changed[0]} was changed or deleted" if changed else self._taker(room, record)
        record.remaining = room.free
        # It is held until other room is found, so that nothing else gets it meanwhile.
        record.is_outdated = True
        return reason

    def _taker(self, room: HeldRoom, record: _Record) -> str:
        """Return who took the room."""
        profiles, own = self._scheduler.context.profiles, room.holder.pods
        for name in room.reservation.plan.node_names:
            for uid, pod in self._pods_on(name).items():
                scheduler_name = pod.spec.scheduler_name
                if uid not in record.known and scheduler_name not in profiles and not own.include(pod, None):
                    return (
                        f"Pod {pod.key} of scheduler {scheduler_name}, which does not read NodeReservations, was bound "
                        f"to {name} and took the room"
                    )
        names = _names(room.free_slots)
        return f"The room on {names} was taken by pods or reservations of higher priority, or a node has less"

    def _pods_on(self, name: str) -> dict[str, Pod]:
        nodes = self._scheduler.context.cache.columns
        row = nodes.row_of(name)
        return {} if row == NO_ROW else {uid: info.pod for uid, info in nodes.pods[row].items()}

    def _states_of(self, room: HeldRoom) -> dict[str, object]:
        return self._holding.node_states(sorted({slot.node_name for slot in room.free_slots}))

    # -- status -------------------------------------------------------------------------------------------------

    async def _write_reserved(self, key: _Key, reservation: NodeReservation, record: _Record) -> None:
        room = record.held
        assert room is not None
        slots = self._slots_of(room)
        shown = _counts(slots), frozenset(room.used_elsewhere)
        # Room that all pods have used ends soon.
        if record.shown == shown or not slots:
            return
        record.remaining = room.free
        message = f"Room for {counted(len(slots), 'pod')} is held on {_names(slots)}"
        if room.terms.in_the_way:
            count, priority = len(room.terms.in_the_way), room.reservation.priority
            message += f"; pods there must end first, or are evicted for its pods of priority {priority}: {count}"
        await self._write(
            key,
            record,
            "Reserved",
            ConditionUpdate("Reserved", "True", "RoomHeld", message),
            ConditionUpdate("Impossible", "False", "RoomHeld", "The pods fit"),
            consumed=reservation.spec.count - len(slots),
            expires=reservation.expiration,
        )
        record.shown = shown

    def _slots_of(self, room: HeldRoom) -> list[Slot]:
        """Return the slots that no bound pod has taken: the bind of a pod that has a node may fail."""
        return self._scheduler.reservations.held.slots_without_bound_pods(room)

    def _since(self, record: _Record, uids: Iterable[str], since: datetime) -> tuple[str, ...]:
        """Return the UIDs of those pods that the reservation selects, exist, and were created since a time."""
        cache, key_of = self._scheduler.context.cache, self._scheduler.context.queue.gangs.key_of
        own = None if record.body is None else holder_of(record.body[1]).pods
        found = []
        for uid in uids:
            placed = cache.get(uid)
            if placed is not None and own is not None:
                pod = placed.info.pod
                created = pod.metadata.creation_timestamp
                is_late = created is not None and created >= since
                if is_late and own.include(pod, None if own.group is None else key_of(pod)):
                    found.append(uid)
        return tuple(sorted(found))

    async def _write_consumed(self, key: _Key, reservation: NodeReservation, record: _Record) -> None:
        message = "The pod is bound" if reservation.spec.count == 1 else f"All {reservation.spec.count} pods are bound"
        await self._write(
            key,
            record,
            "Consumed",
            ConditionUpdate("Consumed", "True", "PodsBound", message),
            ConditionUpdate("Reserved", "False", "Consumed", message),
            consumed=reservation.spec.count,
        )
        self._event(reservation, "Normal", "ReservationConsumed", message)

    async def _write(
        self,
        key: _Key,
        record: _Record,
        phase: Phase,
        *updates: ConditionUpdate,
        consumed: int | None = None,
        expires: datetime | None = None,
    ) -> None:
        """Write the status if it has changed."""
        old, room = record.status, record.held
        now = self._clock.wall().replace(microsecond=0)
        counts = Counter[str]() if room is None else _counts(self._slots_of(room))
        conditions = list(old.conditions)
        true = {each.type for each in old.conditions if each.status == "True"}
        ended = (kind for kind in ("Consumed", "Expired") if kind != phase and kind in true)
        for update in (*updates, *(ConditionUpdate(kind, "False", "SpecChanged", _SPEC_CHANGED) for kind in ended)):
            conditions = set_condition(conditions, update, record.generation, now)
        since = old.reserved_since or now
        counted = {*old.counted_pods, *record.counted}
        others = self._since(record, {*old.other_pods, *record.settled} - counted, since)
        if len(others) > MAX_PODS:
            # Pods that exist now and are bound while no operator runs are then not counted.
            since, others = now, self._since(record, others, now)[:MAX_PODS]
        status = NodeReservationStatus(
            observed_generation=record.generation,
            phase=phase,
            reserved=counts.total(),
            consumed=old.consumed if consumed is None else consumed,
            nodes=tuple(ReservedNode(name=name, pods=pods) for name, pods in sorted(counts.items())[:MAX_NODES]),
            where=_where(counts) or None,
            counted_pods=self._since(record, counted, since)[:MAX_PODS],
            other_pods=others,
            in_the_way=() if room is None else tuple(sorted(room.terms.in_the_way))[:MAX_PODS],
            reserved_since=None if room is None else since,
            expiration_time=expires,
            conditions=tuple(conditions),
        )
        if status == old:
            return
        written = status.model_dump(by_alias=True, mode="json", exclude_none=True)
        await self._requests.write_status(*key, record.uid, written)
        record.status, record.write_failures = status, 0

    def _event(self, reservation: NodeReservation, kind: str, reason: str, note: str) -> None:
        meta = reservation.metadata
        regarding = ObjectReference(KIND, meta.name, meta.namespace, meta.uid, API_VERSION)
        self._scheduler.context.writer.record(Event(regarding, kind, reason, "Reserving", note))


class ReservationWrites:
    """Implementation of :class:`ReservationRequests`."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def write_status(self, namespace: str, name: str, uid: str, status: Mapping[str, Any]) -> None:
        path = ObjectPath(GROUP, VERSION, NodeReservation.definition.plural, name, namespace)
        await replace_status(self._connection, path, uid, status)

    async def priority_classes(self) -> Sequence[dict[str, Any]]:
        return await priority_class_manifests(self._connection)

    async def claim_templates(self, namespace: str, names: Collection[str]) -> Sequence[dict[str, Any]]:
        return await claim_template_manifests(self._connection, namespace, names)


def _differs_in_time_alone(record: _Record, reservation: NodeReservation) -> bool:
    """Return whether a spec differs from that of held room in nothing but its time."""
    if record.held is None or record.is_outdated or record.body is None or record.ended is not None:
        return False
    before, now = record.body[1].spec, reservation.spec
    return record.is_restored and before.model_copy(update={"ttl_seconds": now.ttl_seconds}) == now


def _status_of(body: Body) -> NodeReservationStatus:
    """Return the status of an object whose spec is not valid."""
    try:
        return NodeReservationStatus.model_validate(body.get("status") or {})
    except ValidationError:
        return NodeReservationStatus()


def _node_names(room: HeldRoom) -> set[str]:
    """Return the nodes with free slots."""
    return {slot.node_name for slot in room.free_slots}


def _names(slots: Iterable[Slot]) -> str:
    return listed(sorted({slot.node_name for slot in slots}), _SHOWN_NODES)


def _of_template(reservation: NodeReservation, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems of the first pod with the fields of the template that it was made of."""
    meta, found = reservation.metadata, list[Problem]()
    pods = f"{KIND} {meta.namespace}/{meta.name} (Pod {pods_prefix(reservation)}"
    for each in problems:
        number, is_of_pod, path = each.path.removeprefix(pods).partition("): ")
        if not is_of_pod or not each.path.startswith(pods):
            found.append(each)
        elif number == "0":
            found.append(Problem(f"spec.template.{path}", each.message))
    return found


def _where(nodes: Iterable[str]) -> str:
    """Return the first node and the number of the others, short enough for a column of ``kubectl get``."""
    names = sorted(nodes)
    return "".join(names[:1]) + (f" +{len(names) - 1}" if len(names) > 1 else "")


def _counts(slots: Iterable[Slot]) -> Counter[str]:
    return Counter(slot.node_name for slot in slots)


def _key(body: Body) -> _Key:
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
