"""Times of extension points and plugins from the scheduler's own histograms, in microseconds.

The measurement adds nothing to the timed code: the operator records the same histograms for its metrics.

They are wall-clock times, which include other load of the machine. Extension points are timed in every cycle, so their
times are per pod. Plugins are timed in few cycles, which always run the full scheduling cycle, so their times are per
run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.workload import SCHEDULER_NAME
from scheduler_core.framework.cycle_state import STAGE_NAMES, CycleStage
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics


@dataclass(frozen=True, slots=True)
class Spent:
    """Counts of one part."""

    seconds: float = 0.0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """Times since the scheduler started.

    Attributes:
        points: By extension point, with its name in the metrics.
        plugins: By ``point/plugin``.
    """

    points: Mapping[str, Spent]
    plugins: Mapping[str, Spent]


def parts_of(metrics: SchedulerMetrics) -> Parts:
    """Read the current counts."""
    metrics.settle()
    points: defaultdict[str, Spent] = defaultdict(Spent)
    plugins: defaultdict[str, Spent] = defaultdict(Spent)
    for point in CycleStage:
        for histogram in metrics.profiles[SCHEDULER_NAME].stages.histograms[point]:
            name = STAGE_NAMES[point]
            points[name] = Spent(points[name].seconds + histogram.total, points[name].runs + histogram.count)
    for (point, plugin, _), histogram in metrics.plugins.items():
        name = f"{STAGE_NAMES[point]}/{plugin}"
        plugins[name] = Spent(plugins[name].seconds + histogram.total, plugins[name].runs + histogram.count)
    return Parts(points, plugins)


def between(before: Mapping[str, Spent], after: Mapping[str, Spent], pods: int = 0) -> dict[str, float]:
    """Return the difference between two readings.

    Args:
        pods: Number of pods to divide by; 0 to divide by the number of runs.

    Returns:
        Microseconds per pod or per run; parts that did not run are left out.
    """
    found = {}
    for name, spent in after.items():
        earlier = before.get(name, Spent())
        runs = spent.runs - earlier.runs
        if runs:
            found[name] = 1e6 * (spent.seconds - earlier.seconds) / (pods or runs)
    return found
