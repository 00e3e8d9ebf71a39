"""The scheduling queue: every waiting pod is in exactly one place.

::

    add ──gate──▶ active ──pop──▶ in flight ──done──▶ (bound, gone)
      │             ▲  ▲             │ failed
      │ gate closed │  └─ backoff ◀──┤ an event occurred meanwhile, or an error
      ▼             │        ▲       ▼
     gated ──event──┘        └── unschedulable   (requeued by a hint, activation, or after the flush interval)

    parked: pods whose profile is not live; they are added again when it becomes live

Only :meth:`SchedulingQueue.wait` awaits. Follows kube-scheduler v1.37.1 (``backend/queue``): errors and rejections have
separate backoffs, a pod whose rejecting plugin returned Pending skips backoff, and if the active queue is empty, the
pod nearest the end of its backoff is tried early. docs/internals/architecture.md lists the intended differences.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from scheduler_core.framework.cluster_events import FORCE_ACTIVATE, PROFILE_SWAPPED, UNSCHEDULABLE_TIMEOUT, ClusterEvent
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.model.pod_group import ForeignGangs
from scheduler_core.ports import Clock
from scheduler_core.queueing.event_wakeups import EventWakeups, InFlightEvents, SeenEvent, WaitingEvent
from scheduler_core.queueing.gang_entries import GangEntries, GangRequeueing
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.queue_moves import (
    ATTEMPT_FAILED,
    MOVES,
    POD_ADDED,
    POPPED_FROM_BACKOFF,
    Move,
    Moves,
    NominationListener,
    RulesLookup,
)
from scheduler_core.queueing.queueing_rules import QueueingRules, Requeue
from scheduler_core.queueing.sub_queues import QueueCounts
from scheduler_core.queueing.waiting_causes import WaitingFor, waiting_causes
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import STEP_SECONDS, StepCounter

_GATED_LABEL = Place.GATED.label
_QUEUES = ("active", "backoff", "unschedulable", "gated")
_COUNTED_AS = {Place.ERROR_BACKOFF.label: "backoff", Place.IN_FLIGHT.label: "active"}


class QueueReadings:
    """The contents of the scheduling queue, for reading.

    Iteration is not in queue order. The members of a gang are listed in the place of its entry; members without a
    quorum count as gated.

    Attributes:
        incoming: Pods that entered a queue, by event label and "active", "backoff" or "unschedulable".
        incoming_entities: The same for pods without a gang ("pod") and for gangs ("podgroup"), the third part of the
            key.
    """

    def __init__(self, gangs: Gangs, moves: Moves, in_flight: InFlightEvents, wakeups: EventWakeups) -> None:
        self._gangs = gangs
        self._places = moves.places
        self._pending = moves.pending
        self._in_flight = in_flight
        self._wakeups = wakeups
        self.incoming: Mapping[tuple[str, str], int] = moves.places.incoming
        self.incoming_entities: Mapping[tuple[str, str, str], int] = moves.places.incoming_entities

    # -- looking ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[QueuedPod]:
        for pod in self._places.waiting():
            if type(pod) is not QueuedGang:
                yield pod
        yield from self._places.pods(Place.GROUPED)

    def __len__(self) -> int:
        return self._places.waiting_count() + sum(map(_members_more, self._gangs.units()))

    def places(self) -> Iterator[tuple[str, QueuedPod]]:
        """Yield every pod with the name of its place, such as ``errorBackoff``; move none while iterating."""
        for place in Place:
            if place is not Place.NOWHERE:
                for pod in self._places.pods(place):
                    if place is Place.GROUPED:
                        yield self._place_of_gang(pod), pod
                    elif type(pod) is not QueuedGang:
                        yield place.label, pod

    def _place_of_gang(self, pod: QueuedPod) -> str:
        gang = self._gangs.get(pod.group)
        entry = None if gang is None else gang.unit.entry
        return _GATED_LABEL if entry is None or entry.place is Place.NOWHERE else entry.place.label

    @property
    def parked_count(self) -> int:
        return self._places.size(Place.PARKED)

    def parked(self) -> Iterator[QueuedPod]:
        """Yield the pods whose profile is not live; move none while iterating."""
        return self._places.pods(Place.PARKED)

    def parked_counts(self) -> dict[str, int]:
        """Return the number of pods whose profile is not live, by their ``schedulerName``."""
        return self._places.parked_counts()

    @property
    def is_idle(self) -> bool:
        """Whether no pod can be tried before a backoff ends or an event occurs."""
        if self.is_behind:
            return False
        return not any(map(self._places.size, (Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT)))

    @property
    def is_behind(self) -> bool:
        """Whether pods must still be moved, or events evaluated; the next pop continues."""
        return bool(self._pending.moves) or self._wakeups.has_pending

    @property
    def in_flight_count(self) -> int:
        return self._places.size(Place.IN_FLIGHT)

    def counts(self) -> dict[str, QueueCounts]:
        counts = self._places.counts()
        for gang in self._gangs.units():
            if gang.waiting:
                first = next(iter(gang.waiting.values()))
                of_profile = counts.setdefault(first.profile, QueueCounts())
                place = self._place_of_gang(first)
                name = _COUNTED_AS.get(place, place)
                setattr(of_profile, name, getattr(of_profile, name) + _members_more(gang))
        return counts

    def entities(self) -> dict[tuple[str, str], int]:
        """Return the number of queued pods without a gang and of queued gangs, by queue and "pod" or "podgroup"."""
        found = {(queue, kind.entity): 0 for queue in _QUEUES for kind in (QueuedPod, QueuedGang)}
        for counts in self._places.counts().values():
            for queue in _QUEUES:
                found[queue, QueuedPod.entity] += getattr(counts, queue)
        for gang in self._gangs.units():
            place = None if gang.entry is None else gang.entry.place
            queue = "" if place is None else _COUNTED_AS.get(place.label, place.label)
            if queue in _QUEUES and place is not Place.IN_FLIGHT:
                found[queue, QueuedPod.entity] -= 1
                found[queue, QueuedGang.entity] += 1
        return found

    def causes(self, nominated: Iterable[str]) -> Counter[tuple[WaitingFor, str]]:
        """Return the number of waiting pods by what they wait for, and the plugin that gates them.

        Args:
            nominated: UIDs of the pods with a nominated node.
        """
        return waiting_causes(self._places, self._gangs, nominated)

    @property
    def unschedulable_by(self) -> dict[tuple[str, str], int]:
        """Number of waiting pods that a plugin rejected, by plugin and profile."""
        return self._places.unschedulable_by

    def in_flight_events(self) -> dict[str, int]:
        """Return the number of events recorded for in-flight pods by label, and of these pods as ``PodPopped``."""
        return self._in_flight.counts()


def _members_more(gang: Gang) -> int:
    """Return the number of waiting members, less 1 if an entry in the queue counts already."""
    entry = gang.entry
    is_counted = entry is not None and entry.place not in (Place.NOWHERE, Place.IN_FLIGHT, Place.PARKED)
    return len(gang.waiting) - is_counted


FLUSH_INTERVAL_SECONDS = 30.0

# Bound to names, because looking a member up in an enum is slow.
_ACTIVE, _BACKOFF, _IN_FLIGHT = Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT
_BACKOFF_OF_STEP = 4 * STEP_SECONDS
_PARKED, _GROUPED = Place.PARKED, Place.GROUPED
_ASIDE = _UNSCHEDULABLE, _GATED = (Place.UNSCHEDULABLE, Place.GATED)
_BACKING_OFF = (Place.BACKOFF, Place.ERROR_BACKOFF)
_RETRIED = (*_ASIDE, *_BACKING_OFF, _ACTIVE)


class SchedulingQueue:
    """Pods that wait to be scheduled.

    Attributes:
        gangs: All gangs, waiting and scheduled ones.
        readings: What waits where, for status, metrics and explanations.
        wakeups: Evaluates events for pods that are unschedulable or gated.
        pending: Moves of many pods that are made in slices.
        on_error: Called with a pod that an error in the queue delays, such as one of QueueSort, and the error.
        on_odd_key: Called with a pod whose sort key does not compare with those of other pods, and the reason.
        on_nomination_ended: Called with a nominated member and its nominated node when the member is gated because its
            group is not known any more.
        max_unschedulable_seconds: Seconds after which an unschedulable pod is tried again without an event.
        scheduled_after_flush: Number of pods bound in the attempt that :meth:`flush` caused.
    """

    def __init__(
        self,
        rules: RulesLookup,
        clock: Clock,
        max_unschedulable_seconds: float = 300.0,
        foreign_gangs: ForeignGangs = "Ignore",
        steps: StepCounter | None = None,
        *,
        moves: int = MOVES,
    ) -> None:
        self.max_unschedulable_seconds = max_unschedulable_seconds
        self.scheduled_after_flush = 0
        self._given_up: dict[str, int] = {}
        self._rules = rules
        self._clock = clock
        self._sequence = itertools.count()
        gangs = Gangs(clock, foreign_gangs)
        self._gang_entries = GangEntries(gangs, rules, clock, self._sequence)
        self.gang_requeueing = GangRequeueing(gangs, self._gang_entries, self._retry_if_failed)
        self._moves = self._gang_entries.moves
        self.gangs = gangs
        self._places, self.pending = self._moves.places, self._moves.pending
        self.pending.budget = self.pending.left = moves
        self._in_flight = InFlightEvents()
        self._live: dict[str, QueueingRules] = {}
        self.wakeups = EventWakeups(self._moves, self._live, StepCounter() if steps is None else steps)
        self.readings = QueueReadings(gangs, self._moves, self._in_flight, self.wakeups)
        self.nominator = self._moves.nominator
        self._ready = self._moves.ready
        self.on_error, self.on_odd_key = self._moves.on_error, self._moves.on_odd_key
        self.on_nomination_ended = self._gang_entries.on_nomination_ended

    # -- coming and going ---------------------------------------------------------------------------------------

    def add(self, info: PodInfo) -> None:
        if self.find(info.uid) is not None:
            self.update(info)
        else:
            self._admit(info)

    def _admit(self, info: PodInfo) -> None:
        pod = QueuedPod(info, self._clock.now(), next(self._sequence))
        self._places.register(pod)
        try:
            # Before its gates: they depend on the group of the pod.
            self._gang_entries.assign_gang(pod)
            if pod.group is None and self.gangs.foreign_gangs == "Warn":
                self.gangs.report_foreign(pod)
            self._moves.enter(pod, POD_ADDED)
        except Exception:
            # It is added again. A pod in no place would be updated then, which checks no gates.
            self.remove(info.uid)
            raise

    def update(self, info: PodInfo, events: Sequence[ClusterEvent] = (), old: object | None = None) -> None:
        """Handle an updated pod.

        An active pod or one in backoff is reordered; an unschedulable or gated pod is requeued by its own events if
        hints return Queue; for a pod in flight, the events are recorded in case its attempt fails.
        """
        pod = self.find(info.uid)
        if pod is None:
            self._admit(info)
            return
        if self.wakeups.has_pending:
            # Logged events are evaluated with the version of the pod that waited when they occurred.
            self.wakeups.catch_up(pod)
        before, pod.info = pod.info.pod, info
        if pod.place is _IN_FLIGHT:
            if info.uid in self._in_flight:
                for event in events:
                    self._in_flight.note(event, old, info.pod)
            return
        if pod.place is _PARKED:
            # Nothing but its group matters before its profile is live.
            self._gang_entries.assign_gang(pod)
            return
        if not pod.is_nomination_withheld:
            self.nominator.update(before, info)
        was_of = pod.group
        self._gang_entries.assign_gang(pod)
        is_held_by_mark = pod.place is Place.GATED and pod.group is None and pod.gated_by == GANG_SCHEDULING
        if pod.group != was_of or is_held_by_mark:
            try:
                self._moves.enter(pod, POD_ADDED)
            except Exception as fault:
                # When the version is delivered again, the pod has its group already, and would not be moved.
                self._moves.delay_faulty(pod, fault)
        elif pod.place is _GROUPED:
            entry = self._gang_entries.member_updated(pod)
            if entry is not None:
                self._wake_by_own(entry, events, old, info.pod)
        elif pod.place in _ASIDE:
            self._wake_by_own(pod, events, old, info.pod)
        else:
            self._moves.reorder(pod)

    def _wake_by_own(self, pod: QueuedPod, events: Sequence[ClusterEvent], old: object | None, new: object) -> None:
        rules = self._rules(pod.profile)
        for event in events:
            verdict = Requeue.STAY if rules is None else rules.evaluate(pod, event, old, new)
            if verdict is not Requeue.STAY:
                self._moves.requeue(pod, verdict, event.name)
                if pod.place not in _ASIDE:
                    break

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove a pod that was deleted or bound; one in flight is not requeued if it fails."""
        nominator = self.nominator
        if uid in nominator.node_by_uid or uid in nominator.unseen_by_uid:
            nominator.remove(uid)
        pod = self._places.by_uid.get(uid)
        if pod is not None:
            if self._given_up:
                self._given_up.pop(uid, None)
            self._places.drop(pod)
            if pod.group is not None:
                try:
                    self._gang_entries.remove_member(pod)
                except Exception as fault:
                    self._gang_entries.remove_faulty_member(pod, fault)
        return pod

    def find(self, uid: str) -> QueuedPod | None:
        """Return the pod of a UID in any place, in flight included; None if it is not in the queue."""
        return self._places.find(uid)

    # -- attempts -----------------------------------------------------------------------------------------------

    def pop(self) -> QueuedPod | None:
        """Remove and return the next pod, which is then in flight; None if none is ready, or moves are pending."""
        pending = self.pending
        # Moves may be pending although nothing of the budget is used, if an exception interrupted their start.
        if (pending.moves or pending.left < pending.budget) and not pending.advance():
            return None
        if self.wakeups.left < self.wakeups.budget:
            self.wakeups.advance()
        pod = self._places.take_first(_ACTIVE)
        # No other pod is to be tried, so the pod nearest the end of its backoff is tried early, as in kube-scheduler.
        # It delays no other pod.
        is_early = pod is None
        if pod is None:
            pod = self._places.take_first(_BACKOFF)
            if pod is None:
                if not self.wakeups.has_pending:
                    self._ready.clear()
                return None
        try:
            if is_early:
                self._places.count_incoming(pod, POPPED_FROM_BACKOFF, _ACTIVE)
            pod.attempts += 1
            if pod.rejected_by:
                self._places.clear_rejections(pod)
            pod.backoff_until = 0.0
            # Events are recorded from here on, without a gap to those that were evaluated before.
            self._places.begin_attempt(pod)
            self._in_flight.begin(pod.uid)
        except Exception as fault:
            self._in_flight.end(pod.uid)
            if pod.place is _IN_FLIGHT:
                # Perhaps the last step raised; a pod in flight would not be delayed.
                self._places.take(pod)
            self._moves.delay_faulty(pod, fault)
            return None
        return pod

    async def wait(self) -> None:
        """Wait until :meth:`pop` may return a pod."""
        await self._ready.wait()

    def resume(self) -> None:
        """Let :meth:`wait` return, because there is work besides the pods of the queue."""
        self._ready.set()

    def is_in_flight(self, uid: str) -> bool:
        pod = self.find(uid)
        return pod is not None and pod.place is _IN_FLIGHT

    def end_recording(self, uid: str) -> None:
        """Stop recording events for a pod in flight that has passed Permit."""
        # If its attempt still fails, the pod is retried after backoff, whichever plugin rejected it.
        self._in_flight.end(uid)

    def done(self, uid: str) -> None:
        """End an attempt after which the pod is not requeued."""
        if uid in self._in_flight.starts:
            self._in_flight.end(uid)
        if self._given_up:
            self._given_up.pop(uid, None)
        pod = self._places.by_uid.get(uid)
        if pod is not None:
            if pod.place is not _IN_FLIGHT:
                return
            self._places.drop(pod)
        # The attempt may have written a nomination after the pod was removed. A bind displaces writes, and no watch
        # shows these: if the bind had no effect after all, only the nomination in the status of the pod counts.
        nominator = self.nominator
        if uid in nominator.node_by_uid or uid in nominator.unseen_by_uid:
            nominator.remove(uid)

    def scheduled(self, pod: QueuedPod) -> None:
        """End an attempt whose pod was bound."""
        if pod.was_flushed:
            self.scheduled_after_flush += 1
        self.done(pod.uid)

    def failed(self, pod: QueuedPod, given_up_steps: int = 0) -> None:
        """Requeue a pod whose attempt has failed, by the events that occurred meanwhile, unless it was removed.

        ``rejected_by`` and ``pending_on`` name the plugins that rejected it. Without any, the attempt ended in an error
        or the cluster has no nodes, and the pod is retried after backoff.

        Args:
            given_up_steps: Steps after which the attempt was given up; 0 if it was not.
        """
        # Read first: the end of the attempt drops the events that no other attempt needs.
        events = self._in_flight.events_of(pod.uid)
        self._in_flight.end(pod.uid)
        if pod.place is not _IN_FLIGHT:
            return
        self._places.take(pod)
        try:
            self._requeue_failed(pod, events, given_up_steps)
        except Exception as fault:
            self._moves.delay_faulty(pod, fault)
            if isinstance(pod, QueuedGang):
                # The gang may have changed during the attempt, and have no quorum any more.
                self._gang_entries.attempted(pod)

    def is_tried_alone(self, pod: QueuedPod) -> bool:
        """Return whether a pod in flight may still be scheduled by itself; always true of a gang."""
        return isinstance(pod, QueuedGang) or self._gang_entries.is_tried_alone(pod)

    def enter_again(self, pod: QueuedPod) -> None:
        """End an attempt without a decision, as the pod or its gang changed: it takes gang, gates and order again."""
        self._in_flight.end(pod.uid)
        if pod.place is not _IN_FLIGHT:
            return
        # The next attempt is the same one, with the same ties.
        pod.attempts -= 1
        self._places.take(pod)
        try:
            self._gang_entries.assign_gang(pod)
            self._moves.enter(pod, POD_ADDED)
        except Exception as fault:
            self._moves.delay_faulty(pod, fault)

    def _requeue_failed(self, pod: QueuedPod, events: Sequence[SeenEvent] | None, given_up_steps: int) -> None:
        # Errors and rejections have separate backoffs, and only a rejection ends a series of errors.
        pod.rejected_by |= pod.pending_on
        pod.gated_by, pod.gate_reasons = "", ()
        if pod.rejected_by:
            pod.unschedulable_count += 1
            pod.error_count = 0
        else:
            pod.error_count += 1
        pod.timestamp = self._clock.now()
        pod.backoff_until = 0.0
        pod.was_flushed = False
        pod.flushed_at = 0.0
        self._places.count_rejections(pod)
        if isinstance(pod, QueuedGang):
            self._gang_entries.failed(pod, pod.timestamp)
        elif given_up_steps or pod.was_given_up:
            self._set_given_up(pod, given_up_steps)
        if (pod.group is not None or len(self.gangs)) and self._gang_entries.requeue_member(pod):
            return
        rules = self._rules(pod.profile)
        # Without a record (it was ended, or exceeded its limit) any event may have occurred.
        verdict = Requeue.AFTER_BACKOFF if events is None or not pod.rejected_by else Requeue.STAY
        if events and rules is not None and verdict is Requeue.STAY:
            verdict = self.wakeups.verdict_of_attempt(pod, rules, events)
        self._moves.requeue(pod, verdict, ATTEMPT_FAILED)
        # A gate of the new revision has closed; a swap ends the nominations of waiting pods that it gates, too.
        if pod.place is _GATED and any(seen.event == PROFILE_SWAPPED for seen in events or ()):
            self._moves.withhold_nomination(pod)
        if isinstance(pod, QueuedGang):
            self._gang_entries.attempted(pod)

    @property
    def event_position(self) -> int:
        """Number of the next event that is recorded for pods in flight."""
        return self._in_flight.position

    def would_retry(self, entry: QueuedPod, since: int) -> bool:
        """Return whether the events from a number on requeue a pod or gang in flight, which contains its rejection."""
        rules, events = self._rules(entry.profile), self._in_flight.events_of(entry.uid, since)
        if rules is None or events is None:
            return True
        return bool(events) and self.wakeups.verdict_of_attempt(entry, rules, events) is not Requeue.STAY

    def _set_given_up(self, pod: QueuedPod, steps: int) -> None:
        self._given_up.pop(pod.uid, None)
        pod.was_given_up = bool(steps)
        if steps:
            self._given_up[pod.uid] = steps
        # A multiple of the steps of all of them, so that pods whose attempts are given up take at most a fifth of the
        # scheduler's time, whatever events requeue them.
        pod.minimum_backoff = _BACKOFF_OF_STEP * sum(self._given_up.values()) if steps else 0.0

    # -- gangs --------------------------------------------------------------------------------------------------

    def gang_changed(self, gang: Gang) -> None:
        """Review a gang whose members have changed."""
        self._gang_entries.review(gang)

    def group_changed(self, gang: Gang) -> None:
        """Review a gang whose PodGroup was created, updated or deleted."""
        self._gang_entries.group_changed(gang)

    def move_gang_behind_peers(self, gang: Gang) -> None:
        """Move a timed-out gang behind the gangs and pods of the same priority."""
        self._gang_entries.move_behind_peers(gang, self._clock.now())

    def gang_placed(self, entry: QueuedGang, members: Sequence[QueuedPod]) -> None:
        """End the attempt of a scheduled gang; each of ``members`` is in flight by itself from now on."""
        self._in_flight.end(entry.uid)
        self._gang_entries.gang_placed(entry, members)
        for pod in members:
            pod.attempts += 1
            self._in_flight.begin(pod.uid)

    # -- moving -------------------------------------------------------------------------------------------------

    def on_event(
        self,
        event: ClusterEvent,
        old: object | None,
        new: object | None,
        *,
        exclude: str = "",
        max_priority: int | None = None,
    ) -> None:
        """Requeue the pods that a cluster event may help, and record it for those in flight.

        Args:
            old: The object before the event, None if it was added.
            new: The object after the event, None if it was deleted.
            exclude: UID of a pod that is not requeued.
            max_priority: Highest priority of pods that it may help; None for any.
        """
        if not (self._in_flight.starts or self._places.unschedulable or self._places.gated):
            return
        if not any(rules.interest(event) for rules in self._live.values()):
            # No plugin has registered for it, so it costs no walk over the waiting pods.
            return
        pods = [
            pod
            for pod in self._places.pods(*_ASIDE)
            if pod.uid != exclude and (max_priority is None or pod.info.priority <= max_priority)
        ]
        self._in_flight.note(event, old, new)
        if pods:
            self.wakeups.requeue(pods, WaitingEvent(event, old, new, exclude, max_priority))

    def delay_faulty(self, pod: QueuedPod, fault: Exception) -> None:
        """Move a pod that an error left in flight, or in no place, into backoff, and report it."""
        self._in_flight.end(pod.uid)
        if pod.place is _IN_FLIGHT:
            self._places.take(pod)
        self._moves.delay_faulty(pod, fault)
        if isinstance(pod, QueuedGang):
            self._gang_entries.attempted(pod)

    def activate(self, uids: Iterable[str]) -> None:
        """Move pods to the active queue, whichever plugin rejected them, if their gates are open."""
        moves = list[Move]()
        for uid in uids:
            pod = self.find(uid)
            if pod is not None and pod.place is _GROUPED:
                pod = self._gang_entries.entry_of(pod)
            if pod is None:
                continue
            if pod.uid in self._in_flight:
                # Its attempt began earlier; if it fails, the pod is retried after backoff.
                self._retry_if_failed(pod)
            else:
                moves.append((self._activate, pod, 1))
        self.pending.start(moves)

    def _activate(self, pod: QueuedPod) -> None:
        if self.find(pod.uid) is not pod:
            return
        if pod.place in _ASIDE:
            self._moves.enter(pod, FORCE_ACTIVATE.name)
        elif pod.place in _BACKING_OFF:
            self._moves.end_backoff(pod, FORCE_ACTIVATE.name)

    def _retry_if_failed(self, pod: QueuedPod) -> None:
        """Record that a pod or gang in flight is retried after backoff if its attempt fails."""
        if pod.uid in self._in_flight:
            self._in_flight.note(FORCE_ACTIVATE, None, pod.info.pod)

    def profile_changed(self, profile: str, on_nomination_ended: NominationListener | None = None) -> None:
        """Requeue the pods of a new or changed profile by its rules, or park those of a withdrawn one.

        Args:
            on_nomination_ended: Called with each pod whose nomination that ends, and with its nominated node.
        """
        rules = self._rules(profile)
        self._live.pop(profile, None)
        if rules is not None:
            self._live[profile] = rules
        self.wakeups.rules_changed()
        for pod in self._places.pods(_IN_FLIGHT):
            if pod.profile == profile and pod.uid in self._in_flight:
                # If it is rejected, then by plugins of the old revision, whose hints are no longer called.
                self._in_flight.note(PROFILE_SWAPPED, None, pod.info.pod)
        nominator = self.nominator
        # Reported after the moves, which decide whether the nominations end.
        nominated = [
            (self._report_ended, (of, node_name, on_nomination_ended), 1)
            for uid, node_name in nominator.node_by_uid.items()
            if (queued := self.find(uid)) is not None
            and queued.profile == profile
            and (of := nominator.nomination_of(uid)) is not None
        ]
        aside = frozenset(pod.uid for pod in self._places.pods(*_ASIDE) if pod.profile == profile)
        swap = (self._swap_pods, (profile, aside, nominated), 1)
        self.pending.start((*self.gang_requeueing.profile_changed(profile), swap))

    def _swap_pods(self, swap: tuple[str, frozenset[str], Iterable[Move]]) -> None:
        """Start the moves of the pods of a profile, and then others; the waiting members of gangs are moved already."""
        profile, were_aside, last = swap
        is_live = self._rules(profile) is not None
        aside, parked, queued = (
            [pod for pod in self._places.pods(*places) if pod.profile == profile]
            for places in (_ASIDE, (_PARKED,), (_ACTIVE, *_BACKING_OFF))
        )
        # A swap retries a pod that was aside without backoff, also if an event has moved it into backoff since.
        aside += [pod for pod in queued if pod.uid in were_aside]
        queued = [pod for pod in queued if pod.uid not in were_aside]
        start = self.pending.start
        start((self._swap_aside, pod, 1) for pod in aside)
        if is_live:
            start((self._swap_parked, pod, 1) for pod in parked)
        start((self._swap_queued if is_live else self._swap_aside, pod, 1) for pod in queued)
        start(((self._end_swap, (profile, last), 1),))

    def _swap_aside(self, pod: QueuedPod) -> None:
        if pod.place not in _RETRIED or self.find(pod.uid) is not pod:
            return
        try:
            self._places.take(pod)
            self._places.clear_rejections(pod)
            self._moves.enter(pod, PROFILE_SWAPPED.name)
        except Exception as fault:
            self._moves.delay_faulty(pod, fault)

    def _swap_parked(self, pod: QueuedPod) -> None:
        if pod.place is _PARKED and self.find(pod.uid) is pod:
            self._moves.enter(pod, POD_ADDED)

    def _swap_queued(self, pod: QueuedPod) -> None:
        if self.find(pod.uid) is pod:
            self._moves.apply_new_gates(pod, PROFILE_SWAPPED.name)

    def _end_swap(self, swap: tuple[str, Iterable[Move]]) -> None:
        profile, last = swap
        if self._rules(profile) is None:
            self._places.drop_profile(profile)
        gated = [pod for pod in self._places.pods(_GATED) if pod.profile == profile]
        self.pending.start((self._withhold_nomination, pod, 1) for pod in gated)
        self.pending.start(last)

    def _withhold_nomination(self, pod: QueuedPod) -> None:
        if pod.place is _GATED and self.find(pod.uid) is pod:
            self._moves.withhold_nomination(pod)

    def _report_ended(self, nomination: tuple[PodInfo, str, NominationListener | None]) -> None:
        nominated, node_name, listener = nomination
        if listener is not None and not self.nominator.node_of(nominated.uid):
            listener(nominated, node_name)

    def resort(self) -> None:
        """Reorder the queues after the QueueSort plugin was replaced."""
        for name in list(self._live):
            rules = self._rules(name)
            if rules is not None:
                self._live[name] = rules
        self.wakeups.rules_changed()
        self._moves.reorder_all()

    def flush(self) -> None:
        """Retry pods that have been unschedulable for too long, in case a hint was wrong, and gates that failed."""
        self._moves.restart_timer()
        self._gang_entries.review_faulty()
        faulty = [pod for pod in self._places.pods(_GATED) if pod.is_faulty]
        self.pending.start((self._retry_gate, pod, 1) for pod in faulty)
        limit = self._clock.now() - self.max_unschedulable_seconds
        # A gated pod may stay gated, and must not be flushed in every interval.
        late = [pod for pod in self._places.pods(*_ASIDE) if max(pod.timestamp, pod.flushed_at) < limit]
        if not late:
            return
        for pod in late:
            pod.was_flushed = True
            pod.flushed_at = self._clock.now()
        self._in_flight.note(UNSCHEDULABLE_TIMEOUT, None, None)
        only = frozenset(pod.uid for pod in late)
        self.wakeups.requeue(late, WaitingEvent(UNSCHEDULABLE_TIMEOUT, None, None, only=only))

    def _retry_gate(self, pod: QueuedPod) -> None:
        if pod.place is _GATED and self.find(pod.uid) is pod:
            self._moves.enter(pod, UNSCHEDULABLE_TIMEOUT.name)

    def close(self) -> None:
        self._moves.close()
