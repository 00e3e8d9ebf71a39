"""A plain model of the scheduling queue, to compare the real one with.

Owns kube-scheduler v1.36.3's rules (``backend/queue``) as lists that are searched from end to end: every attempt has
its own record of events, backoffs are looked at once a second. It must not share code with the queue that it judges,
but for the events' own ``covers``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from scheduler_core.framework.cluster_events import UNSCHEDULABLE_TIMEOUT, ClusterEvent, Resource
from scheduler_core.model.pod import Pod

ASIDE = ("unschedulable", "gated")
WAITING = ("active", "backoff", "errorBackoff", *ASIDE)

Wishes = dict[str, list[tuple[ClusterEvent, Callable[[], bool]]]]
"""Events by plugin, with whether it wants a pod retried now."""


@dataclass
class PlainPod:
    """A pod and its history."""

    pod: Pod
    timestamp: float
    number: int
    place: str = ""
    failures: int = 0
    errors: int = 0
    rejected_by: set[str] = field(default_factory=set)
    pending_on: set[str] = field(default_factory=set)
    gated_by: str = ""
    flushed: bool = False
    flushed_at: float = 0.0
    is_withheld: bool = False
    record: list[tuple[ClusterEvent, object]] | None = None
    """What happened since its attempt began; None without an attempt, or when it is not recorded any more."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def order(self) -> tuple[int, float, int]:
        return -(self.pod.spec.priority or 0), self.timestamp, self.number

    def expiry(self) -> float:
        """The window in which the backoff ends; below all others if there is none."""
        count = self.errors or self.failures
        return math.floor(self.timestamp + min(2 ** (count - 1), 10)) if count else -1.0


