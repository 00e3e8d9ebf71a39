"""Bounds of the queue of writes."""

from __future__ import annotations

from dataclasses import dataclass


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
        events_per_second: Rate limit of events.
        event_burst: Events that may exceed the rate at once.
        retry_initial_seconds: Delay after the first failure.
        retry_maximum_seconds: Maximum delay between attempts.
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
