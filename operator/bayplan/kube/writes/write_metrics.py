"""Counts and durations of the scheduler's writes, every attempt counted.

The numbers and types are those of kube-scheduler's asynchronous API calls (v1.37.1,
``pkg/scheduler/backend/api_dispatcher``).
"""

from __future__ import annotations

from types import TracebackType

from scheduler_core.metrics.histogram import Histogram, exponential_bounds
from scheduler_core.ports import Clock

POD_BINDING = "pod_binding"
POD_STATUS_PATCH = "pod_status_patch"
CALL_TYPES = (POD_BINDING, POD_STATUS_PATCH)

CALL_BOUNDS = exponential_bounds(0.001, 2, 15)
"""Buckets in seconds of one call: 1 ms to 16 s."""


class WriteMetrics:
    """Histograms of completed calls.

    Attributes:
        executed: Durations in seconds, by type and result (``success`` or ``error``).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.executed: dict[tuple[str, str], Histogram] = {}

    def of(self, call_type: str) -> _Call:
        """Return a context manager that times a call; a call whose block raises has failed."""
        return _Call(self, call_type, self._clock)

    def ended(self, call_type: str, result: str, seconds: float) -> None:
        """Count a call."""
        histogram = self.executed.get((call_type, result))
        if histogram is None:
            histogram = self.executed[call_type, result] = Histogram(CALL_BOUNDS)
        histogram.observe(seconds)


class _Call:
    """Context manager of one call; a class and not a generator for speed: every bind makes one."""

    __slots__ = ("_begun", "_calls", "_clock", "_type")

    def __init__(self, calls: WriteMetrics, call_type: str, clock: Clock) -> None:
        self._calls, self._type, self._clock = calls, call_type, clock
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = self._clock.now()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        result = "success" if kind is None else "error"
        self._calls.ended(self._type, result, self._clock.now() - self._begun)
