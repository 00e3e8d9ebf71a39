"""Pods whose attempt is under way, and what happened meanwhile.

Owns the events since the oldest attempt in flight began. A pod that fails is judged against those of its own time, so
that what would have woken it is not missed because it was not asleep yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_core.framework.cluster_events import ClusterEvent


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event and its object before and after."""

    event: ClusterEvent
    old: object | None
    new: object | None


class InFlight:
    """Attempts under way."""

    __slots__ = ("_events", "_first", "_starts")

    def __init__(self) -> None:
        self._starts: dict[str, int] = {}
        self._events: list[SeenEvent] = []
        self._first = 0

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, uid: str) -> bool:
        return uid in self._starts

    @property
    def event_count(self) -> int:
        """Events that are kept."""
        return len(self._events)

    def begin(self, uid: str) -> None:
        """An attempt begins; what happens from now on is kept for it."""
        self._starts[uid] = self._first + len(self._events)

    def note(self, event: ClusterEvent, old: object | None, new: object | None) -> None:
        """Keep an event for those in flight."""
        if self._starts:
            self._events.append(SeenEvent(event, old, new))

    def events_of(self, uid: str) -> list[SeenEvent]:
        """What happened since the attempt of ``uid`` began."""
        start = self._starts.get(uid)
        return [] if start is None else self._events[start - self._first :]

    def end(self, uid: str) -> None:
        """The attempt has ended; events that no one else needs are dropped."""
        start = self._starts.pop(uid, None)
        if start is None or not self._events:
            return
        if not self._starts:
            self._first += len(self._events)
            self._events.clear()
        elif start == self._first:
            # Attempts begin in order and dicts keep it, so the first left is the oldest.
            oldest = next(iter(self._starts.values()))
            del self._events[: oldest - self._first]
            self._first = oldest
