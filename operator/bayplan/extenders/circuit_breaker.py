"""Circuit breaker: an extender that keeps failing is not called for a while.

    Closed ──failures in a row──▶ Open ──time is over, next call──▶ HalfOpen ──call succeeds──▶ Closed
                                   ▲                                    │
                                   └────── call fails: longer time ─────┘

Without it each pod's attempt would wait for the extender's whole timeout, and no other pod could be scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from bayplan.kube.timing import Backoff
from scheduler_core.ports import Clock


class CircuitState(StrEnum):
    """State of a circuit."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class CircuitOptions(Struct, frozen=True):
    """When a circuit opens and for how long.

    Attributes:
        failures: Number of failures in a row after which it opens.
        initial_seconds: First time that it stays open, before jitter.
        seed: Seed of the jitter; None for a random one.
    """

    failures: int = 5
    initial_seconds: float = 1.0
    maximum_seconds: float = 30.0
    seed: int | None = None


class Circuit:
    """A circuit, closed at first.

    Args:
        options: When it opens and for how long.
        on_change: Called after each change of the state.

    Attributes:
        since: When the state last changed; None if it never did.
        until: End of the time that it stays open, while it is open.
        last_error: Reason of the last failure; it stays after a success.
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
        """Return whether a call may be made; its caller reports the outcome by one of the three methods below."""
        if self.state is CircuitState.CLOSED:
            return True
        if self.state is CircuitState.OPEN and self._clock.now() >= self._reopens_at:
            self._become(CircuitState.HALF_OPEN)
            return True
        return False

    def succeeded(self) -> None:
        """Record a successful call."""
        self._failures = 0
        if self.state is not CircuitState.CLOSED:
            self._backoff.reset()
            self._become(CircuitState.CLOSED)

    def failed(self, reason: str) -> None:
        """Record a failed call."""
        self.last_error = reason
        self._failures += 1
        if self.state is CircuitState.HALF_OPEN or (
            self.state is CircuitState.CLOSED and self._failures >= self._limit
        ):
            self._open()

    def abandoned(self) -> None:
        """Record a call that this side aborted; if it was that of a half-open circuit, the next one is allowed."""
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
