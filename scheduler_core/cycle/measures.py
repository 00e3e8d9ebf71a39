"""What cycles cost and how they end, counted as kube-scheduler counts it.

Owns the numbers; the operator exports them, and calls :meth:`Measures.settle` before it reads any. It must not know
their names there, nor decide anything by them. Bounds and what is observed when follow kube-scheduler v1.36.3,
``pkg/scheduler/metrics/metrics.go``.

What every cycle observes is kept as it was read and counted for hundreds of cycles at once: one number after the other
would cost ten times as much.

Why a plugin's own time is counted in one cycle of ten only: so does the reference (by chance, here by counting, so that
equal runs give equal numbers), and it would be the larger half of what measuring costs.
"""

from __future__ import annotations

from typing import TypeVar

from scheduler_core.cycle.cycle_tables import CyclesOfPlugins, CyclesOfPoints
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_times import ENDS, CycleTimes, PluginOrder, Point
from scheduler_core.framework.histogram import Backlog, Backlogs, Bounds, Histogram, exponential_bounds
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
WAITING_ON_PREEMPTION = "waiting_on_preemption"
"""How an attempt of a gang ends beside those: it was not placed, and pods are evicted for it."""
SUCCEEDED, FAILED = "success", "error"
SAMPLED_CYCLES = 10
"""One of so many cycles has its plugins' times counted."""

_K = TypeVar("_K")
_MANY_ATTEMPTS = 15
_PREEMPTION = "DefaultPreemption"
_SETTLED_CYCLES = 500
"""After so many cycles they are counted, whether anybody reads the numbers or not."""
_POINT_OF_FAULT = {
    "preFilter": Point.PRE_FILTER,
    "filter": Point.FILTER,
    "preScore": Point.PRE_SCORE,
    "score": Point.SCORE,
    "normalizeScore": Point.SCORE,
}


class ProfileMeasures:
    """What the attempts of one profile cost.

    Args:
        algorithm: Where seconds of the search for a node are counted, for all profiles together.

    Attributes:
        points: Seconds by point and by what it answered; both are numbers, so that the lists are looked up by them.
        attempts: Seconds of attempts by their result, binding included.
        evaluations: How often plugins were asked.
        scheduling: Scheduling cycles that wait to be counted.
        binding: Binding cycles that do.
        scheduled: Seconds of attempts that succeeded, which do.
        groups: Seconds of gangs' attempts by their result, from the pop until their binding begins.
        gang_waits: Seconds from when a gang's quorum was there to be tried until it was placed.
        gates: Seconds of PreEnqueue by answer, which do.
        reused: Pods whose node was chosen from reused results.
        reuse_errors: Errors in the reuse of results, by plugin; "" for the scheduler's own.
    """

    __slots__ = (
        "attempts",
        "binding",
        "evaluations",
        "gang_waits",
        "gates",
        "groups",
        "points",
        "reuse_errors",
        "reused",
        "scheduled",
        "scheduling",
    )

    def __init__(self, algorithm: Histogram) -> None:
        self.points = [[Histogram(POINT_BOUNDS) for _ in Code] for _ in Point]
        self.attempts = {result: Histogram(ATTEMPT_BOUNDS) for result in (SCHEDULED, UNSCHEDULABLE, ERROR)}
        self.groups = {
            result: Histogram(ATTEMPT_BOUNDS) for result in (SCHEDULED, UNSCHEDULABLE, WAITING_ON_PREEMPTION, ERROR)
        }
        self.gang_waits = Histogram(SLI_BOUNDS)
        self.evaluations = Evaluations()
        self.scheduling = CyclesOfPoints(self.points, algorithm)
        self.binding = CyclesOfPoints(self.points)
        self.scheduled = Backlog()
        self.gates = tuple(Backlog() for _ in Code)
        self.reused = 0
        self.reuse_errors: dict[str, int] = {}

    def settle(self) -> None:
        """Count what waits."""
        self.scheduling.settle()
        self.binding.settle()
        self.scheduled.settle(self.attempts[SCHEDULED])
        for backlog, histogram in zip(self.gates, self.points[Point.PRE_ENQUEUE], strict=True):
            backlog.settle(histogram)


class _Profiles(dict[str, ProfileMeasures]):
    """Measures by profile, begun when they are first asked for: looked up in every cycle, without a call of ours."""

    def __init__(self, algorithm: Histogram) -> None:
        super().__init__()
        self._algorithm = algorithm

    def __missing__(self, name: str) -> ProfileMeasures:
        found = self[name] = ProfileMeasures(self._algorithm)
        return found


