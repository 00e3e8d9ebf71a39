"""Events during attempts, and the queueing hints of waiting pods, which decide which of them an event requeues.

A pod that fails is requeued by the events of its own attempt, so that no event is missed between the pop and the
requeue. kube-scheduler v1.37.1 (``backend/queue/active_queue.go``) records them without a limit.

The hints of an event are called within a budget; pods for which it does not suffice are *behind*: further events are
logged for them and evaluated in order when the scheduling loop pops, again within a budget. Each event is evaluated
once for each pod that waited when it occurred, before the pod changes or is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.msgpack import Encoder

from scheduler_core.framework.cluster_events import ClusterEvent
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodSpec
from scheduler_core.queueing.queue_moves import Moves
from scheduler_core.queueing.queueing_rules import Interest, QueueingRules, Requeue
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter

BUDGET = 2_500
"""Cost of the hints between two pops, in calls of a hint for an ordinary pod: about 10 ms."""
MAX_EVENTS = 1_000
"""Maximum number of logged events; pods that are further behind are requeued without their hints."""

_BYTES_OF_CALL = 256
_ITEMS_OF_CALL = 8
_COST_OF_MOVE = 3
_CALLS_OF_STEP = 3
_FIRST_CALL = 8
_ASIDE = (Place.UNSCHEDULABLE, Place.GATED)
_RANKS = _STAY, _AFTER_BACKOFF, _AT_ONCE = (Requeue.STAY, Requeue.AFTER_BACKOFF, Requeue.AT_ONCE)
_encode = Encoder().encode


POD_POPPED = "PodPopped"
"""Label of an in-flight pod in kube-scheduler's metric of in-flight events."""

MAX_LOGGED_EVENTS = 10_000
"""Maximum number of events: at about 10 kB each 100 MB, or minutes of a busy cluster."""


class SeenEvent(Struct, frozen=True):
    """An event with its object before and after."""

    event: ClusterEvent
    old: object | None
    new: object | None


class InFlightEvents:
    """In-flight attempts whose events are recorded.

    Attributes:
        starts: By UID of the pod, the number of the first event of its attempt; only for reading.
    """

    __slots__ = ("_events", "_first", "_max_events", "starts")

    def __init__(self, max_events: int = MAX_LOGGED_EVENTS) -> None:
        self.starts: dict[str, int] = {}
        self._events: list[SeenEvent] = []
        self._first = 0
        self._max_events = max_events

    def __len__(self) -> int:
        return len(self.starts)

    def __contains__(self, uid: str) -> bool:
        return uid in self.starts

    @property
    def event_count(self) -> int:
        return len(self._events)

    def counts(self) -> dict[str, int]:
        """Return the number of recorded events by label, and of attempts as :data:`POD_POPPED`."""
        counts = Counter(seen.event.name for seen in self._events)
        if self.starts:
            counts[POD_POPPED] = len(self.starts)
        return dict(counts)

    def begin(self, uid: str) -> None:
        # Removed first, so that the dict stays in the order in which attempts began.
        self.starts.pop(uid, None)
        self.starts[uid] = self._first + len(self._events)

    def note(self, event: ClusterEvent, old: object | None, new: object | None) -> None:
        """Record an event if any attempt is in flight."""
        if not self.starts:
            return
        self._events.append(SeenEvent(event, old, new))
        if len(self._events) > self._max_events:
            # Attempts may take minutes (Permit). Pods that would need the older half are retried after backoff anyway.
            self._drop_older_half()

    @property
    def position(self) -> int:
        """Number of the next event."""
        return self._first + len(self._events)

    def events_of(self, uid: str, position: int = 0) -> list[SeenEvent] | None:
        """Return the events since the attempt of a pod began; None if they were not recorded completely.

        Args:
            position: Number of the first event to return, if the attempt began before it.
        """
        start = self.starts.get(uid)
        return None if start is None else self._events[max(start, position) - self._first :]

    def end(self, uid: str) -> None:
        """Stop recording for an attempt, and drop the events that no other attempt needs."""
        if self.starts.pop(uid, None) is not None and self._events:
            self._trim()

    def _trim(self) -> None:
        # The dict is in the order in which attempts began, so the first one is the oldest.
        end = self._first + len(self._events)
        oldest = next(iter(self.starts.values()), end)
        if oldest > self._first:
            del self._events[: oldest - self._first]
            self._first = oldest

    def _drop_older_half(self) -> None:
        cutoff = self._first + len(self._events) // 2
        for uid in [uid for uid, start in self.starts.items() if start < cutoff]:
            del self.starts[uid]
        self._trim()


