"""The moves of pods between the places of the queue, and the timer that ends backoffs.

Owns what every move entails: the gates on the way in, the sort key, the backoff, the counts, the nomination that a pod
brings along. Must not know what happened in the cluster: :mod:`scheduler_core.queueing.scheduling_queue` decides who
moves.

Follows kube-scheduler v1.36.3 (``moveToActiveQ``, ``moveToBackoffQ``, ``backoff_queue.go``). It looks once a second for
pods whose backoff has ended; here a timer is set to the second in which the first of them does, which cannot be told
apart, since backoffs end on whole seconds there as here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from scheduler_core.framework.cluster_events import UNSCHEDULED_POD_ADD, UNSCHEDULED_POD_UPDATE
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.ports import Clock, Timer
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.queueing.places import Places
from scheduler_core.queueing.queueing_rules import QueueingRules, Requeue

log = logging.getLogger(__name__)

POD_ADDED = UNSCHEDULED_POD_ADD.name
POD_UPDATED = UNSCHEDULED_POD_UPDATE.name
_BRINGING_PROMISES = (POD_ADDED, POD_UPDATED)
ATTEMPT_FAILED = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POPPED_FROM_BACKOFF = "PopFromBackoffQ"

# Bound to names, because looking a member up in an enum is slow.
_ACTIVE, _STAY, _AT_ONCE = Place.ACTIVE, Requeue.STAY, Requeue.AT_ONCE
_NO_KEY: Any = object()

RulesLookup = Callable[[str], QueueingRules | None]
"""The rules of a profile by its scheduler name; None while it is not live."""


class Moves:
    """Moves pods that wait.

    Attributes:
        places: Where they are.
        nominator: Promised nodes.
        ready: Set while something may be there to be tried.
        gather: Takes a pod that is to wait with its gang and tells whether it did; None where there are no gangs.
        group_gate: Returns Success unless the PodGroup that a pod names is not known; None where there are no gangs.
    """

    def __init__(self, rules: RulesLookup, clock: Clock) -> None:
        self.places = Places()
        self.nominator = NominatedPods()
        self.ready = asyncio.Event()
        self._rules = rules
        self._clock = clock
        self._timer: Timer | None = None
        self._due = 0.0
        self.gather: Callable[[QueuedPod, str], bool] | None = None
        self.group_gate: Callable[[QueuedPod], Status] | None = None

    def requeue(self, pod: QueuedPod, verdict: Requeue, label: str) -> None:
        """Send a pod where ``verdict`` says; one whose backoff is over, or that has none, is active at once.

        Args:
            pod: The pod, wherever it is.
            verdict: Where to.
            label: The event by which it moves, for the counts.
        """
        rules = self._rules(pod.profile)
        if rules is None:
            self.park(pod)
        elif verdict is _STAY:
            self._put_aside(pod, Place.UNSCHEDULABLE, label)
        elif self._passes_gates(pod, rules, label):
            if pod.group is not None and self.gather is not None and self.gather(pod, label):
                if label in _BRINGING_PROMISES:
                    self.nominator.decide(pod.info, None)
            elif verdict is _AT_ONCE or rules.backoff_end(pod) <= self._clock.now():
                self._activate(pod, rules, label)
            else:
                self.places.take(pod)
                self._rank_in_backoff(pod, rules)
                self.places.count_incoming(label, Place.BACKOFF)

    def enter(self, pod: QueuedPod, label: str) -> None:
        """Send a pod into the active queue past its backoff, if its gates are open."""
        self.requeue(pod, Requeue.AT_ONCE, label)

    def end_backoff(self, pod: QueuedPod, label: str) -> None:
        """Send a pod that backs off into the active queue; its gates were open when it came to back off."""
        self._activate(pod, self._rules_of(pod), label)

    def park(self, pod: QueuedPod) -> None:
        """Put a pod aside whose profile is not live: nothing is known of it and nothing is kept for it."""
        self.places.take(pod)
        self.places.absolve(pod)
        pod.rejected_by = pod.pending_on = frozenset()
        pod.gated_by, pod.gate_reasons = "", ()
        self.nominator.withdraw(pod.uid)
        if type(pod) is QueuedGang:
            # Its members are parked themselves, and bring it back when they come back.
            self.places.drop(pod)
        else:
            self.places.hold(pod, Place.PARKED)

    def reorder(self, pod: QueuedPod) -> None:
        """Give a pod its new place in the order of the queue in which it is."""
        was_active, rules = pod.place is _ACTIVE, self._rules_of(pod)
        self.places.take(pod)
        if was_active:
            self._rank_active(pod, rules)
        else:
            self._rank_in_backoff(pod, rules)

    def reorder_all(self) -> None:
        """Order the queues by another QueueSort plugin."""
        active, backing_off = (list(self.places.pods(place)) for place in (_ACTIVE, Place.BACKOFF))
        # All are taken out first: keys of two QueueSort plugins need not compare.
        for pod in (*active, *backing_off):
            self.places.take(pod)
        for pod in active:
            self._rank_active(pod, self._rules_of(pod))
        for pod in backing_off:
            self._rank_in_backoff(pod, self._rules_of(pod))

    def _rules_of(self, pod: QueuedPod) -> QueueingRules:
        rules = self._rules(pod.profile)
        assert rules is not None, "pods of a profile that is not live are parked"
        return rules

    def _activate(self, pod: QueuedPod, rules: QueueingRules, label: str) -> None:
        self.places.take(pod)
        if not self._rank_active(pod, rules):
            return
        if not pod.first_attempt:
            pod.first_attempt = self._clock.now()
        self.places.count_incoming(label, _ACTIVE)
        # A gang's entry shows a copy of a member, which would keep its promise beside the member's own.
        if label in _BRINGING_PROMISES and type(pod) is not QueuedGang:
            self.nominator.decide(pod.info, None)

    def _passes_gates(self, pod: QueuedPod, rules: QueueingRules, label: str) -> bool:
        """Whether the gates are open; if not, the pod is among the gated now."""
        status = self._gate(pod, rules)
        if status.is_success:
            if pod.gated_by:
                pod.gated_by, pod.gate_reasons = "", ()
            return True
        pod.gated_by, pod.gate_reasons = status.plugin, status.reasons
        if status.plugin not in pod.rejected_by:
            # Whoever rejected the pod before is still to be asked: the gate of a preemption opens by itself.
            pod.rejected_by |= {status.plugin}
            self.places.blame(pod, (status.plugin,))
        self._put_aside(pod, Place.GATED, label)
        return False

    def _gate(self, pod: QueuedPod, rules: QueueingRules) -> Status:
        """Return Success, or what holds the pod back: its scheduling gates, its group, then the profile's plugins."""
        of_group = SUCCESS if pod.group is None or self.group_gate is None else self.group_gate(pod)
        if of_group.is_success or pod.info.pod.spec.scheduling_gates:
            of_rules = rules.gate(pod)
            return of_group if of_rules.is_success else of_rules
        return of_group

    def _put_aside(self, pod: QueuedPod, place: Place, label: str) -> None:
        was_aside = pod.place in (Place.UNSCHEDULABLE, Place.GATED)
        if pod.place is place:
            return
        self.places.take(pod)
        self.places.hold(pod, place)
        if not was_aside:
            self.places.count_incoming(label, place)

    # -- order --------------------------------------------------------------------------------------------------

    def _key_of(self, pod: QueuedPod, rules: QueueingRules) -> Any:
        """The QueueSort plugin's key; :data:`_NO_KEY` if it raised."""
        try:
            pod.sort_key = rules.sort_key(pod.sort_entry)
        except Exception:
            log.exception(
                "the QueueSort plugin raised for pod %s; it is asked again after backoff",
                pod.info.key,
                extra={"pod": pod.info.key},
            )
            return _NO_KEY
        return pod.sort_key

    def _rank_active(self, pod: QueuedPod, rules: QueueingRules) -> bool:
        """Put a pod that is nowhere into the active queue; whether it could be ordered there."""
        key = self._key_of(pod, rules)
        if key is _NO_KEY:
            self._delay(pod, rules)
            return False
        self.places.rank(pod, _ACTIVE, key)
        self.ready.set()
        return True

    def _delay(self, pod: QueuedPod, rules: QueueingRules) -> None:
        """Let a pod that cannot be ordered back off as after an error, at least for a second."""
        pod.error_count += 1
        pod.timestamp = self._clock.now()
        pod.backoff_until = 0.0
        pod.backoff_until = max(rules.backoff_end(pod), pod.timestamp + 1.0)
        self.places.rank(pod, Place.ERROR_BACKOFF, (pod.backoff_until,))
        self.places.count_incoming(ATTEMPT_FAILED, Place.ERROR_BACKOFF)
        self._schedule_backoff()

    # -- backoff ------------------------------------------------------------------------------------------------

    def _rank_in_backoff(self, pod: QueuedPod, rules: QueueingRules) -> None:
        """By the end of the backoff, then as in the active queue: who is first is tried when that is empty.

        After an error nothing is tried early: the scheduler rather idles than hammer an API server that is away.
        """
        key = self._key_of(pod, rules) if pod.rejected_by else _NO_KEY
        if key is _NO_KEY:
            self.places.rank(pod, Place.ERROR_BACKOFF, (pod.backoff_until,))
        else:
            self.places.rank(pod, Place.BACKOFF, (pod.backoff_until, key))
            self.ready.set()
        self._schedule_backoff()

    def _schedule_backoff(self) -> None:
        lowest = map(self.places.lowest_key, (Place.BACKOFF, Place.ERROR_BACKOFF))
        dues = [key[0] for key in lowest if key is not None]
        if not dues:
            return
        due = min(dues)
        if self._timer is not None:
            if due >= self._due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._clock.call_later(max(0.0, due - self._clock.now()), self._end_backoffs)

    def _end_backoffs(self) -> None:
        self._timer = None
        now = self._clock.now()
        for place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            while (key := self.places.lowest_key(place)) is not None and key[0] <= now:
                pod = self.places.take_first(place)
                assert pod is not None
                self.end_backoff(pod, BACKOFF_COMPLETE)
        self._schedule_backoff()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
