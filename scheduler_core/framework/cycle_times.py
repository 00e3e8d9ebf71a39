"""Timings of one attempt: when each plugin and each extension point ended.

One clock reading is the end of one plugin and the start of the next, so a point takes one reading per plugin and one
more. A plugin's reading is a bare number without the plugin's name, because a cycle takes some forty readings in 150 µs
and few cycles are reported in detail; :func:`plugin_intervals` adds the names from the order in which the plugins ran.
Statuses that differ from the usual ones of that order are recorded separately. Dry runs record nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
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

    # The hash of an Enum is computed by a Python function, which is slower.
    __hash__ = int.__hash__


NO_EXTENSION_POINTS = (Point.EXTENDERS, Point.WAIT_ON_PERMIT)
"""Stages of a cycle that run no plugin; extenders also run at Filter."""

LAST_OF_ALGORITHM = Point.EXTENDERS
"""The last point at which the cycle searches for a node; the points after it reserve the node."""

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
"""Names of the points in kube-scheduler's metrics, by number."""

PointEnd = int
"""An extension point and its overall status in one number, because lookups by enum are slow."""

ENDS: tuple[tuple[PointEnd, ...], ...] = tuple(tuple(len(Code) * point + code for code in Code) for point in Point)
"""The numbers by point and status."""

ENDED: tuple[tuple[Point, Code], ...] = tuple((point, code) for point in Point for code in Code)
"""Point and status by number."""

PluginOrder = Callable[[Point], Sequence[tuple[str, Code]]]
"""Returns the plugins of a point in the order in which an attempt runs them, each with its usual status."""

_MOST_SPARE = 128
_UNKNOWN = ("unknown", Code.SUCCESS)
"""Entry for times beyond the end of the order: a plugin may change the set of skipped plugins after it ran."""


def _ending(
    now: Callable[[], float], read: Callable[[float], None], note: Callable[[PointEnd], None]
) -> Callable[[PointEnd], None]:
    """Return a function that records the clock and the point; a closure is faster here than a method."""

    def end(ended: PointEnd) -> None:
        read(now())
        note(ended)

    return end


class CycleTimes:
    """Clock readings of a scheduling cycle or a binding cycle; :meth:`start` records the first.

    Args:
        now: The clock.

    Attributes:
        now: The clock.
        plugin_times: End times of plugins, in seconds. Each run of a point starts with the point itself.
        add_plugin_time: Appends to ``plugin_times``.
        statuses: Statuses of plugins that differ from the usual one, by index in ``plugin_times``.
        point_times: The start of the cycle, then the end of each point, in seconds.
        ends: The points that ran, with their statuses; one entry fewer than ``point_times``.
        end: Records the end of a point; the argument is one of :data:`ENDS`.
    """

    __slots__ = ("add_plugin_time", "end", "ends", "now", "plugin_times", "point_times", "statuses")

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        plugin_times: list[float] = []
        self.plugin_times = plugin_times
        self.add_plugin_time: Callable[[float], None] = plugin_times.append
        self.statuses: dict[int, Code] = {}
        self.point_times: list[float] = []
        self.ends: list[PointEnd] = []
        self.end = _ending(now, self.point_times.append, self.ends.append)

    def start(self) -> None:
        """Record the start of the cycle."""
        self.point_times.append(self.now())

    def resume(self) -> None:
        """Shift all times by the duration of a pause, which does not count towards the cycle, so that it ends now."""
        paused = self.now() - self.point_times[-1]
        self.point_times[:] = [reading + paused for reading in self.point_times]
        if self.plugin_times:
            self.plugin_times[:] = [time if isinstance(time, Point) else time + paused for time in self.plugin_times]

    def truncate(self, count: int) -> None:
        """Drop all points after the first *count*, because they run again."""
        del self.ends[count:]
        del self.point_times[count + 1 :]

    def clear(self) -> None:
        """Drop all point_times, for the next cycle."""
        self.plugin_times.clear()
        self.point_times.clear()
        self.ends.clear()
        if self.statuses:
            self.statuses.clear()

    def set_status(self, code: Code) -> None:
        """Record a status other than the usual one for the plugin whose time was added last."""
        self.statuses[len(self.plugin_times) - 1] = code

    @property
    def started(self) -> float:
        """When the cycle started, in seconds."""
        return self.point_times[0]


class CycleTimesPool:
    """Pool of :class:`CycleTimes`, because allocating lists for each cycle would add to the measured time.

    Args:
        now: The clock.
    """

    __slots__ = ("_now", "_spare")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._spare: list[CycleTimes] = []

    def take(self) -> CycleTimes:
        """Return the timings of a cycle that starts now."""
        times = self._spare.pop() if self._spare else CycleTimes(self._now)
        times.start()
        return times

    def release(self, times: CycleTimes) -> None:
        """Return timings to the pool once nothing refers to them; a cycle that is aborted may skip this call."""
        if len(self._spare) < _MOST_SPARE:
            times.clear()
            self._spare.append(times)


def plugin_intervals(times: CycleTimes, order: PluginOrder) -> list[tuple[Point, str, Code, int, int]]:
    """Return which plugin each time of a cycle belongs to, in order; a point starts when the point before it ended.

    Args:
        times: Timings of the cycle.
        order: The plugin order of the attempt.

    Returns:
        Point, plugin, status, and the indices in :func:`row` of the times at which the plugin started and ended.
    """
    found: list[tuple[Point, str, Code, int, int]] = []
    points = [ENDED[end][0] for end in times.ends]
    first_time, ended, last = len(times.point_times), 0, 0
    current: Point | None = None
    plugins: Iterator[tuple[str, Code]] = iter(())
    for place, time in enumerate(times.plugin_times):
        if isinstance(time, Point):
            if time in points[ended:]:
                last = points.index(time, ended)
                ended = last + 1
            elif time is not current:
                # A point that an exception aborted has no end; it follows the last point before it that ended.
                while ended < len(points) and points[ended] < time:
                    ended += 1
                last = ended
            current, plugins = time, iter(order(time))
        else:
            assert current is not None, "a run begins with its point"
            plugin, usual = next(plugins, _UNKNOWN)
            found.append((current, plugin, times.statuses.get(place, usual), last, first_time + place))
            last = first_time + place
    return found


def row(times: CycleTimes) -> list[float]:
    """Return all times of a cycle in one list: its start, the ends of its points, and the ends of its plugins."""
    return times.point_times + times.plugin_times


def durations(times: CycleTimes, order: PluginOrder) -> list[tuple[Point, str, Code, float]]:
    """Return how long each plugin took: point, plugin, status and seconds, in order."""
    noted = row(times)
    return [
        (point, plugin, code, noted[ended] - noted[begun])
        for point, plugin, code, begun, ended in plugin_intervals(times, order)
    ]


class _NoTimes(CycleTimes):
    """Timings that are discarded; the clock stands still."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(float)
        self.add_plugin_time = self.end = deque[float](maxlen=0).append

    def set_status(self, code: Code) -> None:
        """Do nothing."""


UNTIMED: CycleTimes = _NoTimes()
"""For states that belong to no attempt, such as dry runs."""
