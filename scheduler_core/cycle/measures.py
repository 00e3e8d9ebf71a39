"""What cycles cost and how they end, counted as kube-scheduler counts it.

Owns the numbers; the operator exports them. It must not know their names there, nor decide anything by them. Bounds and
what is observed when follow kube-scheduler v1.36.3, ``pkg/scheduler/metrics/metrics.go``.

Why a plugin's own time is counted in one cycle of ten only: so does the reference (by chance, here by counting, so that
equal runs give equal numbers), and it would be the larger half of what measuring costs.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeVar

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_times import LAST_OF_ALGORITHM, CycleTimes, Point, durations
from scheduler_core.framework.histogram import Bounds, Histogram, exponential_bounds
from scheduler_core.framework.status import Code
from scheduler_core.runtime.framework_instance import Evaluations

POINT_BOUNDS = exponential_bounds(0.0001, 2, 12)
"""Seconds of extension points and of events' handling: 0.1 ms to 0.2 s."""
PLUGIN_BOUNDS = exponential_bounds(0.00001, 1.5, 20)
"""Seconds of one plugin, and of one hint: 10 µs to 22 ms."""
ATTEMPT_BOUNDS = exponential_bounds(0.001, 2, 15)
"""Seconds of attempts, of waits at Permit and of API calls: 1 ms to 16 s."""
SLI_BOUNDS = exponential_bounds(0.01, 2, 20)
"""Seconds of a pod in the queue, and of preemptions: 10 ms to 87 min."""
COUNT_BOUNDS = exponential_bounds(1, 2, 5)
"""Attempts of a pod."""
VICTIM_BOUNDS = exponential_bounds(1, 2, 7)
"""Victims of a preemption."""

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
SUCCEEDED, FAILED = "success", "error"
SAMPLED_CYCLES = 10
"""One of so many cycles has its plugins' times counted."""

_K = TypeVar("_K")
_MANY_ATTEMPTS = 15
_SHORTEST = POINT_BOUNDS[0]
_POST_FILTER = Point.POST_FILTER
_PREEMPTION = (Point.POST_FILTER, "DefaultPreemption")
_POINT_OF_FAULT = {
    "preFilter": Point.PRE_FILTER,
    "filter": Point.FILTER,
    "preScore": Point.PRE_SCORE,
    "score": Point.SCORE,
    "normalizeScore": Point.SCORE,
}


class ProfileMeasures:
    """What the attempts of one profile cost.

    Attributes:
        points: Seconds by point and by what it answered; both are numbers, so that the lists are looked up by them.
        attempts: Seconds of attempts by their result, binding included.
        evaluations: How often plugins were asked.
    """

    __slots__ = ("attempts", "evaluations", "points")

    def __init__(self) -> None:
        self.points = [[Histogram(POINT_BOUNDS) for _ in Code] for _ in Point]
        self.attempts = {result: Histogram(ATTEMPT_BOUNDS) for result in (SCHEDULED, UNSCHEDULABLE, ERROR)}
        self.evaluations = Evaluations()


