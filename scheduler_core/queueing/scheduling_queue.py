"""The queue: every pod that waits is in exactly one place.

Owns what moves a pod from place to place::

    add ──gate──▶ active ──pop──▶ in flight ──done──▶ (bound, gone)
      │             ▲  ▲             │ failed
      │ held back   │  └─ backoff ◀──┤ an event came meanwhile, or an error
      ▼             │        ▲       ▼
     gated ──event──┘        └── unschedulable   (woken by a hint, activation, or after the flush interval)

    parked: pods whose profile is not live; they go back to ``add`` when it comes

Must not know why pods fail. Time is the clock's; nothing here awaits but :meth:`SchedulingQueue.wait`.

Follows kube-scheduler v1.36.3 (``backend/queue``): errors back off apart from rejections, a pod whose rejecting plugin
answered Pending skips backoff, and when the active queue is empty the pod that is nearest the end of its backoff is
tried early rather than leave the scheduler idle. Where it differs on purpose is listed in docs/architecture.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

from scheduler_core.framework.cluster_events import FORCE_ACTIVATE, PROFILE_SWAPPED, UNSCHEDULABLE_TIMEOUT, ClusterEvent
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.ports import Clock
from scheduler_core.queueing.event_labels import label_of
from scheduler_core.queueing.gang import Gang
from scheduler_core.queueing.gang_entries import GangEntries
from scheduler_core.queueing.gangs import Gangs
from scheduler_core.queueing.in_flight import InFlight
from scheduler_core.queueing.moves import (
    ATTEMPT_FAILED,
    POD_ADDED,
    POD_UPDATED,
    POPPED_FROM_BACKOFF,
    Moves,
    RulesLookup,
)
from scheduler_core.queueing.places import QueueCounts
from scheduler_core.queueing.queue_readings import QueueReadings
from scheduler_core.queueing.queueing_rules import QueueingRules, Requeue
from scheduler_core.snapshot.pod_info import PodInfo

__all__ = ["FLUSH_INTERVAL_SECONDS", "QueueCounts", "RulesLookup", "SchedulingQueue"]

FLUSH_INTERVAL_SECONDS = 30.0

# Bound to names, because looking a member up in an enum is slow.
_ACTIVE, _BACKOFF, _IN_FLIGHT = Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT
_PARKED, _GROUPED = Place.PARKED, Place.GROUPED
_ASIDE = _UNSCHEDULABLE, _GATED = (Place.UNSCHEDULABLE, Place.GATED)
_BACKING_OFF = (Place.BACKOFF, Place.ERROR_BACKOFF)


class SchedulingQueue(QueueReadings):
    """Pods that wait to be scheduled.

    Attributes:
        nominator: Promised nodes.
        max_unschedulable_seconds: How long a pod may stay unschedulable before it is tried again whatever hints say.
        scheduled_after_flush: Pods that were bound in the attempt that :meth:`flush` brought them.
    """

    def __init__(self, rules: RulesLookup, clock: Clock, max_unschedulable_seconds: float = 300.0) -> None:
        self.max_unschedulable_seconds = max_unschedulable_seconds
        self.scheduled_after_flush = 0
        self._rules = rules
        self._clock = clock
        self._moves = Moves(rules, clock)
        self.nominator = self._moves.nominator
        self._places = self._moves.places
        self._ready = self._moves.ready
        self._in_flight = InFlight()
        self._live: dict[str, QueueingRules] = {}
        self._sequence = itertools.count()
        self.gangs = Gangs(clock)
        self._gang_entries = GangEntries(self.gangs, self._moves, rules, self._sequence)

    # -- coming and going ---------------------------------------------------------------------------------------

    def add(self, info: PodInfo) -> None:
        """A pod that is not bound has come."""
        if self.find(info.uid) is not None:
            self.update(info)
        else:
            self._admit(info, POD_ADDED)

    def _admit(self, info: PodInfo, label: str) -> None:
        pod = QueuedPod(info, self._clock.now(), next(self._sequence))
        self._places.welcome(pod)
        self._gang_entries.belongs(pod)
        self._moves.enter(pod, label)

    def update(self, info: PodInfo, events: Sequence[ClusterEvent] = (), old: object | None = None) -> None:
        """A waiting pod has changed.

        In a queue it takes its new place; where it is put aside, its own events wake it if hints say so; in flight,
        they are kept for when its attempt fails.

        Args:
            info: The pod as it is now.
            events: What about it changed, as plugins name it.
            old: The pod as it was.
        """
        pod = self.find(info.uid)
        if pod is None:
            self._admit(info, POD_UPDATED)
            return
        before, pod.info = pod.info.pod, info
        if pod.place is _IN_FLIGHT:
            if info.uid in self._in_flight:
                for event in events:
                    self._in_flight.note(event, old, info.pod)
            return
        if pod.place is _PARKED:
            return
        if not self._gang_entries.holds_back(pod):
            self.nominator.update(before, info)
        was_of = pod.group
        self._gang_entries.belongs(pod)
        if pod.group != was_of:
            self._moves.enter(pod, POD_UPDATED)
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
            verdict = Requeue.STAY if rules is None else rules.judge(pod, event, old, new)
            if verdict is not Requeue.STAY:
                self._moves.requeue(pod, verdict, label_of(event, old, new))
                if pod.place not in _ASIDE:
                    break

    def remove(self, uid: str) -> QueuedPod | None:
        """A waiting pod is gone, or bound by someone else; one in flight will not come back when it fails."""
        self.nominator.withdraw(uid)
        pod = self.find(uid)
        if pod is not None:
            if pod.place is not _IN_FLIGHT:
                self._places.absolve(pod)
            self._places.drop(pod)
            if pod.group is not None:
                self._gang_entries.forget(pod)
        return pod

    def find(self, uid: str) -> QueuedPod | None:
        """The pod of this UID wherever it waits or flies; None if the queue does not know it."""
        return self._places.find(uid)

    # -- attempts -----------------------------------------------------------------------------------------------

    def pop(self) -> QueuedPod | None:
        """Take the pod that is next; its attempt is in flight until :meth:`done` or :meth:`failed`."""
        pod = self._places.take_first(_ACTIVE)
        if pod is None:
            pod = self._places.take_first(_BACKOFF)
            if pod is None:
                self._ready.clear()
                return None
            self._places.count_incoming(POPPED_FROM_BACKOFF, _ACTIVE)
        pod.attempts += 1
        if pod.rejected_by:
            self._places.absolve(pod)
            pod.rejected_by = pod.pending_on = frozenset()
        pod.backoff_until = 0.0
        self._in_flight.begin(pod.uid)
        self._places.fly(pod)
        return pod

    async def wait(self) -> None:
        """Wait until :meth:`pop` may have something."""
        await self._ready.wait()

    def is_in_flight(self, uid: str) -> bool:
        """Whether an attempt of this pod is under way."""
        pod = self.find(uid)
        return pod is not None and pod.place is _IN_FLIGHT

    def end_recording(self, uid: str) -> None:
        """From now on no event matters to the attempt of this pod, which goes on: it has passed Permit.

        Should it fail yet, the pod backs off and is retried, whoever is named as its rejector.
        """
        self._in_flight.end(uid)

    def done(self, uid: str) -> None:
        """An attempt has ended and the pod does not come back."""
        self._in_flight.end(uid)
        pod = self._places.find(uid)
        if pod is not None and pod.place is _IN_FLIGHT:
            self._places.drop(pod)

    def scheduled(self, pod: QueuedPod) -> None:
        """An attempt has ended with the pod bound."""
        if pod.was_flushed:
            self.scheduled_after_flush += 1
        self.done(pod.uid)

    def failed(self, pod: QueuedPod) -> None:
        """An attempt has failed; the pod waits again, where what happened meanwhile says, unless it was removed.

        ``rejected_by`` and ``pending_on`` tell who turned it away; nobody means an error or an empty cluster, after
        which only time helps.
        """
        events = self._in_flight.events_of(pod.uid)
        self._in_flight.end(pod.uid)
        if pod.place is not _IN_FLIGHT:
            return
        self._places.take(pod)
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
        self._places.blame(pod, pod.rejected_by)
        if isinstance(pod, QueuedGang):
            self._gang_entries.failed(pod, pod.timestamp)
        if (pod.group is not None or len(self.gangs)) and self._gang_entries.take_back(pod):
            return
        rules = self._rules(pod.profile)
        # Without a record (it was ended, or became too long) anything may have happened.
        verdict = Requeue.AFTER_BACKOFF if events is None or not pod.rejected_by else Requeue.STAY
        for seen in events or ():
            if rules is None or (verdict is not Requeue.STAY and not pod.pending_on):
                break
            judged = rules.judge(pod, seen.event, seen.old, seen.new)
            if judged is not Requeue.STAY:
                verdict = judged
            if verdict is Requeue.AT_ONCE:
                break
        self._moves.requeue(pod, verdict, ATTEMPT_FAILED)
        if isinstance(pod, QueuedGang):
            self._gang_entries.attempted(pod)

    # -- gangs --------------------------------------------------------------------------------------------------

    def gang_changed(self, gang: Gang) -> None:
        """A gang's members have changed: it may be tried now, or may not be tried any more."""
        self._gang_entries.review(gang)

    def group_changed(self, gang: Gang) -> None:
        """A gang's PodGroup has come, has changed or is gone: what was found by the old one is void."""
        self._gang_entries.group_changed(gang)

    def gang_stands_back(self, gang: Gang) -> None:
        """A gang has had its time: it waits behind its peers from now on."""
        self._gang_entries.stand_back(gang, self._clock.now())

    def domains_changed(self, labels: Collection[str]) -> None:
        """Nodes have other values of some labels: gangs that look for a domain by one of them may find one now."""
        self._gang_entries.domains_changed(labels)

    def source_changed(self, source: GroupSource) -> None:
        """Call when the PodGroups of a source become known, or are not known for another reason."""
        self._gang_entries.source_changed(source)

    def gang_placed(self, entry: QueuedGang, members: Sequence[QueuedPod]) -> None:
        """A gang's attempt has placed its quorum: each of ``members`` is in flight on its own from here on."""
        self._in_flight.end(entry.uid)
        self._gang_entries.concluded(entry, members)
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
        but: str = "",
        max_priority: int | None = None,
    ) -> None:
        """Something happened in the cluster: wake the pods that it may help, and keep it for those in flight.

        Args:
            event: What.
            old: The object before, None if it was added.
            new: The object after, None if it was deleted.
            but: The UID of a pod that is not woken by it.
            max_priority: The highest priority of pods that it may help; None for any.
        """
        if not (self._in_flight or self._places.size(_UNSCHEDULABLE) or self._places.size(_GATED)):
            return
        if not any(rules.interest(event) for rules in self._live.values()):
            return
        pods = [
            pod
            for pod in self._places.pods(*_ASIDE)
            if pod.uid != but and (max_priority is None or pod.info.priority <= max_priority)
        ]
        if pods:
            self._wake(pods, event, old, new)
        self._in_flight.note(event, old, new)

    def _wake(self, pods: Sequence[QueuedPod], event: ClusterEvent, old: object | None, new: object | None) -> None:
        label = label_of(event, old, new)
        interests = {name: rules.interest(event) for name, rules in self._live.items()}
        # A plugin's registrations in any profile count for the gates that it closes, as in the reference.
        asked = frozenset[str]().union(*(interest.plugins for interest in interests.values()))
        for pod in pods:
            if pod.place not in _ASIDE:
                # A gate that was asked for an earlier one has moved it.
                continue
            interest = interests.get(pod.profile)
            if interest is None or (pod.gated_by and pod.gated_by not in asked):
                # An event that its gate did not register cannot open it, whoever else would want it.
                continue
            verdict = interest.judge(pod, old, new)
            if verdict is not Requeue.STAY:
                self._places.take(pod)
                self._moves.requeue(pod, verdict, label)

    def activate(self, uids: Iterable[str]) -> None:
        """Move pods to the active queue, whatever rejected them, if their gates are open.

        One in flight is retried after backoff, should it fail.
        """
        for uid in uids:
            pod = self.find(uid)
            if pod is not None and pod.place is _GROUPED:
                pod = self._gang_entries.entry_of(pod)
            if pod is None:
                continue
            if pod.place in _ASIDE:
                self._moves.enter(pod, FORCE_ACTIVATE.name)
            elif pod.place in _BACKING_OFF:
                self._moves.end_backoff(pod, FORCE_ACTIVATE.name)
            elif pod.uid in self._in_flight:
                self._in_flight.note(FORCE_ACTIVATE, None, pod.info.pod)

    def profile_changed(self, profile: str) -> None:
        """A profile came, was replaced or went: its pods are tried again by its new rules, or parked."""
        rules = self._rules(profile)
        self._live.pop(profile, None)
        if rules is not None:
            self._live[profile] = rules
        self._gang_entries.profile_changed(profile)
        aside = [pod for pod in self._places.pods(*_ASIDE) if pod.profile == profile]
        parked = [pod for pod in self._places.pods(_PARKED) if pod.profile == profile]
        if rules is None:
            queued = [pod for pod in self._places.pods(_ACTIVE, *_BACKING_OFF) if pod.profile == profile]
            for pod in (*aside, *queued):
                self._moves.park(pod)
            self._places.forget_profile(profile)
        else:
            for pod in aside:
                self._places.take(pod)
                self._places.absolve(pod)
                pod.rejected_by = pod.pending_on = frozenset()
                self._moves.enter(pod, PROFILE_SWAPPED.name)
            for pod in parked:
                self._moves.enter(pod, POD_ADDED)
        for pod in self._places.pods(_IN_FLIGHT):
            if pod.profile == profile and pod.uid in self._in_flight:
                # Should it be rejected, then by plugins of the old revision, which nobody asks any more.
                self._in_flight.note(PROFILE_SWAPPED, None, pod.info.pod)

    def resort(self) -> None:
        """Order the queues anew: the QueueSort plugin was replaced."""
        for name in list(self._live):
            rules = self._rules(name)
            if rules is not None:
                self._live[name] = rules
        self._moves.reorder_all()

    def flush(self) -> None:
        """Retry pods that have been unschedulable for too long: a hint may have been wrong."""
        limit = self._clock.now() - self.max_unschedulable_seconds
        late = [pod for pod in self._places.pods(*_ASIDE) if pod.timestamp < limit]
        if not late:
            return
        for pod in late:
            pod.was_flushed = True
        self._wake(late, UNSCHEDULABLE_TIMEOUT, None, None)
        self._in_flight.note(UNSCHEDULABLE_TIMEOUT, None, None)

    def close(self) -> None:
        """Stop the timer."""
        self._moves.close()
