"""Metrics of the scheduler: cycles, pods, events, queueing hints and preemptions.

The operator exports them and calls :meth:`SchedulerMetrics.settle` before it reads. Bounds, and what is observed when,
follow kube-scheduler v1.37.1 (``pkg/scheduler/metrics/metrics.go``).

The durations of plugins are counted in one cycle of ten only, as in kube-scheduler (there by chance, here by counting,
so that equal runs give equal metrics), because they would be the larger half of the cost of all metrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from scheduler_core.framework.cluster_events import EventRegistration, Hint
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.ongoing_preemptions import Preemption, PreemptionsUnderWay
from scheduler_core.framework.status import Code
from scheduler_core.metrics.cycle_recorder import CycleRecorder
from scheduler_core.metrics.histogram import Backlog, Backlogs, Histogram, Histograms, exponential_bounds
from scheduler_core.metrics.profile_metrics import (
    ATTEMPT_BOUNDS,
    SLI_BOUNDS,
    STAGE_BOUNDS,
    DeviceMetrics,
    ProfileMetrics,
    ProfileRecord,
)
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock

PLUGIN_BOUNDS = exponential_bounds(0.00001, 1.5, 20)
"""Seconds of one plugin, and of one queueing hint: 10 µs to 22 ms."""
ATTEMPT_COUNT_BOUNDS = exponential_bounds(1, 2, 5)
"""Attempts of a pod."""
VICTIM_BOUNDS = exponential_bounds(1, 2, 7)
"""Victims of a preemption."""
SAMPLING_INTERVAL = 10
"""Plugins are timed in one of this many cycles."""

_MANY_ATTEMPTS = 15
_SUCCESS, _ERROR = "success", "error"
_SETTLING_INTERVAL = 500
"""Backlogs are counted after this many cycles, even if the metrics are not read."""


class SchedulerMetrics:
    """Metrics of the scheduler.

    Attributes:
        algorithm: Seconds of the search for a node, including PostFilter.
        group_algorithm: Seconds of the search for nodes for a whole gang, including Reserve and Permit.
        attempts_to_schedule: Attempts of pods that were bound.
        sli: Seconds from a pod's first attempt until it was bound, by its attempts.
        plugins: Seconds of plugins in sampled cycles, by stage, plugin and status.
        hints: Seconds of queueing hints, by plugin, event and result (Queue, QueueSkip or Error).
        internal_errors: Errors of the scheduler's own code, or of plugins outside of attempts, after which it went on.
        preemptions: Seconds until the victims of a preemption are evicted, by result.
        cycles: Number of scheduling cycles, to sample some.
        searches: Of ``algorithm``, not counted yet.
        events_backlog: Of ``events``, not counted yet.
        hints_backlog: Of ``hints``, not counted yet.
    """

    def __init__(self) -> None:
        self.algorithm = Histogram(ATTEMPT_BOUNDS)
        self.group_algorithm = Histogram(ATTEMPT_BOUNDS)
        self.profiles: dict[str, ProfileMetrics] = defaultdict(ProfileMetrics)
        self.records: dict[str, ProfileRecord] = defaultdict(ProfileRecord)
        self.attempts_to_schedule = Histogram(ATTEMPT_COUNT_BOUNDS)
        self.sli: Histograms[str] = Histograms(SLI_BOUNDS)
        self.plugins: Histograms[tuple[CycleStage, str, Code]] = Histograms(PLUGIN_BOUNDS)
        self.permit_waits: Histograms[Code] = Histograms(ATTEMPT_BOUNDS)
        self.events: Histograms[str] = Histograms(STAGE_BOUNDS)
        self.hints: Histograms[tuple[str, str, str]] = Histograms(PLUGIN_BOUNDS)
        self.internal_errors = 0
        self.preemption_attempts = 0
        self.victims = Histogram(VICTIM_BOUNDS)
        self.preemptions: Histograms[str] = Histograms(SLI_BOUNDS)
        self.devices = DeviceMetrics()
        self.searches = Backlog()
        self.events_backlog = Backlogs(self.events)
        self.hints_backlog = Backlogs(self.hints)
        self._attempts = Backlog()
        self._sli = Backlogs(self.sli)
        self._sli_of = tuple(self._sli.of(str(attempts)) for attempts in range(_MANY_ATTEMPTS))
        self._sli_of_many = self._sli.of(f"{_MANY_ATTEMPTS}+")
        self.cycles = 0

    def drop_profile(self, name: str) -> None:
        """Remove the metrics and counts of a profile that is no longer live."""
        self.profiles.pop(name, None)
        self.records.pop(name, None)

    def settle(self) -> None:
        """Count all backlogs; the histograms are then complete until the next cycle or event."""
        for profile in self.profiles.values():
            profile.settle()
        self.searches.settle(self.algorithm)
        self.events_backlog.settle()
        self.hints_backlog.settle()
        self._attempts.settle(self.attempts_to_schedule)
        self._sli.settle()

    def settle_if_due(self) -> None:
        """Count all backlogs after a number of cycles."""
        if self.cycles % _SETTLING_INTERVAL == 0:
            self.settle()

    # -- cycles -------------------------------------------------------------------------------------------------

    def plugins_ran(self, recorder: CycleRecorder) -> None:
        for stage, plugin, code, seconds in recorder.plugins():
            self.plugins[stage, plugin, code].observe(seconds)

    def group_attempted(self, profile: str, result: str, algorithm: float, seconds: float) -> None:
        """Count an attempt of a gang; *seconds* last until binding began or the failure was reported."""
        self.group_algorithm.observe(algorithm)
        self.profiles[profile].groups[result].observe(seconds)

    def pod_bound(self, attempts: int, seconds: float) -> None:
        self._attempts.observe(attempts)
        backlog = self._sli_of[attempts] if attempts < _MANY_ATTEMPTS else self._sli_of_many
        backlog.observe(seconds)

    def permit_waited(self, code: Code, seconds: float) -> None:
        self.permit_waits[code].observe(seconds)

    def preemption_ended(self, seconds: float, *, has_failed: bool) -> None:
        """Count a preemption whose evictions are issued or given up."""
        self.preemptions[_ERROR if has_failed else _SUCCESS].observe(seconds)


class TimedPreemptions(PreemptionsUnderWay):
    """Preemptions, counted with their victims and with the time until all evictions are issued."""

    __slots__ = ("_clock", "_metrics", "_started")

    def __init__(self, metrics: SchedulerMetrics, clock: Clock) -> None:
        super().__init__()
        self._started: dict[Preemption, float] = {}
        self._metrics = metrics
        self._clock = clock

    def attempted(self) -> None:
        self._metrics.preemption_attempts += 1

    def begin(self, preemption: Preemption) -> None:
        super().begin(preemption)
        self._started[preemption] = self._clock.now()
        self._metrics.victims.observe(preemption.victim_count)

    def end(self, preemption: Preemption) -> None:
        super().end(preemption)
        started = self._started.pop(preemption, None)
        if started is not None:
            self._metrics.preemption_ended(self._clock.now() - started, has_failed=preemption.has_failed)


_SKIP = Hint.SKIP
_RESULTS = ("Queue", "QueueSkip", "Error")
"""Label values of kube-scheduler v1.37.1 for results of hints."""

Registrations = Mapping[str, tuple[EventRegistration, ...]]


class QueueMetrics:
    """Timer of the PreEnqueue plugins and queueing hints of one profile.

    Attributes:
        gates: Durations of PreEnqueue, by status code.
    """

    __slots__ = ("_hints", "gates", "now")

    def __init__(self, profile: str, metrics: SchedulerMetrics, clock: Clock) -> None:
        self.now = clock.now
        self.gates = metrics.profiles[profile].gates
        self._hints = metrics.hints_backlog

    def timed(self, registrations: Registrations, event: str) -> Registrations:
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
