"""What the scheduler itself has counted of its extension points and plugins, in microseconds.

Owns how its histograms become such numbers. It must not know what was decided. Nothing is added to what is timed: the
scheduler takes these readings in the operator too, for its metrics, so that what they cost is part of what it costs.

The readings are of a clock on the wall, which also counts what the machine does meanwhile. Extension points are counted
in every cycle, and so can be told by the pod; plugins in few cycles only, in which each is asked the whole way, even if
what is kept of a pod that was alike would have served: they are told by the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.workload import SCHEDULER_NAME
from scheduler_core.cycle.measures import Measures
from scheduler_core.framework.cycle_times import LABELS, Point


@dataclass(frozen=True, slots=True)
class Spent:
    """What was counted of one part.

    Attributes:
        seconds: All together.
        runs: How many times.
    """

    seconds: float = 0.0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """What was counted since the scheduler began.

    Attributes:
        points: By extension point, as the metrics call it.
        plugins: By ``point/plugin``.
    """

    points: Mapping[str, Spent]
    plugins: Mapping[str, Spent]


def parts_of(measures: Measures) -> Parts:
    """Read what was counted so far."""
    measures.settle()
    points: defaultdict[str, Spent] = defaultdict(Spent)
    plugins: defaultdict[str, Spent] = defaultdict(Spent)
    for point in Point:
        for histogram in measures.profile(SCHEDULER_NAME).points[point]:
            name = LABELS[point]
            points[name] = Spent(points[name].seconds + histogram.total, points[name].runs + histogram.count)
    for (point, plugin, _), histogram in measures.plugins.items():
        name = f"{LABELS[point]}/{plugin}"
        plugins[name] = Spent(plugins[name].seconds + histogram.total, plugins[name].runs + histogram.count)
    return Parts(points, plugins)


def between(before: Mapping[str, Spent], after: Mapping[str, Spent], pods: int = 0) -> dict[str, float]:
    """What came to be between two readings.

    Args:
        before: At the beginning.
        after: At the end.
        pods: How many pods share it; 0 if each run is to be told of.

    Returns:
        Microseconds a pod or a run; what was not run is left out.
    """
    found = {}
    for name, spent in after.items():
        earlier = before.get(name, Spent())
        runs = spent.runs - earlier.runs
        if runs:
            found[name] = 1e6 * (spent.seconds - earlier.seconds) / (pods or runs)
    return found
