"""How many writes of the scheduler were carried out, how, and how long each took.

Owns the numbers of kube-scheduler's asynchronous API calls (v1.36.3, ``pkg/scheduler/backend/api_dispatcher``), whose
types it names alike. It must not know what is written. A try that fails counts as well as one that succeeds.
"""

from __future__ import annotations

from types import TracebackType

from scheduler_core.framework.histogram import Histogram, exponential_bounds
from scheduler_core.ports import Clock

POD_BINDING = "pod_binding"
POD_STATUS_PATCH = "pod_status_patch"
CALL_TYPES = (POD_BINDING, POD_STATUS_PATCH)

CALL_BOUNDS = exponential_bounds(0.001, 2, 15)
"""Seconds of one call: 1 ms to 16 s."""


class ApiCalls:
    """Calls that were answered.

    Args:
        clock: Time.

    Attributes:
        executed: Seconds by type and result, ``success`` or ``error``.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.executed: dict[tuple[str, str], Histogram] = {}

    def of(self, call_type: str) -> _Call:
        """A call that is carried out within a ``with`` block; it has failed if the block raises."""
        return _Call(self, call_type, self._clock)

    def ended(self, call_type: str, result: str, seconds: float) -> None:
        """Count one."""
        histogram = self.executed.get((call_type, result))
        if histogram is None:
            histogram = self.executed[call_type, result] = Histogram(CALL_BOUNDS)
        histogram.observe(seconds)


class _Call:
    """One call under way; no generator, since one is made for every bind."""

    __slots__ = ("_begun", "_calls", "_clock", "_type")

    def __init__(self, calls: ApiCalls, call_type: str, clock: Clock) -> None:
        self._calls, self._type, self._clock = calls, call_type, clock
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = self._clock.now()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        result = "success" if kind is None else "error"
        self._calls.ended(self._type, result, self._clock.now() - self._begun)
