"""When each plugin and each extension point of one attempt ended.

Owns the readings, in order; what becomes of them is for whoever ends the cycle. One reading serves as the end of one
plugin and the beginning of the next, so a point is timed by one reading for each plugin and one more.

Why the two lists are filled through bound ``append`` methods: a cycle notes about forty readings in some 150 µs, and a
method of ours around each would cost as much again. States that belong to no attempt (what-if questions, explanations)
note into nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum

from scheduler_core.framework.status import Code


class Point(IntEnum):
    """Extension points and waits, in the order in which a cycle runs them."""

    PRE_FILTER = 0
    FILTER = 1
    POST_FILTER = 2
    PRE_SCORE = 3
    SCORE = 4
    EXTENDERS = 5
    RESERVE = 6
    PERMIT = 7
    UNRESERVE = 8
    PRE_BIND_PRE_FLIGHT = 9
    WAIT_ON_PERMIT = 10
    PRE_BIND = 11
    BIND = 12
    POST_BIND = 13
    PRE_ENQUEUE = 14


NO_EXTENSION_POINTS = (Point.EXTENDERS, Point.WAIT_ON_PERMIT)
"""Stages of a cycle in which no plugin is run; extenders also filter."""

LAST_OF_ALGORITHM = Point.EXTENDERS
"""Up to here a cycle searches a node; what follows holds it."""

LABELS = (
    "PreFilter",
    "Filter",
    "PostFilter",
    "PreScore",
    "Score",
    "Extenders",
    "Reserve",
    "Permit",
    "Unreserve",
    "PreBindPreFlight",
    "WaitOnPermit",
    "PreBind",
    "Bind",
    "PostBind",
    "PreEnqueue",
)
"""What kube-scheduler's metrics call the points, by number."""

Lap = tuple[Point, str, Code, float]
"""A plugin has been run: where, its name, what it answered, and when it was done (the clock's seconds)."""

PointEnd = tuple[Point, Code, float]
"""A point has been run: which, what it answered as a whole, and when it was done."""


class CycleTimes:
    """The readings of a scheduling cycle or of a binding cycle.

    Args:
        now: The clock.

    Attributes:
        now: The clock.
        started: When the cycle began.
        laps: Plugins that were run.
        points: Points that were run.
        lap: Adds to ``laps``.
        point: Adds to ``points``.
    """

    __slots__ = ("lap", "laps", "now", "point", "points", "started")

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.started = now()
        laps: list[Lap] = []
        points: list[PointEnd] = []
        self.laps = laps
        self.points = points
        self.lap: Callable[[Lap], None] = laps.append
        self.point: Callable[[PointEnd], None] = points.append


def durations(times: CycleTimes) -> list[tuple[Point, str, Code, float]]:
    """How long each plugin took, in order; the first of a point begins where the point before ended.

    Returns:
        Point, plugin, answer and seconds.
    """
    begins: dict[Point, float] = {}
    begun = times.started
    for point, _, at in times.points:
        begins.setdefault(point, begun)
        begun = at
    found: list[tuple[Point, str, Code, float]] = []
    current: Point | None = None
    last = begun
    for point, plugin, code, at in times.laps:
        if point is not current:
            current = point
            # A point that a fault broke off was not ended and stands behind the last that was.
            last = begins.get(point, begun)
        found.append((point, plugin, code, at - last))
        last = at
    return found


class _Nothing(CycleTimes):
    """Readings that nobody wants: the clock stands still, and what is noted is dropped."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(float)
        self.lap = deque[Lap](maxlen=0).append
        self.point = deque[PointEnd](maxlen=0).append


UNTIMED: CycleTimes = _Nothing()
"""For states that belong to no attempt."""
