"""Interface of a write in the dispatcher's queue, and the bounds of that queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum

from scheduler_core.errors import SchedulerCoreError

ObjectKey = tuple[str, str, str, str]
"""Kind, namespace, name and UID."""


class Rank(IntEnum):
    """Priority of a write; lower goes first."""

    DELETION = 0
    PATCH = 1
    EVENT = 2


class Write(ABC):
    """A write.

    Attributes:
        key: The object that it changes; an object's writes are sent one at a time, in the order of arrival.
        max_tries: Maximum number of failures; None for no limit.
        tries: Number of failures so far.
        outlives_bind: Whether it is sent also if the pod is bound first; a bind makes other patches obsolete.
        queued_at: ``clock.now()`` when it, or the first write merged into it, was queued.
    """

    __slots__ = ("key", "max_tries", "outlives_bind", "queued_at", "rank", "tries")

    def __init__(self, key: ObjectKey, rank: Rank, max_tries: int | None) -> None:
        self.key = key
        self.rank = rank
        self.max_tries = max_tries
        self.tries = 0
        self.outlives_bind = False
        self.queued_at = 0.0

    @abstractmethod
    async def carry_out(self) -> None:
        """Send the write.

        Raises:
            SchedulerCoreError: It failed; the class defines whether to retry.
        """

    def absorb(self, later: Write) -> bool:
        """Merge a later write of the same object into this one; return False if that is not possible."""
        del later
        return False

    def ended(self, error: Exception | None) -> None:  # noqa: B027 - most writes have no completion handler
        """Handle the end; called once, with None after success or the reason if given up or dropped."""


class WriteDroppedError(SchedulerCoreError):
    """Raised for a queued write that was dropped: obsolete after a bind, too many events, or the process stops."""


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """Bounds of the dispatcher.

    Attributes:
        workers: Maximum number of writes in flight.
        overdue_event_workers: Workers for events that waited ``defer_seconds`` while many binds are pending.
        late_seconds: Wait after which an event may use any worker: events must not fall behind for good when the API
            server is slow.
        max_events: Maximum number of queued events; the oldest are dropped.
        defer_seconds: Maximum time that writes yield to binds.
        event_burst: Events that may exceed the rate at once.
        retry_initial_seconds: Delay after the first failure.
    """

    workers: int = 8
    overdue_event_workers: int = 2
    late_seconds: float = 10.0
    max_events: int = 20_000
    defer_seconds: float = 2.0
    events_per_second: float = 1000.0
    event_burst: int = 1000
    retry_initial_seconds: float = 0.2
    retry_maximum_seconds: float = 30.0
