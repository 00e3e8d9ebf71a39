"""The queue: every pod that waits is in exactly one place.

Owns the places and the moves between them::

    add ──gate──▶ active ──pop──▶ in flight ──done──▶ (bound, gone)
      │             ▲  ▲             │ failed
      │ held back   │  └─ backoff ◀──┤ an event came meanwhile, or an error
      ▼             │        ▲       ▼
     gated ──event──┘        └── unschedulable   (woken by a hint, activation, or after the flush interval)

    parked: pods whose profile is not live; they go back to ``add`` when it comes

Must not know why pods fail. Time is the clock's; nothing here awaits but :meth:`SchedulingQueue.wait`.

Follows kube-scheduler v1.36.3 (``backend/queue``): errors back off apart from rejections, a pod whose rejecting plugin
answered Pending skips backoff, and when the active queue is empty the pod that is nearest the end of its backoff is
tried early rather than leave the scheduler idle.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from scheduler_core.framework.cluster_events import FORCE_ACTIVATE, PROFILE_SWAPPED, ClusterEvent
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.ports import Clock, Timer
from scheduler_core.queueing.heap import PodHeap
from scheduler_core.queueing.in_flight import InFlight
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.queueing.queueing_rules import QueueingRules, Requeue
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

FLUSH_INTERVAL_SECONDS = 30.0


@dataclass(slots=True)
class QueueCounts:
    """How many pods of one profile are where."""

    active: int = 0
    backoff: int = 0
    unschedulable: int = 0
    gated: int = 0

    @property
    def pending(self) -> int:
        """All of them."""
        return self.active + self.backoff + self.unschedulable + self.gated


RulesLookup = Callable[[str], QueueingRules | None]
"""The rules of a profile by its scheduler name; None while it is not live."""


class SchedulingQueue:
    """Pods that wait to be scheduled.

    Attributes:
        nominator: Promised nodes.
        max_unschedulable_seconds: How long a pod may stay unschedulable before it is tried again whatever hints say.
    """

    def __init__(self, rules: RulesLookup, clock: Clock, max_unschedulable_seconds: float = 300.0) -> None:
        self.nominator = NominatedPods()
        self.max_unschedulable_seconds = max_unschedulable_seconds
        self._rules = rules
        self._clock = clock
        self._active = PodHeap()
        self._backoff = PodHeap()
        self._error_backoff = PodHeap()
        self._unschedulable: dict[str, QueuedPod] = {}
        self._gated: dict[str, QueuedPod] = {}
        self._parked: dict[str, QueuedPod] = {}
        self._in_flight = InFlight()
        self._flying: dict[str, QueuedPod] = {}
        self._sequence = itertools.count()
        self._ready = asyncio.Event()
        self._backoff_timer: Timer | None = None
        self._backoff_due = 0.0

    # -- coming and going ---------------------------------------------------------------------------------------

    def add(self, info: PodInfo) -> None:
        """A pod that is not bound has come."""
        if self.find(info.uid) is not None:
            self.update(info)
            return
        self._enter(QueuedPod(info, self._clock.now(), next(self._sequence)))

    def update(self, info: PodInfo, events: Sequence[ClusterEvent] = (), old: object | None = None) -> None:
        """A waiting pod has changed.

        Args:
            info: The pod as it is now.
            events: What about it changed, as plugins name it.
            old: The pod as it was.
        """
        pod = self.find(info.uid)
        if pod is None:
            self.add(info)
            return
        pod.info = info
        new = info.pod
        for event in events:
            self._in_flight.note(event, old, new)
        if info.uid in self._gated:
            del self._gated[info.uid]
            self._enter(pod)
        elif info.uid in self._unschedulable:
            self._wake([pod], events, old, new)
        elif info.uid in self._active:
            self._active.remove(info.uid)
            self._push(pod)

    def remove(self, uid: str) -> QueuedPod | None:
        """A waiting pod is gone, or bound by someone else; one in flight will not come back when it fails."""
        self.nominator.withdraw(uid)
        for heap in (self._active, self._backoff, self._error_backoff):
            pod = heap.remove(uid)
            if pod is not None:
                return pod
        for place in (self._unschedulable, self._gated, self._parked, self._flying):
            pod = place.pop(uid, None)
            if pod is not None:
                return pod
        return None

    def find(self, uid: str) -> QueuedPod | None:
        """The pod of this UID wherever it waits or flies; None if the queue does not know it."""
        return (
            self._active.get(uid)
            or self._unschedulable.get(uid)
            or self._backoff.get(uid)
            or self._error_backoff.get(uid)
            or self._gated.get(uid)
            or self._flying.get(uid)
            or self._parked.get(uid)
        )

    # -- attempts -----------------------------------------------------------------------------------------------

    def pop(self) -> QueuedPod | None:
        """Take the pod that is next; its attempt is in flight until :meth:`done` or :meth:`failed`."""
        pod = self._active.pop() or self._backoff.pop()
        if pod is None:
            self._ready.clear()
            return None
        pod.attempts += 1
        pod.rejected_by = frozenset()
        pod.pending_on = frozenset()
        pod.backoff_until = 0.0
        if not pod.first_attempt:
            pod.first_attempt = self._clock.now()
        self._in_flight.begin(pod.uid)
        self._flying[pod.uid] = pod
        return pod

    async def wait(self) -> None:
        """Wait until :meth:`pop` may have something."""
        await self._ready.wait()

    def is_in_flight(self, uid: str) -> bool:
        """Whether an attempt of this pod is under way."""
        return uid in self._flying

    def done(self, uid: str) -> None:
        """An attempt has ended and the pod does not come back."""
        self._flying.pop(uid, None)
        self._in_flight.end(uid)

    def failed(self, pod: QueuedPod) -> None:
        """An attempt has failed; the pod waits again, where what happened meanwhile says, unless it was removed.

        ``rejected_by`` and ``pending_on`` tell who turned it away; nobody means an error or an empty cluster, after
        which only time helps.
        """
        uid = pod.uid
        events = self._in_flight.events_of(uid)
        removed = uid not in self._flying
        self.done(uid)
        if removed:
            return
        pod.timestamp = self._clock.now()
        if pod.rejected_by:
            pod.unschedulable_count += 1
            pod.error_count = 0
        else:
            pod.error_count += 1
        rules = self._rules(pod.profile)
        if rules is None:
            self._parked[uid] = pod
            return
        verdict = Requeue.STAY if pod.rejected_by else Requeue.AFTER_BACKOFF
        for seen in events:
            if verdict is Requeue.AT_ONCE or not pod.rejected_by:
                break
            judged = rules.judge(pod, seen.event, seen.old, seen.new)
            if judged is not Requeue.STAY:
                verdict = judged
        if verdict is Requeue.STAY:
            self._unschedulable[uid] = pod
        else:
            self._activate_or_back_off(pod, verdict)

    # -- moving -------------------------------------------------------------------------------------------------

    def on_event(self, event: ClusterEvent, old: object | None, new: object | None, but: str = "") -> None:
        """Something happened in the cluster: wake the pods that it may help, but the one of UID ``but``."""
        self._in_flight.note(event, old, new)
        if self._unschedulable or self._gated:
            pods = [pod for pod in (*self._unschedulable.values(), *self._gated.values()) if pod.uid != but]
            self._wake(pods, (event,), old, new)

    def activate(self, uids: Iterable[str]) -> None:
        """Move pods to the active queue, whatever rejected them; gated ones stay."""
        for uid in uids:
            pod = self._unschedulable.pop(uid, None) or self._backoff.remove(uid) or self._error_backoff.remove(uid)
            if pod is not None:
                self._enter(pod)
            elif uid in self._flying:
                self._in_flight.note(FORCE_ACTIVATE, None, self._flying[uid].info.pod)

    def profile_changed(self, profile: str) -> None:
        """A profile came, was replaced or went: its pods are tried again by its new rules, or parked."""
        places: tuple[dict[str, QueuedPod], ...] = (self._unschedulable, self._gated, self._parked)
        moving = [pod for place in places for pod in place.values() if pod.profile == profile]
        for pod in moving:
            for place in places:
                place.pop(pod.uid, None)
        if self._rules(profile) is None:
            for heap in (self._active, self._backoff, self._error_backoff):
                waiting = [pod for pod in heap if pod.profile == profile]
                moving += waiting
                for pod in waiting:
                    heap.remove(pod.uid)
        for pod in moving:
            pod.rejected_by = frozenset()
            self._enter(pod)
        for pod in self._flying.values():
            if pod.profile == profile:
                # Should it be rejected, then by plugins of the old revision, which nobody asks any more.
                self._in_flight.note(PROFILE_SWAPPED, None, pod.info.pod)

    def resort(self) -> None:
        """Order the active queue anew: the QueueSort plugin was replaced."""
        # A new heap: keys of two QueueSort plugins need not compare.
        waiting, self._active = list(self._active), PodHeap()
        for pod in waiting:
            self._push(pod)

    def flush(self) -> None:
        """Retry pods that have been unschedulable for too long: a hint may have been wrong."""
        limit = self._clock.now() - self.max_unschedulable_seconds
        for pod in [pod for pod in self._unschedulable.values() if pod.timestamp <= limit]:
            del self._unschedulable[pod.uid]
            self._activate_or_back_off(pod, Requeue.AFTER_BACKOFF)

    def _wake(
        self, pods: Sequence[QueuedPod], events: Sequence[ClusterEvent], old: object | None, new: object | None
    ) -> None:
        for event in events:
            for pod in pods:
                rules = self._rules(pod.profile)
                verdict = Requeue.STAY if rules is None else rules.judge(pod, event, old, new)
                if verdict is Requeue.STAY:
                    continue
                if self._unschedulable.pop(pod.uid, None) or self._gated.pop(pod.uid, None):
                    self._activate_or_back_off(pod, verdict)

    def _activate_or_back_off(self, pod: QueuedPod, verdict: Requeue) -> None:
        rules = self._rules(pod.profile)
        until = pod.timestamp + (0.0 if rules is None else rules.backoff(pod))
        if verdict is Requeue.AFTER_BACKOFF and until > self._clock.now():
            if not self._passes_gates(pod):
                return
            self._back_off(pod, until)
        else:
            self._enter(pod)

    def _enter(self, pod: QueuedPod) -> None:
        """Into the active queue, or among the gated or the parked."""
        if self._passes_gates(pod):
            self._push(pod)

    def _passes_gates(self, pod: QueuedPod) -> bool:
        """Whether the gates are open; if not, the pod is among the gated now, or parked."""
        rules = self._rules(pod.profile)
        if rules is None:
            self._parked[pod.uid] = pod
            return False
        status = rules.gate(pod)
        if status.is_success:
            pod.gated_by, pod.gate_reasons = "", ()
            return True
        pod.gated_by, pod.gate_reasons = status.plugin, status.reasons
        # Whoever rejected the pod before is still to be asked: the gate of a preemption opens by itself.
        pod.rejected_by |= {status.plugin}
        pod.timestamp = self._clock.now()
        self._gated[pod.uid] = pod
        return False

    def _push(self, pod: QueuedPod) -> None:
        rules = self._rules(pod.profile)
        assert rules is not None
        try:
            pod.sort_key = rules.sort_key(pod)
        except Exception:
            log.exception("the QueueSort plugin raised for pod %s; it is asked again after backoff", pod.info.key)
            pod.error_count += 1
            pod.timestamp = self._clock.now()
            self._back_off(pod, pod.timestamp + max(1.0, rules.backoff(pod)))
            return
        self._active.push(pod.sort_key, pod)
        self._ready.set()

    def _back_off(self, pod: QueuedPod, until: float) -> None:
        pod.backoff_until = until
        (self._error_backoff if pod.error_count else self._backoff).push(until, pod)
        self._schedule_backoff()
        if not pod.error_count:
            self._ready.set()

    def _schedule_backoff(self) -> None:
        keys = [key for heap in (self._backoff, self._error_backoff) if (key := heap.lowest_key()) is not None]
        if not keys:
            return
        due = min(keys)
        if self._backoff_timer is not None:
            if due >= self._backoff_due:
                return
            self._backoff_timer.cancel()
        self._backoff_due = due
        self._backoff_timer = self._clock.call_later(max(0.0, due - self._clock.now()), self._end_backoffs)

    def _end_backoffs(self) -> None:
        self._backoff_timer = None
        now = self._clock.now()
        for heap in (self._backoff, self._error_backoff):
            while (key := heap.lowest_key()) is not None and key <= now:
                pod = heap.pop()
                assert pod is not None
                self._push(pod)
        self._schedule_backoff()

    # -- looking ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[QueuedPod]:
        """Every pod that waits for a live profile; those in flight and those parked are left out."""
        yield from self._active
        yield from self._backoff
        yield from self._error_backoff
        yield from self._unschedulable.values()
        yield from self._gated.values()

    def __len__(self) -> int:
        waiting = len(self._active) + len(self._backoff) + len(self._error_backoff)
        return waiting + len(self._unschedulable) + len(self._gated)

    @property
    def parked_count(self) -> int:
        """Pods whose profile is not live."""
        return len(self._parked)

    @property
    def is_idle(self) -> bool:
        """Whether nothing can be tried before time passes or something happens."""
        return not (self._active or self._backoff or self._flying)

    @property
    def in_flight_count(self) -> int:
        """Attempts under way."""
        return len(self._flying)

    def counts(self) -> dict[str, QueueCounts]:
        """Counts by profile."""
        counts: dict[str, QueueCounts] = {}
        for place, pods in (
            ("active", self._active),
            ("backoff", itertools.chain(self._backoff, self._error_backoff)),
            ("unschedulable", self._unschedulable.values()),
            ("gated", self._gated.values()),
        ):
            for pod in pods:
                of_profile = counts.setdefault(pod.profile, QueueCounts())
                setattr(of_profile, place, getattr(of_profile, place) + 1)
        return counts

    def close(self) -> None:
        """Stop the timer."""
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
            self._backoff_timer = None