class Measures:
    """What the scheduler costs and does.

    Attributes:
        profiles: By scheduler name; begun when they are first looked up.
        algorithm: Seconds of the search for a node, PreFilter to Score or PostFilter.
        group_algorithm: Seconds of the search for nodes for a whole gang, Reserve and Permit included.
        attempts_to_schedule: Attempts of pods that were bound.
        sli: Seconds from a pod's first attempt until it was bound, by its attempts.
        plugins: Seconds of plugins in sampled cycles, by point, plugin and answer.
        permit_waits: Seconds at Permit, by what came of it.
        events: Seconds that taking in an event took, by its label.
        hints: Seconds of queueing hints, by plugin, event and answer (Queue, QueueSkip or Error).
        sampled: Of ``plugins``, cycles that wait to be counted.
        events_told: Of ``events``, what waits to be counted.
        hints_asked: Of ``hints``, what waits to be counted.
        preemption_attempts: How often DefaultPreemption was asked.
        victims: Victims of preemptions that were carried out.
        preemptions: Seconds until the victims of a preemption were told to go, by how it ended.
    """

    def __init__(self) -> None:
        self.algorithm = Histogram(ATTEMPT_BOUNDS)
        self.group_algorithm = Histogram(ATTEMPT_BOUNDS)
        self.profiles: dict[str, ProfileMeasures] = _Profiles(self.algorithm)
        self.attempts_to_schedule = Histogram(COUNT_BOUNDS)
        self.sli: dict[str, Histogram] = {}
        self.plugins: dict[tuple[Point, str, Code], Histogram] = {}
        self.permit_waits: dict[Code, Histogram] = {}
        self.events: dict[str, Histogram] = {}
        self.hints: dict[tuple[str, str, str], Histogram] = {}
        self.events_told = Backlogs(self.events, POINT_BOUNDS)
        self.hints_asked = Backlogs(self.hints, PLUGIN_BOUNDS)
        self.preemption_attempts = 0
        self.victims = Histogram(VICTIM_BOUNDS)
        self.preemptions: dict[str, Histogram] = {}
        self.sampled = CyclesOfPlugins(self.plugins, PLUGIN_BOUNDS)
        self._attempts = Backlog()
        self._sli = Backlogs(self.sli, SLI_BOUNDS)
        self._sli_of = tuple(self._sli.of(str(attempts)) for attempts in range(_MANY_ATTEMPTS))
        self._sli_of_many = self._sli.of(f"{_MANY_ATTEMPTS}+")
        self._cycles = 0

    def profile(self, name: str) -> ProfileMeasures:
        """The measures of a profile; begun when they are first asked for."""
        return self.profiles[name]

    def drop_profile(self, name: str) -> None:
        """Forget a profile that is served no more."""
        dropped = self.profiles.pop(name, None)
        if dropped is not None:
            dropped.settle()

    def settle(self) -> None:
        """Count all that waits; the histograms are up to date until the next cycle or event."""
        for profile in self.profiles.values():
            profile.settle()
        self.sampled.settle()
        self.events_told.settle()
        self.hints_asked.settle()
        self._attempts.settle(self.attempts_to_schedule)
        self._sli.settle()

    def next_is_sampled(self) -> bool:
        """Whether the cycle that begins has its plugins' times counted."""
        self._cycles += 1
        if self._cycles % SAMPLED_CYCLES:
            return False
        if self._cycles % _SETTLED_CYCLES == 0:
            self.settle()
        return True

    # -- cycles -------------------------------------------------------------------------------------------------

    def count_preemptions(self, times: CycleTimes, order: PluginOrder) -> None:
        """Count how often a cycle that has failed asked DefaultPreemption: PostFilter is then the last that was run."""
        for asked, entry in enumerate(reversed(times.plugin_times)):
            if isinstance(entry, Point):
                if entry is Point.POST_FILTER:
                    self.preemption_attempts += sum(plugin == _PREEMPTION for plugin, _ in order(entry)[:asked])
                return

    def attempt_failed(self, profile: str, result: str, seconds: float) -> None:
        """Count an attempt that failed, in whichever cycle."""
        self.profile(profile).attempts[result].observe(seconds)

    def group_attempted(self, profile: str, result: str, algorithm: float, seconds: float) -> None:
        """Count an attempt of a gang.

        Args:
            profile: The scheduler name.
            result: How it ended.
            algorithm: Seconds of the search.
            seconds: Of the whole attempt, until binding began or the gang was told why not.
        """
        self.group_algorithm.observe(algorithm)
        self.profile(profile).groups[result].observe(seconds)

    def pod_bound(self, attempts: int, seconds: float) -> None:
        """Count a pod.

        Args:
            attempts: How many it took.
            seconds: Since it first came to be tried.
        """
        self._attempts.observe(attempts)
        backlog = self._sli_of[attempts] if attempts < _MANY_ATTEMPTS else self._sli_of_many
        backlog.observe(seconds)

    def permit_waited(self, code: Code, seconds: float) -> None:
        """Count a wait at Permit."""
        _observe(self.permit_waits, code, ATTEMPT_BOUNDS, seconds)

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
            times.end(ENDS[point][Code.ERROR])
