"""Model of the scheduling queue with kube-scheduler v1.36.3's rules (``backend/queue``), as a reference for tests.

Pods are searched linearly, every attempt records its own events, and backoffs end once a second. The model shares no
code with the queue under test except ``ClusterEvent.covers``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from scheduler_core.framework.cluster_events import UNSCHEDULABLE_TIMEOUT, ClusterEvent, Resource
from scheduler_core.model.pod import Pod

UNSCHEDULABLE = ("unschedulable", "gated")
WAITING = ("active", "backoff", "errorBackoff", *UNSCHEDULABLE)
Registrations = dict[str, list[tuple[ClusterEvent, Callable[[], bool]]]]
"""Registered events by plugin, each with the current result of its queueing hint."""


@dataclass
class PlainPod:
    """Pod and its state in the queue."""

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
    nomination_withheld: bool = False
    in_flight_events: list[tuple[ClusterEvent, object]] | None = None
    """Events since its attempt began; None without an attempt, or after Permit."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def order(self) -> tuple[int, float, int]:
        return -(self.pod.spec.priority or 0), self.timestamp, self.number

    def expiry(self) -> float:
        """Return the second in which the backoff ends, -1 without backoff."""
        count = self.errors or self.failures
        return math.floor(self.timestamp + min(2 ** (count - 1), 10)) if count else -1.0


