"""Metrics of the scheduler: cycles, pods, events, queueing hints and preemptions.

Stages of finished cycles wait in a backlog and are counted for hundreds of cycles at once: one by one would cost ten
times as much. The operator exports the metrics and calls :meth:`SchedulerMetrics.settle` before it reads. Bounds, and
what is observed when, follow kube-scheduler v1.37.1 (``pkg/scheduler/metrics/metrics.go``, for devices
``dynamicresources.go``). The wait of a pod for binding conditions is observed for each of its devices, also for those
without conditions.

The durations of plugins are counted in one cycle of ten only, as in kube-scheduler (there by chance, here by counting,
so that equal runs give equal metrics), because they would be the larger half of the cost of all metrics.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import EventRegistration, Hint
from scheduler_core.framework.cycle_state import CycleStage, Evaluations
from scheduler_core.framework.handle import BindingOutcome
from scheduler_core.framework.ongoing_preemptions import Preemption, PreemptionsUnderWay
from scheduler_core.framework.status import Code
from scheduler_core.metrics.cycle_recorder import CYCLE_STARTED, CycleRecorder
from scheduler_core.metrics.histogram import Backlog, Backlogs, Histogram, Histograms, exponential_bounds, observe_many
from scheduler_core.model.devices import ResourceClaim
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
_SUCCESS, _FAILURE, _ERROR = "success", "failure", "error"
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
            result = _ERROR if preemption.has_failed else _SUCCESS
            self._metrics.preemptions[result].observe(self._clock.now() - started)


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


# -- metrics of a profile ---------------------------------------------------------------------------------------------

STAGE_BOUNDS = exponential_bounds(0.0001, 2, 12)
"""Seconds of extension points and of the handling of events: 0.1 ms to 0.2 s."""
ATTEMPT_BOUNDS = exponential_bounds(0.001, 2, 15)
"""Seconds of attempts, of waits at Permit and of API calls: 1 ms to 16 s."""
SLI_BOUNDS = exponential_bounds(0.01, 2, 20)
"""Seconds of a pod in the queue, and of preemptions: 10 ms to 87 min."""

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
WAITING_ON_PREEMPTION = "waiting_on_preemption"
"""Result of a gang's attempt: it was not scheduled, and pods are evicted for it."""


class StageDurations:
    """Histograms of stages, and the finished cycles that are not counted yet.

    Attributes:
        histograms: Seconds by stage and status; both are numbers and index the lists.
    """

    __slots__ = ("_left", "_times", "histograms")

    def __init__(self) -> None:
        self.histograms = [[Histogram(STAGE_BOUNDS) for _ in Code] for _ in CycleStage]
        self._left = array("h")
        self._times = array("d")

    def add(self, recorder: CycleRecorder) -> None:
        self._left.fromlist(recorder.left)
        self._times.fromlist(recorder.times)

    def settle(self) -> None:
        if self._left:
            left, times = np.array(self._left, dtype=np.intp), np.array(self._times)
            ends = np.flatnonzero(left != CYCLE_STARTED)
            flat = [histogram for by_code in self.histograms for histogram in by_code]
            observe_many(flat, left[ends], times[ends] - times[ends - 1])
            del self._left[:], self._times[:]


class ProfileMetrics:
    """Metrics of the attempts of one profile.

    Attributes:
        attempts: Seconds of attempts by result, including binding.
        groups: Seconds of gangs' attempts by result, from the pop until binding begins.
        gang_waits: Seconds from when a gang had its quorum until it was scheduled.
        scheduled: Seconds of attempts that succeeded, not counted yet.
        gates: Seconds of PreEnqueue by status, not counted yet.
        reuse_errors: Errors in the reuse of results, by plugin; "" for the scheduler's own.
    """

    __slots__ = (
        "attempts", "evaluations", "gang_waits", "gates", "groups", "reuse_errors", "reused", "scheduled", "stages",
    )  # fmt: skip

    def __init__(self) -> None:
        self.stages = StageDurations()
        self.attempts = {result: Histogram(ATTEMPT_BOUNDS) for result in (SCHEDULED, UNSCHEDULABLE, ERROR)}
        self.groups = {
            result: Histogram(ATTEMPT_BOUNDS) for result in (SCHEDULED, UNSCHEDULABLE, WAITING_ON_PREEMPTION, ERROR)
        }
        self.gang_waits = Histogram(SLI_BOUNDS)
        self.evaluations = Evaluations()
        self.scheduled = Backlog()
        self.gates = tuple(Backlog() for _ in Code)
        self.reused = 0
        self.reuse_errors: dict[str, int] = {}

    def settle(self) -> None:
        self.stages.settle()
        self.scheduled.settle(self.attempts[SCHEDULED])
        for backlog, histogram in zip(self.gates, self.stages.histograms[CycleStage.PRE_ENQUEUE], strict=True):
            backlog.settle(histogram)