class WaitingEvent(Struct):
    """An event for waiting pods.

    Attributes:
        only: UIDs of the pods that it concerns; None for all.
        cost: Cost that its objects add to each hint.
        interests: The registrations for it by profile.
        registered: Plugins that have registered for it in any profile.
    """

    event: ClusterEvent
    old: object | None
    new: object | None
    exclude: str = ""
    max_priority: int | None = None
    only: frozenset[str] | None = None
    cost: int = 0
    interests: dict[str, Interest] = {}
    registered: frozenset[str] = frozenset()

    def prepare(self, live: Mapping[str, QueueingRules]) -> None:
        """Look up the registrations of the live profiles."""
        self.interests = {name: rules.interest(self.event) for name, rules in live.items()}
        # A plugin's registrations in any profile count for its gates in all profiles, as in kube-scheduler.
        self.registered = frozenset[str]().union(*(interest.plugins for interest in self.interests.values()))
        self.cost = _cost_of_object(self.old) + _cost_of_object(self.new)

    def concerns(self, pod: QueuedPod) -> bool:
        """Return whether the event concerns a pod that waited when it occurred."""
        if self.only is not None and pod.uid not in self.only:
            return False
        return pod.uid != self.exclude and (self.max_priority is None or pod.info.priority <= self.max_priority)

    def interest_of(self, pod: QueuedPod) -> Interest | None:
        """Return the registrations of a pod's profile; None if they cannot requeue the pod."""
        interest, rejected_by = self.interests.get(pod.profile), pod.rejected_by
        if interest is None:
            return None
        if rejected_by and not interest.is_wildcard and interest.plugins.isdisjoint(rejected_by):
            return None
        if pod.gated_by and not interest.is_wildcard and pod.gated_by not in self.registered:
            # An event for which its gate is not registered cannot open the gate.
            return None
        return interest


class _Behind(Struct):
    """A pod for which events are not evaluated yet.

    Attributes:
        attempts: Its attempts when it fell behind; the next one will have seen all of the events.
        position: Number of the next event.
        member: For a gang, the index of the member for which hints are called next.
        verdict: The verdict of the members before it.
    """

    pod: QueuedPod
    attempts: int
    position: int
    member: int = 0
    verdict: Requeue = _STAY

    @property
    def is_over(self) -> bool:
        return self.pod.place not in _ASIDE or self.pod.attempts != self.attempts


