"""Durations of the PreEnqueue plugins and of the queueing hints of a profile, measured while the queue calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scheduler_core.framework.cluster_events import EventRegistration, Hint
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock

_SKIP = Hint.SKIP
_RESULTS = ("Queue", "QueueSkip", "Error")
"""Label values of kube-scheduler v1.37.1 for results of hints."""

Registrations = Mapping[str, tuple[EventRegistration, ...]]


class QueueMetrics:
    """Timer of the PreEnqueue plugins and queueing hints of one profile.

    Attributes:
        now: The clock.
        gates: Durations of PreEnqueue, by status code.
    """

    __slots__ = ("_hints", "gates", "now")

    def __init__(self, profile: str, metrics: SchedulerMetrics, clock: Clock) -> None:
        self.now = clock.now
        self.gates = metrics.profiles[profile].gates
        self._hints = metrics.hints_backlog

    def timed(self, registrations: Registrations, event: str) -> Registrations:
        """Return registrations whose hints are timed."""
        return {
            plugin: tuple(self._timed(plugin, event, entry) for entry in entries)
            for plugin, entries in registrations.items()
        }

    def _timed(self, plugin: str, event: str, registration: EventRegistration) -> EventRegistration:
        hint, now = registration.hint, self.now
        if hint is None:
            return registration
        queued, skipped, failed = (self._hints.of((plugin, event, result)).observe for result in _RESULTS)

        def timed_hint(pod: Pod, old: object | None, new: object | None) -> Hint:
            started = now()
            try:
                result = hint(pod, old, new)
            except Exception:  # counted here as Error; the queue logs it and requeues the pod
                failed(now() - started)
                raise
            (skipped if result is _SKIP else queued)(now() - started)
            return result

        return replace(registration, hint=timed_hint)
