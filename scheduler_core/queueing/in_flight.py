"""Pods whose attempt is under way, and what happened meanwhile.

Owns the events since the oldest attempt that still needs them began. A pod that fails is judged against those of its
own time, so that what would have woken it is not missed because it was not asleep yet. An attempt may last long (Permit
waits for minutes), a record must not grow as long: beyond a limit the older half is dropped, and who would have needed
it is retried whatever happened.

Follows kube-scheduler v1.36.3 (``backend/queue/active_queue.go``), which has no limit.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from scheduler_core.framework.cluster_events import ClusterEvent
from scheduler_core.queueing.event_labels import label_of

POD_POPPED = "PodPopped"
"""What kube-scheduler's metric calls an attempt among the events."""

MAX_EVENTS = 10_000
"""Events with their objects are some 10 kB each: 100 MB at most, and minutes of a busy cluster."""


class SeenEvent(Struct, frozen=True):
    """An event and its object before and after."""

    event: ClusterEvent
    old: object | None
    new: object | None


class InFlight:
    """Attempts under way, as far as events still matter to them."""

    __slots__ = ("_events", "_first", "_max_events", "_starts")

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._starts: dict[str, int] = {}
        self._events: list[SeenEvent] = []
        self._first = 0
        self._max_events = max_events

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, uid: str) -> bool:
        return uid in self._starts

    @property
    def event_count(self) -> int:
        """Events that are kept."""
        return len(self._events)

    def counts(self) -> dict[str, int]:
        """Events that are kept by label, and attempts as :data:`POD_POPPED`; counted when asked for."""
        counts = Counter(label_of(seen.event, seen.old, seen.new) for seen in self._events)
        if self._starts:
            counts[POD_POPPED] = len(self._starts)
        return dict(counts)

    def begin(self, uid: str) -> None:
        """An attempt begins; what happens from now on is kept for it."""
        # Taken out first, so that attempts stay in the order in which they began.
        self._starts.pop(uid, None)
        self._starts[uid] = self._first + len(self._events)

    def note(self, event: ClusterEvent, old: object | None, new: object | None) -> None:
        """Keep an event for those in flight."""
        if not self._starts:
            return
        self._events.append(SeenEvent(event, old, new))
        if len(self._events) > self._max_events:
            self._drop_older_half()

    def events_of(self, uid: str) -> list[SeenEvent] | None:
        """What happened since the attempt of ``uid`` began; None if that is not known."""
        start = self._starts.get(uid)
        return None if start is None else self._events[start - self._first :]

    def end(self, uid: str) -> None:
        """Nothing that happens matters to this attempt any more; events that no one else needs are dropped."""
        if self._starts.pop(uid, None) is not None and self._events:
            self._trim()

    def _trim(self) -> None:
        # Attempts begin in order and dicts keep it, so the first left is the oldest.
        end = self._first + len(self._events)
        oldest = next(iter(self._starts.values()), end)
        if oldest > self._first:
            del self._events[: oldest - self._first]
            self._first = oldest

    def _drop_older_half(self) -> None:
        kept_from = self._first + len(self._events) // 2
        for uid in [uid for uid, start in self._starts.items() if start < kept_from]:
            del self._starts[uid]
        self._trim()