class PlainQueue:
    """Pods by UID, each of which says where it is; a gate holds pods with a label of its name."""

    def __init__(self, gates: Sequence[str], wishes: Wishes, now: float) -> None:
        self.gates, self.wishes, self.now = gates, wishes, now
        self.pods: dict[str, PlainPod] = {}
        self.nominations: dict[str, str] = {}
        self.live: set[str] = set()
        self.incoming: Counter[tuple[str, str]] = Counter()
        self.after_flush = 0
        self._number = 0

    def places(self) -> dict[str, str]:
        return {uid: each.place for uid, each in self.pods.items()}

    def blamed(self) -> Counter[tuple[str, str]]:
        waiting = [each for each in self.pods.values() if each.place in WAITING]
        return Counter((plugin, each.pod.spec.scheduler_name) for each in waiting for plugin in each.rejected_by)

    # -- what happens -------------------------------------------------------------------------------------------

    def come(self, pod: Pod) -> None:
        self._number += 1
        each = self.pods[pod.metadata.uid] = PlainPod(pod, self.now, self._number)
        self._follow(each)
        self._to_active(each, "UnscheduledPodAdd")

    def change(self, pod: Pod, events: Sequence[ClusterEvent]) -> None:
        each = self.pods.get(pod.metadata.uid)
        if each is None:
            self.come(pod)
            return
        old, each.pod = each.pod, pod
        if each.place == "inFlight":
            if each.record is not None:
                self._record(*((event, pod) for event in events))
            return
        if each.place == "parked":
            return
        never_written = not old.status.nominated_node_name and not pod.status.nominated_node_name
        if not (each.is_withheld or (never_written and each.uid in self.nominations)):
            self._follow(each)
        if each.place in ASIDE:
            for event in events:
                strategy = self._judge(each, event, pod)
                if strategy != "stay":
                    self._requeue(each, strategy, event.name)
                if each.place not in ASIDE:
                    break

    def go(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.nominations.pop(uid, None)

    def pop(self) -> str:
        for place in ("active", "backoff"):
            there = [each for each in self.pods.values() if each.place == place]
            if there:
                first = min(there, key=lambda each: ((each.expiry(),) if place == "backoff" else ()) + each.order)
                if place == "backoff":
                    self.incoming["PopFromBackoffQ", "active"] += 1
                first.place, first.record = "inFlight", []
                first.rejected_by, first.pending_on = set(), set()
                return first.uid
        return ""

    def passed_permit(self, uid: str) -> None:
        self.pods[uid].record = None

    def bound(self, uid: str) -> None:
        self.after_flush += self.pods[uid].flushed
        self.go(uid)

    def fail(self, uid: str, by: set[str], pending: set[str]) -> None:
        each = self.pods.get(uid)
        if each is None or each.place != "inFlight":
            return
        record, each.record = each.record, None
        each.rejected_by, each.pending_on = by | pending, set(pending)
        each.place, each.timestamp, each.flushed, each.flushed_at = "", self.now, False, 0.0
        if each.rejected_by:
            each.failures, each.errors = each.failures + 1, 0
        else:
            each.errors += 1
        if record is None or not each.rejected_by:
            strategy = "backoff"
        else:
            judged = {self._judge(each, event, new) for event, new in record}
            strategy = "now" if "now" in judged else "backoff" if "backoff" in judged else "stay"
        self._requeue(each, strategy, "ScheduleAttemptFailure")
        if each.place == "gated" and any(event.name == "ProfileSwapped" for event, _ in record or ()):
            each.is_withheld = True
            self.nominations.pop(each.uid, None)

    def happen(self, event: ClusterEvent, new: object = None, highest: int = 2**31) -> None:
        everyone = event.resource is Resource.WILDCARD
        registered = [wish for wishes in self.wishes.values() for wish, _ in wishes]
        if self.live and (everyone or any(wish.covers(event) for wish in registered)):
            aside = [each for each in self.pods.values() if each.place in ASIDE]
            self._move([each for each in aside if (each.pod.spec.priority or 0) <= highest], event, new)

    def flush(self) -> None:
        aside = [each for each in self.pods.values() if each.place in ASIDE]
        late = [each for each in aside if self.now - max(each.timestamp, each.flushed_at) > 300]
        for each in late:
            each.flushed, each.flushed_at = True, self.now
        if late:
            self._move(late, UNSCHEDULABLE_TIMEOUT, None)

    def activate(self, uids: Iterable[str], force: ClusterEvent) -> None:
        for uid in uids:
            each = self.pods.get(uid)
            if each is None:
                continue
            if each.place in ASIDE:
                self._to_active(each, force.name)
            elif "ackoff" in each.place:
                self._to_active(each, force.name, ask_gates=False)
            elif each.record is not None:
                self._record((force, each.pod))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        for second in range(math.floor(self.now) + 1, math.floor(until) + 1):
            self.now = second
            for each in [each for each in self.pods.values() if "ackoff" in each.place]:
                if each.expiry() < second:
                    self._to_active(each, "BackoffComplete", ask_gates=False)
        self.now = until

    def go_live(self, profile: str, swapped: ClusterEvent) -> None:
        self.live.add(profile)
        mine = [each for each in self.pods.values() if each.pod.spec.scheduler_name == profile]
        for each in mine:
            if each.place in (*ASIDE, "parked"):
                label = "UnscheduledPodAdd" if each.place == "parked" else swapped.name
                if each.place == "parked":
                    self._follow(each)
                each.place, each.rejected_by, each.pending_on = "", set(), set()
                self._to_active(each, label)
            elif each.place == "active" or "ackoff" in each.place:
                self._passes_gates(each, swapped.name)
            if each.place == "gated":
                each.is_withheld = True
                self.nominations.pop(each.uid, None)
        self._tell_flying(mine, swapped)

    def go_away(self, profile: str, swapped: ClusterEvent) -> None:
        self.live.discard(profile)
        mine = [each for each in self.pods.values() if each.pod.spec.scheduler_name == profile]
        for each in mine:
            if each.place in WAITING:
                self._park(each)
        self._tell_flying(mine, swapped)

    # -- how pods move ------------------------------------------------------------------------------------------

    def _tell_flying(self, mine: list[PlainPod], swapped: ClusterEvent) -> None:
        for each in mine:
            if each.record is not None:
                self._record((swapped, each.pod))

    def _record(self, *events: tuple[ClusterEvent, object]) -> None:
        for each in self.pods.values():
            if each.record is not None:
                each.record.extend(events)

    def _move(self, pods: list[PlainPod], event: ClusterEvent, new: object) -> None:
        for each in pods:
            wishes = self.wishes.get(each.gated_by, [])
            is_wildcard = event.resource is Resource.WILDCARD
            if each.gated_by and not is_wildcard and not any(wish.covers(event) for wish, _ in wishes):
                continue
            strategy = self._judge(each, event, new)
            if strategy != "stay":
                each.place = ""
                self._requeue(each, strategy, event.name)
        self._record((event, new))

    def _judge(self, each: PlainPod, event: ClusterEvent, new: object) -> str:
        if not each.rejected_by:
            return "backoff"
        if event.resource is Resource.WILDCARD:
            return "backoff" if new is None or (isinstance(new, Pod) and new.metadata.uid == each.uid) else "stay"
        eager = {
            plugin
            for plugin in each.rejected_by
            for wish, wants in self.wishes.get(plugin, [])
            if wish.covers(event) and wants()
        }
        return "now" if eager & each.pending_on else "backoff" if eager else "stay"

    def _requeue(self, each: PlainPod, strategy: str, label: str) -> None:
        if each.pod.spec.scheduler_name not in self.live:
            self._park(each)
        elif strategy == "stay":
            each.place = "unschedulable"
            self.incoming[label, "unschedulable"] += 1
        elif strategy == "backoff" and each.expiry() >= math.floor(self.now):
            if self._passes_gates(each, label):
                each.place = "backoff" if each.rejected_by else "errorBackoff"
                self.incoming[label, "backoff"] += 1
        else:
            self._to_active(each, label)

    def _to_active(self, each: PlainPod, label: str, *, ask_gates: bool = True) -> None:
        if each.pod.spec.scheduler_name not in self.live:
            self._park(each)
        elif not ask_gates or self._passes_gates(each, label):
            each.place = "active"
            self.incoming[label, "active"] += 1

    def _passes_gates(self, each: PlainPod, label: str) -> bool:
        for name in sorted(self.gates, key=lambda name: name != each.gated_by):
            if name in each.pod.metadata.labels:
                each.gated_by, each.flushed = name, False
                each.rejected_by.add(name)
                if each.place not in ASIDE:
                    self.incoming[label, "unschedulable"] += 1
                each.place = "gated"
                return False
        each.gated_by = ""
        if each.is_withheld:
            each.is_withheld = False
            self._follow(each)
        return True

    def _park(self, each: PlainPod) -> None:
        each.place, each.gated_by, each.rejected_by, each.pending_on = "parked", "", set(), set()
        each.is_withheld = False
        self.nominations.pop(each.uid, None)

    def _follow(self, each: PlainPod) -> None:
        self.nominations.pop(each.uid, None)
        if each.pod.status.nominated_node_name:
            self.nominations[each.uid] = each.pod.status.nominated_node_name
