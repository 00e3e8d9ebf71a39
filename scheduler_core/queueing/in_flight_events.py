"""Events that occur during attempts.

A pod that fails is requeued by the events of its own attempt, so that no event is missed between the pop and the
requeue. kube-scheduler v1.37.1 (``backend/queue/active_queue.go``) records without a limit.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from scheduler_core.framework.cluster_events import ClusterEvent

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