class PlainQueue:
    """Queue as a dictionary of pods by UID; a gate rejects pods that have a label with its name."""

    def __init__(self, gates: Sequence[str], registrations: Registrations, now: float) -> None:
        self.gates, self.registrations, self.now = gates, registrations, now
        self.pods: dict[str, PlainPod] = {}
        self.nominations: dict[str, str] = {}
        self.served_profiles: set[str] = set()
        self.incoming: Counter[tuple[str, str]] = Counter()
        self.after_flush = 0
        self._number = 0

    def places(self) -> dict[str, str]:
        return {uid: each.place for uid, each in self.pods.items()}

    def unschedulable_by(self) -> Counter[tuple[str, str]]:
        waiting = [each for each in self.pods.values() if each.place in WAITING]
        return Counter((plugin, each.pod.spec.scheduler_name) for each in waiting for plugin in each.rejected_by)

    # -- operations ---------------------------------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        self._number += 1
        each = self.pods[pod.metadata.uid] = PlainPod(pod, self.now, self._number)
        self._copy_nomination(each)
        self._to_active(each, "UnscheduledPodAdd")

    def update(self, pod: Pod, events: Sequence[ClusterEvent]) -> None:
        each = self.pods.get(pod.metadata.uid)
        if each is None:
            self.add(pod)
            return
        old, each.pod = each.pod, pod
        if each.place == "inFlight":
            if each.in_flight_events is not None:
                self._record(*((event, pod) for event in events))
            return
        if each.place == "parked":
            return
        was_never_nominated = not old.status.nominated_node_name and not pod.status.nominated_node_name
        if not (each.nomination_withheld or (was_never_nominated and each.uid in self.nominations)):
            self._copy_nomination(each)
        if each.place in UNSCHEDULABLE:
            for event in events:
                strategy = self._strategy(each, event, pod)
                if strategy != "stay":
                    self._requeue(each, strategy, event.name)
                if each.place not in UNSCHEDULABLE:
                    break

    def delete(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.nominations.pop(uid, None)

    def pop(self) -> str:
        for place in ("active", "backoff"):
            candidates = [each for each in self.pods.values() if each.place == place]
            if candidates:
                first = min(candidates, key=lambda each: ((each.expiry(),) if place == "backoff" else ()) + each.order)
                if place == "backoff":
                    self.incoming["PopFromBackoffQ", "active"] += 1
                first.place, first.in_flight_events = "inFlight", []
                first.rejected_by, first.pending_on = set(), set()
                return first.uid
        return ""

    def passed_permit(self, uid: str) -> None:
        self.pods[uid].in_flight_events = None

    def bound(self, uid: str) -> None:
        self.after_flush += self.pods[uid].flushed
        self.delete(uid)

    def fail(self, uid: str, by: set[str], pending: set[str]) -> None:
        each = self.pods.get(uid)
        if each is None or each.place != "inFlight":
            return
        events, each.in_flight_events = each.in_flight_events, None
        each.rejected_by, each.pending_on = by | pending, set(pending)
        each.place, each.timestamp, each.flushed, each.flushed_at = "", self.now, False, 0.0
        if each.rejected_by:
            each.failures, each.errors = each.failures + 1, 0
        else:
            each.errors += 1
        if events is None or not each.rejected_by:
            strategy = "backoff"
        else:
            strategies = {self._strategy(each, event, new) for event, new in events}
            strategy = "now" if "now" in strategies else "backoff" if "backoff" in strategies else "stay"
        self._requeue(each, strategy, "ScheduleAttemptFailure")
        if each.place == "gated" and any(event.name == "ProfileSwapped" for event, _ in events or ()):
            each.nomination_withheld = True
            self.nominations.pop(each.uid, None)

    def on_event(self, event: ClusterEvent, new: object = None, highest: int = 2**31) -> None:
        is_wildcard = event.resource is Resource.WILDCARD
        registered = [each for entries in self.registrations.values() for each, _ in entries]
        if self.served_profiles and (is_wildcard or any(each.covers(event) for each in registered)):
            unschedulable = [each for each in self.pods.values() if each.place in UNSCHEDULABLE]
            self._move([each for each in unschedulable if (each.pod.spec.priority or 0) <= highest], event, new)

    def flush(self) -> None:
        unschedulable = [each for each in self.pods.values() if each.place in UNSCHEDULABLE]
        overdue = [each for each in unschedulable if self.now - max(each.timestamp, each.flushed_at) > 300]
        for each in overdue:
            each.flushed, each.flushed_at = True, self.now
        if overdue:
            self._move(overdue, UNSCHEDULABLE_TIMEOUT, None)

    def activate(self, uids: Iterable[str], force: ClusterEvent) -> None:
        for uid in uids:
            each = self.pods.get(uid)
            if each is None:
                continue
            if each.place in UNSCHEDULABLE:
                self._to_active(each, force.name)
            elif "ackoff" in each.place:
                self._to_active(each, force.name, check_gates=False)
            elif each.in_flight_events is not None:
                self._record((force, each.pod))

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        for second in range(math.floor(self.now) + 1, math.floor(until) + 1):
            self.now = second
            for each in [each for each in self.pods.values() if "ackoff" in each.place]:
                if each.expiry() < second:
                    self._to_active(each, "BackoffComplete", check_gates=False)
        self.now = until

    def serve_profile(self, profile: str, swapped: ClusterEvent) -> None:
        self.served_profiles.add(profile)
        pods = [each for each in self.pods.values() if each.pod.spec.scheduler_name == profile]
        for each in pods:
            if each.place in (*UNSCHEDULABLE, "parked"):
                label = "UnscheduledPodAdd" if each.place == "parked" else swapped.name
                if each.place == "parked":
                    self._copy_nomination(each)
                each.place, each.rejected_by, each.pending_on = "", set(), set()
                self._to_active(each, label)
            elif each.place == "active" or "ackoff" in each.place:
                self._passes_gates(each, swapped.name)
            if each.place == "gated":
                each.nomination_withheld = True
                self.nominations.pop(each.uid, None)
        self._record_swap(pods, swapped)

    def withdraw_profile(self, profile: str, swapped: ClusterEvent) -> None:
        self.served_profiles.discard(profile)
        pods = [each for each in self.pods.values() if each.pod.spec.scheduler_name == profile]
        for each in pods:
            if each.place in WAITING:
                self._park(each)
        self._record_swap(pods, swapped)

    # -- moves --------------------------------------------------------------------------------------------------

    def _record_swap(self, pods: list[PlainPod], swapped: ClusterEvent) -> None:
        for each in pods:
            if each.in_flight_events is not None:
                self._record((swapped, each.pod))

    def _record(self, *events: tuple[ClusterEvent, object]) -> None:
        for each in self.pods.values():
            if each.in_flight_events is not None:
                each.in_flight_events.extend(events)

    def _move(self, pods: list[PlainPod], event: ClusterEvent, new: object) -> None:
        for each in pods:
            entries = self.registrations.get(each.gated_by, [])
            is_wildcard = event.resource is Resource.WILDCARD
            if each.gated_by and not is_wildcard and not any(registered.covers(event) for registered, _ in entries):
                continue
            strategy = self._strategy(each, event, new)
            if strategy != "stay":
                each.place = ""
                self._requeue(each, strategy, event.name)
        self._record((event, new))

    def _strategy(self, each: PlainPod, event: ClusterEvent, new: object) -> str:
        if not each.rejected_by:
            return "backoff"
        if event.resource is Resource.WILDCARD:
            return "backoff" if new is None or (isinstance(new, Pod) and new.metadata.uid == each.uid) else "stay"
        queueing = {
            plugin
            for plugin in each.rejected_by
            for registered, hint in self.registrations.get(plugin, [])
            if registered.covers(event) and hint()
        }
        return "now" if queueing & each.pending_on else "backoff" if queueing else "stay"

    def _requeue(self, each: PlainPod, strategy: str, label: str) -> None:
        if each.pod.spec.scheduler_name not in self.served_profiles:
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

    def _to_active(self, each: PlainPod, label: str, *, check_gates: bool = True) -> None:
        if each.pod.spec.scheduler_name not in self.served_profiles:
            self._park(each)
        elif not check_gates or self._passes_gates(each, label):
            each.place = "active"
            self.incoming[label, "active"] += 1

    def _passes_gates(self, each: PlainPod, label: str) -> bool:
        for name in sorted(self.gates, key=lambda name: name != each.gated_by):
            if name in each.pod.metadata.labels:
                each.gated_by, each.flushed = name, False
                each.rejected_by.add(name)
                if each.place not in UNSCHEDULABLE:
                    self.incoming[label, "unschedulable"] += 1
                each.place = "gated"
                return False
        each.gated_by = ""
        if each.nomination_withheld:
            each.nomination_withheld = False
            self._copy_nomination(each)
        return True

    def _park(self, each: PlainPod) -> None:
        each.place, each.gated_by, each.rejected_by, each.pending_on = "parked", "", set(), set()
        each.nomination_withheld = False
        self.nominations.pop(each.uid, None)

    def _copy_nomination(self, each: PlainPod) -> None:
        self.nominations.pop(each.uid, None)
        if each.pod.status.nominated_node_name:
            self.nominations[each.uid] = each.pod.status.nominated_node_name