class EventWakeups:
    """Evaluates events for waiting pods, and moves the pods that they may help.

    Attributes:
        budget: Cost of the hints between two calls of :meth:`advance`.
    """

    def __init__(self, moves: Moves, live: Mapping[str, QueueingRules], steps: StepCounter) -> None:
        self.budget = self.left = BUDGET
        self.max_events = MAX_EVENTS
        self._moves = moves
        self._live = live
        self._steps = steps
        self._log: list[WaitingEvent] = []
        self._first = 0
        self._behind: dict[str, _Behind] = {}

    @property
    def has_pending(self) -> bool:
        return bool(self._behind)

    def requeue(self, pods: Sequence[QueuedPod], happened: WaitingEvent) -> None:
        """Evaluate an event for the waiting pods that it concerns; they fall behind when the budget is used up."""
        happened.prepare(self._live)
        behind, is_logged = self._behind, False
        for pod in pods:
            # The gate of an earlier pod may have moved it.
            interest = happened.interest_of(pod) if pod.place in _ASIDE else None
            if interest is None:
                continue
            entry = behind.get(pod.uid) if behind else None
            if entry is None or entry.pod is not pod or entry.is_over:
                info = pod.info
                is_known = info.is_findable and info.hint_cost and type(pod) is not QueuedGang
                cost = happened.cost + (info.hint_cost if is_known else cost_of_hints(pod))
                # One event concerns all waiting pods, and a pod may have hundreds of terms that its hints compare.
                if cost <= self.left:
                    self.left -= cost
                    try:
                        verdict = interest.evaluate(pod, happened.old, happened.new)
                        if verdict is not _STAY:
                            self._move(pod, verdict, happened.event)
                    except Exception as fault:
                        self._moves.delay_faulty(pod, fault)
                    continue
                behind[pod.uid] = _Behind(pod, pod.attempts, self._first + len(self._log))
            is_logged = True
        if is_logged:
            # Not a whole budget, by which the next pop sees that there is work.
            self.left = min(self.left, self.budget - 1)
            self._log.append(happened)
            if len(self._log) > self.max_events:
                self._drop((self.max_events + 1) // 2)
            self._moves.ready.set()

    def rules_changed(self) -> None:
        """Look up the registrations for the logged events again."""
        for happened in self._log:
            happened.prepare(self._live)

    def advance(self) -> None:
        """Evaluate logged events within a new budget."""
        self.left = self.budget
        while self._behind and self.left > 0:
            self._advance(next(iter(self._behind.values())))
        if not self._behind and self._log:
            self._drop(len(self._log))

    def catch_up(self, pod: QueuedPod) -> None:
        """Evaluate the events that are logged for a pod, before it changes."""
        entry, left = self._behind.get(pod.uid), self.left
        if entry is None:
            return
        self.left = BUDGET
        self._advance(entry)
        if self._behind.get(pod.uid) is entry:
            # Its hints exceed a budget, so it is requeued without them: a position before the log does that.
            entry.position = self._first - 1
            self.left = 1
            self._advance(entry)
        self.left = left

    def verdict_of_attempt(self, pod: QueuedPod, rules: QueueingRules, events: Iterable[SeenEvent]) -> Requeue:
        """Return the verdict of the events that occurred during an attempt that failed."""
        verdict, spent = _STAY, 0
        for seen in events:
            interest = rules.interest(seen.event)
            if pod.rejected_by and not interest.is_wildcard and interest.plugins.isdisjoint(pod.rejected_by):
                continue
            of_objects = _cost_of_object(seen.old) + _cost_of_object(seen.new)
            for info in pod.hint_pods:
                by_event = interest.evaluate(pod, seen.old, seen.new, (info,))
                if by_event is not _STAY:
                    verdict = by_event
                    if verdict is _AT_ONCE or not pod.pending_on:
                        return verdict
                cost = of_objects + _cost_of(info)
                spent += cost
                # A scheduling cycle is interrupted where a slice is used up. Where nothing can be interrupted, such as
                # in a binding cycle, a pod whose hints exceed the budget is requeued without them.
                if spent > self.budget and self._steps.on_slice_end is None:
                    return _AFTER_BACKOFF
                self._steps.upkeep(1 + cost // _CALLS_OF_STEP)
        return verdict

    def _advance(self, entry: _Behind) -> None:
        """Evaluate events for one pod, until the last one or until the budget is used up."""
        pod = entry.pod
        while self.left > 0:
            number = entry.position - self._first
            if entry.is_over or number == len(self._log):
                del self._behind[pod.uid]
                return
            # Below 0 if the log was cut off before the pod had seen the event.
            happened = self._log[max(number, 0)]
            try:
                verdict = _AFTER_BACKOFF if number < 0 else self._next_verdict(entry, happened)
                if verdict is not _STAY:
                    del self._behind[pod.uid]
                    self._move(pod, verdict, happened.event)
                    return
            except Exception as fault:
                self._behind.pop(pod.uid, None)
                self._moves.delay_faulty(pod, fault)
                return

    def _next_verdict(self, entry: _Behind, happened: WaitingEvent) -> Requeue:
        """Call the hints of one event for a pod or member of a gang; the verdict is Stay before the last member's."""
        pod = entry.pod
        interest = happened.interest_of(pod) if happened.concerns(pod) else None
        if interest is None:
            self.left -= 1
            entry.position += 1
            return _STAY
        if type(pod) is not QueuedGang:
            self.left -= happened.cost + _cost_of(pod.info)
            entry.position += 1
            return interest.evaluate(pod, happened.old, happened.new)
        # One member in a call: the hints of a large gang may exceed the budget.
        infos = tuple(pod.hint_pods)
        info = infos[entry.member]
        self.left -= happened.cost + _cost_of(info)
        by_member = interest.evaluate(pod, happened.old, happened.new, (info,))
        verdict = max(entry.verdict, by_member, key=_RANKS.index)
        is_decided = verdict is _AT_ONCE or (verdict is _AFTER_BACKOFF and not pod.pending_on)
        if not is_decided and entry.member + 1 < len(infos):
            entry.member, entry.verdict = entry.member + 1, verdict
            return _STAY
        entry.position, entry.member, entry.verdict = entry.position + 1, 0, _STAY
        return verdict

    def _move(self, pod: QueuedPod, verdict: Requeue, event: ClusterEvent) -> None:
        self.left -= _COST_OF_MOVE
        self._moves.places.take(pod)
        self._moves.requeue(pod, verdict, event.name)

    def _drop(self, count: int) -> None:
        del self._log[:count]
        self._first += count


def _size(spec: PodSpec) -> int:
    """Return the encoded size of a spec, in bytes."""
    try:
        # Encoding is fast, and the size grows with the number of terms.
        return len(_encode(spec))
    except OverflowError:
        # A number may have any size, and the encoding has 64 bits for it.
        return len(repr(spec))


def cost_of_hints(pod: QueuedPod) -> int:
    """Return the cost of the hints for a waiting pod or gang, in calls of a hint for an ordinary pod."""
    if type(pod) is QueuedGang:
        return sum(map(_cost_of, pod.hint_pods))
    return _cost_of(pod.info)


def _cost_of(info: PodInfo) -> int:
    cost = info.hint_cost
    if not cost:
        cost = info.hint_cost = 1 + _size(info.pod.spec) // _BYTES_OF_CALL
    if cost > 1 and not info.is_findable:
        # The first call compiles what the next ones read.
        return cost * _FIRST_CALL
    return cost


def _cost_of_object(changed: object | None) -> int:
    """Return the cost that an object adds; hints read lists of pods and nodes."""
    if isinstance(changed, Pod):
        return _size(changed.spec) // _BYTES_OF_CALL
    if isinstance(changed, Node):
        return (len(changed.spec.taints) + len(changed.status.allocatable)) // _ITEMS_OF_CALL
    return 0
