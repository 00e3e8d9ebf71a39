"""Metrics of one profile, of its plugins and devices, and counts of all profiles for their status.

Stages of finished cycles wait in a backlog and are counted for hundreds of cycles at once: one by one would cost ten
times as much.

Bounds of device metrics, and what is observed when, follow kube-scheduler v1.37.1 (``dynamicresources.go``). The wait
of a pod for binding conditions is observed for each of its devices, also for those without conditions.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleStage, Evaluations
from scheduler_core.framework.handle import BindingOutcome
from scheduler_core.framework.status import Code
from scheduler_core.metrics.cycle_recorder import CYCLE_STARTED, CycleRecorder
from scheduler_core.metrics.histogram import Backlog, Histogram, Histograms, exponential_bounds, observe_many
from scheduler_core.model.devices import ResourceClaim

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
        "attempts",
        "evaluations",
        "gang_waits",
        "gates",
        "groups",
        "reuse_errors",
        "reused",
        "scheduled",
        "stages",
    )

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
_SUCCESS, _FAILURE, _ERROR = "success", "failure", "error"


class DeviceMetrics:
    """Metrics of the allocation of devices.

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
        """Count the creation of a claim for extended resources."""
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
        """Increment a counter; raise PluginError if the name is invalid, or belongs to a histogram."""
        known = self.counters.get(name)
        if known is None:
            _check(name, self.histograms)
            known = 0.0
        if not amount >= 0:
            raise PluginError(name, "metrics", f"amount {amount} is negative: a counter only increases")
        self.counters[name] = known + amount

    def observe(self, name: str, value: float) -> None:
        """Add one observation to a histogram; raise PluginError if the name is invalid, or belongs to a counter."""
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
