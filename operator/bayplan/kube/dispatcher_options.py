"""How much the queue of writes may hold, and how fast it may go.

Owns the numbers and their reasons. It must not know how they are kept, which is the dispatcher's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """Bounds of the dispatcher.

    Attributes:
        workers: Writes on the wire at once.
        overdue_event_workers: Of these, for events that waited ``defer_seconds`` while binds still press.
        late_seconds: An event that waited so long takes any worker, whatever presses: what is told must not fall
            behind for good when the API server is slow.
        max_events: Events queued; the oldest are dropped beyond that.
        defer_seconds: How long writes yield to binds.
        events_per_second: Rate limit of events.
        event_burst: Events that may exceed it at once.
        retry_initial_seconds: Delay after the first failure.
        retry_maximum_seconds: Longest delay between tries.
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
