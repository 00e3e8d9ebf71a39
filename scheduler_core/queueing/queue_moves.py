"""Moves of pods between the places of the queue, and the timer that ends backoffs.

A move runs the gates, computes the sort key and the backoff, updates the counts, and takes over the pod's nomination.
:mod:`scheduler_core.queueing.scheduling_queue` decides which pods move.

Follows kube-scheduler v1.37.1 (``moveToActiveQ``, ``moveToBackoffQ``, ``backoff_queue.go``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from scheduler_core.errors import error_message
from scheduler_core.framework.cluster_events import UNSCHEDULED_POD_ADD
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING, SUCCESS, Status
from scheduler_core.ports import Clock, Timer
from scheduler_core.queueing.queueing_rules import QueueingRules, Requeue
from scheduler_core.queueing.sub_queues import Places, SortKeys
from scheduler_core.snapshot.pod_info import PodInfo

if TYPE_CHECKING:
    from scheduler_core.queueing.gang_entries import GangEntries

log = logging.getLogger(__name__)

POD_ADDED = UNSCHEDULED_POD_ADD.name
ATTEMPT_FAILED = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POPPED_FROM_BACKOFF = "PopFromBackoffQ"

# Bound to names, because looking a member up in an enum is slow.
_ACTIVE, _STAY, _AT_ONCE = Place.ACTIVE, Requeue.STAY, Requeue.AT_ONCE
_RANKED = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
_NO_KEY: Any = object()
_RETRY_SECONDS = 1.0
_EARLY_SECONDS = 0.000_001

NominationListener = Callable[[PodInfo, str], None]
"""Called with a pod whose nomination ends, and its nominated node."""

RulesLookup = Callable[[str], QueueingRules | None]
"""Returns the rules of a profile by its scheduler name; None if it is not live."""

MOVES = 800
"""Moves of pods between two pops: about 10 ms."""

Move = tuple[Callable[[Any], object], Any, int]
"""A function, its argument, and the number of pods that it moves; it is called again while it returns true."""


class Moves:
    """Moves pods that wait.

    Attributes:
        ready: Set while a pod may be ready to pop.
    """

    def __init__(self, rules: RulesLookup, clock: Clock, membership: GangEntries) -> None:
        self.places = Places()
        self.nominator = NominatedPods(membership.group_priority)
        self.ready = asyncio.Event()
        self.pending = PendingMoves(self.ready)
        self.on_error: list[Callable[[QueuedPod, str], None]] = []
        self.on_odd_key: list[Callable[[QueuedPod, str], None]] = []
        self._sort_keys = SortKeys()
        self._rules = rules
        self._clock = clock
        self._timer: Timer | None = None
        self._due = 0.0
        self._membership = membership

    def requeue(self, pod: QueuedPod, verdict: Requeue, label: str) -> None:
        """Move a pod by a verdict; a pod without remaining backoff becomes active at once."""
        try:
            self._requeue(pod, verdict, label)
        except Exception as fault:
            # It delays this pod only, so that one event always moves all other pods.
            self.delay_faulty(pod, fault)

    def _requeue(self, pod: QueuedPod, verdict: Requeue, label: str) -> None:
        pod.is_faulty = False
        rules = self._rules(pod.profile)
        if rules is None:
            self.park(pod)
            return
        if (
            label == POD_ADDED
            and type(pod) is not QueuedGang
            and ((pod.group is None and not self._membership.gates_strangers) or self._membership.gate(pod).is_success)
        ):
            # A gated pod has its nominated node too. A gang's entry has a copy of a member, not a pod of its own.
            self.nominator.decide(pod.info, None)
        if verdict is _STAY:
            self._put_aside(pod, Place.UNSCHEDULABLE, label)
        elif self._passes_gates(pod, rules, label):
            if pod.group is not None and self._membership.gather(pod, label):
                return
            if verdict is _AT_ONCE or rules.backoff_end(pod) <= self._clock.now():
                self._activate(pod, rules, label)
            else:
                self.places.take(pod)
                self._rank_in_backoff(pod, rules)
                self.places.count_incoming(pod, label, Place.BACKOFF)

    def enter(self, pod: QueuedPod, label: str) -> None:
        """Move a pod into the active queue without backoff, if its gates are open."""
        self.requeue(pod, Requeue.AT_ONCE, label)

    def end_backoff(self, pod: QueuedPod, label: str) -> None:
        """Move a pod from backoff into the active queue; its gates were open before the backoff."""
        try:
            rules = self._rules(pod.profile)
            if rules is None or pod.is_faulty:
                self._requeue(pod, _AT_ONCE, label)
            else:
                self._activate(pod, rules, label)
        except Exception as fault:
            self.delay_faulty(pod, fault)

    def park(self, pod: QueuedPod) -> None:
        """Park a pod whose profile is not live; its rejections and nomination are dropped."""
        self.places.take(pod)
        self.places.clear_rejections(pod)
        pod.gated_by, pod.gate_reasons = "", ()
        pod.is_nomination_withheld = False
        self.nominator.withdraw(pod.uid)
        if pod.group is not None:
            self._membership.note_gate(pod, is_closed=False)
        if type(pod) is QueuedGang:
            # Its members are parked themselves; regrouping them creates the entry again.
            self.places.drop(pod)
        else:
            self.places.put(pod, Place.PARKED)
            if pod.group is not None:
                # After note_gate, which counts the pod among the members that can be attempted again.
                self._membership.note_parked(pod)

    def apply_new_gates(self, pod: QueuedPod, label: str) -> None:
        """Gate a pod that is active or backs off, if a gate of the new revision of its profile is closed."""
        # The members of a gang have passed their gates before its entry.
        if type(pod) is not QueuedGang and pod.place in _RANKED:
            rules = self._rules(pod.profile)
            if rules is None:
                self.park(pod)
            else:
                self._passes_gates(pod, rules, label)

    def withhold_nomination(self, pod: QueuedPod) -> None:
        """End the nomination of a gated pod; the nomination in the pod's status counts when the gate opens."""
        # After a restart with a new revision, kube-scheduler counts no nominations of gated pods either.
        pod.is_nomination_withheld = True
        self.nominator.withdraw(pod.uid)

    def reorder(self, pod: QueuedPod) -> None:
        try:
            rules = self._rules(pod.profile)
            if rules is None:
                # The profile was withdrawn, and the move that parks the pod is pending.
                self.park(pod)
                return
            is_active = pod.place is _ACTIVE
            self.places.take(pod)
            if is_active:
                self._rank_active(pod, rules)
            else:
                self._rank_in_backoff(pod, rules)
        except Exception as fault:
            self.delay_faulty(pod, fault)

    def reorder_all(self) -> None:
        """Reorder the queues by another QueueSort plugin."""
        queued = list(self.places.pods(_ACTIVE, Place.BACKOFF))
        self._sort_keys = SortKeys()
        # No order is left of the former plugin: keys of two plugins may not be comparable.
        self.places.drop_order()
        self.pending.start((self._reorder_again, pod, 1) for pod in queued)

    def _reorder_again(self, pod: QueuedPod) -> None:
        if pod.place is _ACTIVE or pod.place is Place.BACKOFF:
            self.reorder(pod)

    def _activate(self, pod: QueuedPod, rules: QueueingRules, label: str) -> None:
        self.places.take(pod)
        if not self._rank_active(pod, rules):
            return
        if not pod.first_attempt:
            pod.first_attempt = self._clock.now()
        self.places.count_incoming(pod, label, _ACTIVE)

    def _passes_gates(self, pod: QueuedPod, rules: QueueingRules, label: str) -> bool:
        """Return whether the gates are open; move the pod to the gated pods otherwise."""
        status = self._gate(pod, rules)
        if status.is_success:
            if pod.gated_by:
                pod.gated_by, pod.gate_reasons = "", ()
            if pod.is_nomination_withheld:
                pod.is_nomination_withheld = False
                self.nominator.decide(pod.info, None)
            if pod.group is not None:
                self._membership.note_gate(pod, is_closed=False)
            return True
        if pod.is_faulty:
            # The plugin raised. Perhaps no event opens its gate, so each flush calls it again.
            self._notify(self.on_error, pod, status.message)
        # A pod whose gate is still closed for the same reason is not reported again.
        is_same = pod.gated_by == status.plugin and pod.gate_reasons == status.reasons
        pod.gated_by, pod.gate_reasons = status.plugin, status.reasons
        if status.plugin == GANG_SCHEDULING:
            # Its PodGroup is not known; whichever gate opens last, the nomination in the status counts again then.
            pod.is_nomination_withheld = True
        pod.was_flushed = False
        if status.plugin not in pod.rejected_by:
            # Earlier rejecting plugins stay recorded: the gate of a preemption opens by itself.
            pod.rejected_by |= {status.plugin}
            self.places.count_rejections(pod)
        self._put_aside(pod, Place.GATED, label)
        if pod.group is not None:
            self._membership.note_gate(pod, is_closed=status.plugin != GANG_SCHEDULING)
        if not is_same and status.plugin != GANG_SCHEDULING:
            self._membership.report_gated(pod)
        return False

    def _gate(self, pod: QueuedPod, rules: QueueingRules) -> Status:
        """Return Success, or the first rejection: by scheduling gates, the pod's group, the profile's plugins."""
        of_group = SUCCESS
        if pod.group is not None or self._membership.gates_strangers:
            of_group = self._membership.gate(pod)
        if of_group.is_success or pod.info.pod.spec.scheduling_gates:
            of_rules = rules.gate(pod)
            return of_group if of_rules.is_success else of_rules
        return of_group

    def _put_aside(self, pod: QueuedPod, place: Place, label: str) -> None:
        # Gated pods count as unschedulable in the metric of incoming pods.
        was_aside = pod.place in (Place.UNSCHEDULABLE, Place.GATED)
        if pod.place is place:
            return
        self.places.take(pod)
        self.places.put(pod, place)
        if not was_aside:
            self.places.count_incoming(pod, label, place)

    # -- order --------------------------------------------------------------------------------------------------

    def _key_of(self, pod: QueuedPod, rules: QueueingRules) -> Any:
        """Return the QueueSort plugin's key in comparable form; :data:`_NO_KEY` if the plugin raised."""
        try:
            pod.sort_key = rules.sort_key(pod.sort_entry)
            if rules.are_keys_plain:
                return pod.sort_key
            key, problem = self._sort_keys.comparable(pod.sort_key)
        except Exception as fault:
            log.exception(
                "the QueueSort plugin raised for pod %s; it is called again after backoff",
                pod.info.key,
                extra={"pod": pod.info.key},
            )
            self._notify(self.on_error, pod, f"the QueueSort plugin raised {type(fault).__name__}: {fault}")
            return _NO_KEY
        if problem:
            text = "the sort key of pod %s does not compare with those of other pods (%s); its kind decides the order"
            log.warning(text, pod.info.key, problem, extra={"pod": pod.info.key})
            self._notify(self.on_odd_key, pod, problem)
        return key

    def _notify(self, listeners: list[Callable[[QueuedPod, str], None]], pod: QueuedPod, message: str) -> None:
        for listener in listeners:
            try:
                listener(pod, message)
            except Exception:
                # It reports only: the move of the pod, of which this is a part, must not be lost.
                log.exception("an error of pod %s could not be reported", pod.info.key, extra={"pod": pod.info.key})

    def delay_faulty(self, pod: QueuedPod, fault: Exception) -> None:
        """Move a pod whose own move raised into backoff, as after an error, and report it."""
        text = "moving pod %s in the queue failed in the scheduler itself; it is tried again after backoff"
        log.error(text, pod.info.key, exc_info=fault, extra={"pod": pod.info.key})
        if self.places.find(pod.uid) is pod and pod.place is not Place.IN_FLIGHT:
            rules = self._rules(pod.profile)
            self.places.take(pod)
            self.places.clear_rejections(pod)
            pod.gated_by, pod.gate_reasons = "", ()
            pod.is_faulty = True
            if rules is not None:
                self._delay(pod, rules)
            elif type(pod) is QueuedGang:
                self.places.drop(pod)
            else:
                # As park does, which may have raised.
                pod.is_nomination_withheld = False
                self.nominator.withdraw(pod.uid)
                self.places.put(pod, Place.PARKED)
            if pod.group is not None:
                self._membership.delayed(pod)
                if pod.place is Place.PARKED:
                    self._membership.note_parked(pod)
        self._notify(self.on_error, pod, error_message(fault))

    def _rank_active(self, pod: QueuedPod, rules: QueueingRules) -> bool:
        """Add a pod that is in no place to the active queue; return False if it could not be ordered."""
        key = self._key_of(pod, rules)
        if key is _NO_KEY:
            self._delay(pod, rules)
            return False
        self.places.rank(pod, _ACTIVE, key)
        self.ready.set()
        return True

    def _delay(self, pod: QueuedPod, rules: QueueingRules) -> None:
        """Move a pod that cannot be ordered into backoff as after an error, for at least a second."""
        pod.error_count += 1
        pod.timestamp = self._clock.now()
        # For a second, even in a profile without backoff: the pod would be tried in an endless loop otherwise.
        pod.backoff_until = 0.0
        pod.backoff_until = max(rules.backoff_end(pod), pod.timestamp + 1.0)
        self.places.rank(pod, Place.ERROR_BACKOFF, (pod.backoff_until,))
        self.places.count_incoming(pod, ATTEMPT_FAILED, Place.ERROR_BACKOFF)
        self._schedule_backoff()

    # -- backoff ------------------------------------------------------------------------------------------------

    def _rank_in_backoff(self, pod: QueuedPod, rules: QueueingRules) -> None:
        """Order a pod by the end of its backoff, then as in the active queue; the first may be tried early."""
        # After an error no pod is tried early, so that an unavailable API server is not overloaded; nor is one whose
        # attempt was given up, because pods that arrive meanwhile would wait for it.
        key = self._key_of(pod, rules) if pod.rejected_by and not pod.was_given_up else _NO_KEY
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
        # kube-scheduler checks once a second for ended backoffs. A timer is equivalent, because backoffs end on whole
        # seconds.
        due = min(dues)
        if self._timer is not None:
            if due >= self._due:
                return
            # A cancelled timer must not count as set if the next line raises.
            timer, self._timer = self._timer, None
            timer.cancel()
        self._timer = self._clock.call_later(max(0.0, due - self._clock.now()), self._end_backoffs)
        self._due = due

    def _end_backoffs(self) -> None:
        self._timer = None
        # The event loop runs timers a little early, and one that is set again for less than its resolution never ends.
        self.pending.start(((self._end_backoff_of_next, self._clock.now() + _EARLY_SECONDS, 1),))

    def _end_backoff_of_next(self, now: float) -> bool:
        """End the backoff of one pod; set the timer and return False if none is left that ended before ``now``."""
        try:
            for place in (Place.BACKOFF, Place.ERROR_BACKOFF):
                key = self.places.lowest_key(place)
                if key is not None and key[0] <= now:
                    pod = self.places.take_first(place)
                    assert pod is not None
                    try:
                        self.end_backoff(pod, BACKOFF_COMPLETE)
                    except Exception as fault:
                        self.delay_faulty(pod, fault)
                    return True
        except Exception:
            # The timer below must be set, or no backoff would end again.
            log.exception("the end of backoffs failed in the scheduler itself; please report it")
        self.restart_timer()
        return False

    def restart_timer(self) -> None:
        """Set the timer to the end of the first backoff, unless it is set; it must run while any pod backs off."""
        try:
            self._schedule_backoff()
        except Exception:
            log.exception("the timer of backoffs could not be set; it is set again in a second")
            self._timer = self._clock.call_later(_RETRY_SECONDS, self._end_backoffs)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PendingMoves:
    """Moves of many pods, made in slices between which the event loop runs.

    A profile swap, another QueueSort plugin, an activation or the end of backoffs may move all pods of the queue. While
    any move is pending, no pod is popped; kube-scheduler v1.37.1 holds the lock of the queue instead.

    Attributes:
        budget: Number of moves between two calls of :meth:`advance`.
        moves: The moves, in order; only for reading.
    """

    __slots__ = ("_is_running", "_ready", "budget", "left", "moves")

    def __init__(self, ready: asyncio.Event, budget: int = MOVES) -> None:
        self.budget = self.left = budget
        self.moves: deque[Move] = deque()
        self._ready = ready
        self._is_running = False

    def start(self, moves: Iterable[Move]) -> None:
        """Make moves behind those that are pending, as far as the budget suffices; :meth:`advance` makes the others."""
        self.moves.extend(moves)
        if self.moves:
            # Set first: if a move raises, the next pop makes the others.
            self._ready.set()
            if not self._is_running:
                self._run()

    def advance(self) -> bool:
        """Make moves within a new budget; return whether none is pending."""
        self.left = self.budget
        if self.moves:
            self._run()
        return not self.moves

    def _run(self) -> None:
        # A move may start others, such as those of a plugin that activates pods; they follow when it has ended.
        moves, self._is_running = self.moves, True
        try:
            while moves and self.left > 0:
                # Other changes do not wait, so a move looks up the place and the profile of its pod when it is made.
                move, subject, cost = moves[0]
                self.left -= cost
                again: object = False
                try:
                    try:
                        again = move(subject)
                    except Exception:
                        # Pods whose move is lost would wait permanently.
                        log.exception("a move in the queue failed in the scheduler itself; it is repeated")
                        again = move(subject)
                finally:
                    if not again:
                        moves.popleft()
        finally:
            self._is_running = False