class Measures:
    """What the scheduler costs and does.

    Attributes:
        profiles: By scheduler name.
        algorithm: Seconds of the search for a node, PreFilter to Score or PostFilter.
        attempts_to_schedule: Attempts of pods that were bound.
        sli: Seconds from a pod's first attempt until it was bound, by its attempts.
        plugins: Seconds of plugins in sampled cycles, by point, plugin and answer.
        permit_waits: Seconds at Permit, by what came of it.
        events: Seconds that taking in an event took, by its label.
        hints: Seconds of queueing hints, by plugin, event and answer.
        preemption_attempts: How often DefaultPreemption was asked.
        victims: Victims of preemptions that were carried out.
        preemptions: Seconds until the victims of a preemption were told to go, by how it ended.
    """

    def __init__(self) -> None:
        self.profiles: dict[str, ProfileMeasures] = {}
        self.algorithm = Histogram(ATTEMPT_BOUNDS)
        self.attempts_to_schedule = Histogram(COUNT_BOUNDS)
        self.sli: dict[str, Histogram] = {}
        self.plugins: dict[tuple[Point, str, Code], Histogram] = {}
        self.permit_waits: dict[Code, Histogram] = {}
        self.events: dict[str, Histogram] = {}
        self.hints: dict[tuple[str, str, str], Histogram] = {}
        self.preemption_attempts = 0
        self.victims = Histogram(VICTIM_BOUNDS)
        self.preemptions: dict[str, Histogram] = {}
        self._cycles = 0

    def profile(self, name: str) -> ProfileMeasures:
        """The measures of a profile; begun when they are first asked for."""
        found = self.profiles.get(name)
        if found is None:
            found = self.profiles[name] = ProfileMeasures()
        return found

    def drop_profile(self, name: str) -> None:
        """Forget a profile that is served no more."""
        self.profiles.pop(name, None)

    def next_is_sampled(self) -> bool:
        """Whether the cycle that begins has its plugins' times counted."""
        self._cycles += 1
        return self._cycles % SAMPLED_CYCLES == 0

    # -- cycles -------------------------------------------------------------------------------------------------

    def cycle_ended(self, profile: str, times: CycleTimes, *, is_sampled: bool) -> float:
        """Count a scheduling cycle or a binding cycle.

        Returns:
            When its search for a node ended; when it began, for a cycle without one.
        """
        of_points = self.profile(profile).points
        begun = searched = times.started
        for point, code, at in times.points:
            # Histogram.observe, written out: the call would be a third of what this costs.
            histogram, seconds = of_points[point][code], at - begun
            histogram.counts[0 if seconds <= _SHORTEST else bisect_left(POINT_BOUNDS, seconds)] += 1
            histogram.total += seconds
            begun = at
            if point <= LAST_OF_ALGORITHM:
                searched = at
                if point is _POST_FILTER:
                    self.preemption_attempts += sum(lap[:2] == _PREEMPTION for lap in times.laps)
        if is_sampled:
            self._count_plugins(times)
        return searched

    def _count_plugins(self, times: CycleTimes) -> None:
        for point, plugin, code, seconds in durations(times):
            key = point, plugin, code
            histogram = self.plugins.get(key)
            if histogram is None:
                histogram = self.plugins[key] = Histogram(PLUGIN_BOUNDS)
            histogram.counts[bisect_left(PLUGIN_BOUNDS, seconds)] += 1
            histogram.total += seconds

    def attempt_ended(self, profile: str, result: str, seconds: float) -> None:
        """Count an attempt, binding included."""
        self.profile(profile).attempts[result].observe(seconds)

    def pod_bound(self, attempts: int, seconds: float) -> None:
        """Count a pod.

        Args:
            attempts: How many it took.
            seconds: Since it first came to be tried.
        """
        self.attempts_to_schedule.observe(attempts)
        _observe(self.sli, "15+" if attempts >= _MANY_ATTEMPTS else str(attempts), SLI_BOUNDS, seconds)

    def permit_waited(self, code: Code, seconds: float) -> None:
        """Count a wait at Permit."""
        _observe(self.permit_waits, code, ATTEMPT_BOUNDS, seconds)

    # -- events -------------------------------------------------------------------------------------------------

    def event_handled(self, label: str, seconds: float) -> None:
        """Count an event that was taken into cache and queue."""
        _observe(self.events, label, POINT_BOUNDS, seconds)

    def hint_asked(self, plugin: str, event: str, answer: str, seconds: float) -> None:
        """Count a queueing hint; ``answer`` is Queue, QueueSkip or Error."""
        _observe(self.hints, (plugin, event, answer), PLUGIN_BOUNDS, seconds)

    # -- preemption ---------------------------------------------------------------------------------------------

    def preemption_started(self, victims: int) -> None:
        """Count a preemption that is carried out, by all of its victims."""
        self.victims.observe(victims)

    def preemption_ended(self, seconds: float, *, has_failed: bool) -> None:
        """Count a preemption whose evictions are all answered."""
        _observe(self.preemptions, FAILED if has_failed else SUCCEEDED, SLI_BOUNDS, seconds)


def _observe(histograms: dict[_K, Histogram], key: _K, bounds: Bounds, value: float) -> None:
    histogram = histograms.get(key)
    if histogram is None:
        histogram = histograms[key] = Histogram(bounds)
    histogram.observe(value)


def end_broken_point(times: CycleTimes, fault: Exception) -> None:
    """End the point that a fault broke off, if the fault says which; what follows must not be counted as its time."""
    if isinstance(fault, PluginError):
        point = _POINT_OF_FAULT.get(fault.point)
        if point is not None:
            times.point((point, Code.ERROR, times.now()))