@dataclass(frozen=True, slots=True)
class LostBind:
    """A pod that another scheduler bound, to *rival_node_name*, while it was being bound here."""

    pod: str
    node_name: str
    rival_node_name: str
    when: datetime


@dataclass(slots=True)
class ProfileRecord:
    """Counts of a profile since the process started, over all of its revisions.

    Attributes:
        unschedulable: Attempts that ended in a rejection.
        errors: Attempts that ended in an error.
        faults: Those of them whose error is of a plugin, an extender or the profile, not a failed write to the cluster.
    """

    scheduled: int = 0
    unschedulable: int = 0
    errors: int = 0
    last_scheduled: datetime | None = None
    last_error: str = ""
    last_error_at: datetime | None = None
    faults: int = 0
    last_fault: str = ""
    last_fault_at: datetime | None = None
    lost_binds: int = 0
    last_lost_bind: LostBind | None = None

    def count_error(self, message: str, at: datetime, *, is_of_cluster: bool = False) -> None:
        self.errors += 1
        self.last_error, self.last_error_at = message, at
        if not is_of_cluster:
            self.faults += 1
            self.last_fault, self.last_fault_at = message, at


BINDING_BOUNDS = exponential_bounds(0.1, 2, 14)
"""Seconds of waits for binding conditions: 0.1 s to 14 min."""


class DeviceMetrics:
    """Implementation of :class:`scheduler_core.framework.handle.DeviceMetrics`.

    Attributes:
        binding_waits: Seconds of waits for binding conditions, by profile, driver and status.
        conditional_devices: Allocated devices with binding conditions, by profile, driver and status.
        allocations: New allocations of claims that PreBind wrote, by profile and result.
    """

    def __init__(self) -> None:
        self.claim_creations: Counter[str] = Counter()
        self.binding_waits: Histograms[tuple[str, str, str]] = Histograms(BINDING_BOUNDS)
        self.conditional_devices: Counter[tuple[str, str, str]] = Counter()
        self.allocations: Counter[tuple[str, str]] = Counter()

    def claim_created(self, *, has_failed: bool) -> None:
        self.claim_creations[_FAILURE if has_failed else _SUCCESS] += 1

    def allocation_written(self, profile: str, *, has_failed: bool) -> None:
        self.allocations[profile, _ERROR if has_failed else _SUCCESS] += 1

    def binding_waited(
        self, profile: str, claims: Iterable[ResourceClaim], outcome: BindingOutcome, seconds: float
    ) -> None:
        for claim in claims:
            allocation = claim.status.allocation
            for result in () if allocation is None else allocation.devices.results:
                key = (profile, result.driver, outcome.value)
                self.binding_waits[key].observe(seconds)
                if result.binding_conditions:
                    self.conditional_devices[key] += 1


BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0)
"""Upper bounds of the buckets of a histogram; one more bucket counts larger values."""

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


class RecordedPluginMetrics:
    """Metrics of the plugins of one profile; implements :class:`scheduler_core.ports.PluginMetrics`."""

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.histograms: dict[str, Histogram] = {}

    def count(self, name: str, amount: float = 1.0) -> None:
        known = self.counters.get(name)
        if known is None:
            _check(name, self.histograms)
            known = 0.0
        if not amount >= 0:
            raise PluginError(name, "metrics", f"amount {amount} is negative: a counter only increases")
        self.counters[name] = known + amount

    def observe(self, name: str, value: float) -> None:
        histogram = self.histograms.get(name)
        if histogram is None:
            _check(name, self.counters)
            histogram = self.histograms[name] = Histogram(BUCKETS)
        histogram.observe(value)


def _check(name: str, others: object) -> None:
    if not _NAME.fullmatch(name):
        raise PluginError(name, "metrics", "invalid metric name: use letters, digits and _")
    if isinstance(others, dict) and name in others:
        raise PluginError(name, "metrics", "name is used for a counter and a histogram: use two names")
