"""A circuit breaker: who keeps failing is left alone for a while.

Owns when calls are let through. It must not know what a call is.

    Closed ──failures in a row──▶ Open ──its time is over, a call comes──▶ HalfOpen ──it succeeds──▶ Closed
                                   ▲                                          │
                                   └───────────── it fails: a longer time ────┘

Why at all: each pod's attempt would wait for an extender's whole timeout while nothing else can be scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from bayplan.kube.backoff import Backoff
from scheduler_core.ports import Clock


class CircuitState(StrEnum):
    """Whether calls are let through."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class CircuitOptions(Struct, frozen=True):
    """When a circuit opens and for how long.

    Attributes:
        failures: In a row, after which it opens.
        initial_seconds: For how long at first, before jitter.
        maximum_seconds: Never longer.
        seed: Fixes the jitter; None takes it from the system.
    """

    failures: int = 5
    initial_seconds: float = 1.0
    maximum_seconds: float = 30.0
    seed: int | None = None


class Circuit:
    """One circuit; closed at first.

    Args:
        clock: Time.
        options: When it opens and for how long.
        on_change: Told after each change of the state.

    Attributes:
        state: Whether calls are let through.
        since: When the state last changed; None before it ever did.
        until: Up to when it lets nobody through, while it is open.
        last_error: The last failure's reason; kept when it is over.
    """

    def __init__(self, clock: Clock, options: CircuitOptions, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._limit = options.failures
        self._backoff = Backoff(options.initial_seconds, options.maximum_seconds, options.seed)
        self._on_change = on_change
        self._failures = 0
        self._reopens_at = 0.0
        self.state = CircuitState.CLOSED
        self.since: datetime | None = None
        self.until: datetime | None = None
        self.last_error = ""

    def admits(self) -> bool:
        """Whether a call may be made; who is told so tells how it ended, by one of the three methods below."""
        if self.state is CircuitState.CLOSED:
            return True
        if self.state is CircuitState.OPEN and self._clock.now() >= self._reopens_at:
            self._become(CircuitState.HALF_OPEN)
            return True
        return False

    def succeeded(self) -> None:
        """A call was answered."""
        self._failures = 0
        if self.state is not CircuitState.CLOSED:
            self._backoff.reset()
            self._become(CircuitState.CLOSED)

    def failed(self, reason: str) -> None:
        """A call was not answered."""
        self.last_error = reason
        self._failures += 1
        if self.state is CircuitState.HALF_OPEN or (
            self.state is CircuitState.CLOSED and self._failures >= self._limit
        ):
            self._open()

    def abandoned(self) -> None:
        """A call was not made to its end by us; if it was the one of a half-open circuit, the next is let through."""
        if self.state is CircuitState.HALF_OPEN:
            self._become(CircuitState.OPEN)

    def _open(self) -> None:
        delay = self._backoff.next_delay()
        self._reopens_at = self._clock.now() + delay
        self.until = self._clock.wall() + timedelta(seconds=delay)
        self._become(CircuitState.OPEN)

    def _become(self, state: CircuitState) -> None:
        self.state = state
        self.since = self._clock.wall()
        self._on_change()
