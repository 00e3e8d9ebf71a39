"""When each plugin and each extension point of one attempt ended.

Owns the readings, in order; what becomes of them is for whoever ends the cycle. One reading serves as the end of one
plugin and the beginning of the next, so a point is timed by one reading for each plugin and one more.

Why a plugin's reading is a bare number, without its name: a cycle takes some forty readings in 150 µs, and mostly
nobody asks whose they were. Who does asks with the order in which the plugins were run. What differs from an order's
usual answers is noted beside. States that belong to no attempt (what-if questions, explanations) note into nothing.
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

    # That of an enum is a function in Python.
    __hash__ = int.__hash__


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

PointEnd = int
"""Which point was run and what it answered as a whole, in one number: enums are slow to look things up by."""

ENDS: tuple[tuple[PointEnd, ...], ...] = tuple(tuple(len(Code) * point + code for code in Code) for point in Point)
"""The numbers by point and answer."""

ENDED: tuple[tuple[Point, Code], ...] = tuple((point, code) for point in Point for code in Code)
"""Point and answer by number."""

PluginOrder = Callable[[Point], Sequence[tuple[str, Code]]]
"""The plugins of a point in the order in which an attempt runs them, each with its usual answer."""

_MOST_SPARE = 128
_NOBODY = ("unknown", Code.SUCCESS)
"""Whose a lap is beyond the order: a plugin may have changed who is left out after it was run."""


def _ending(
    now: Callable[[], float], read: Callable[[float], None], note: Callable[[PointEnd], None]
) -> Callable[[PointEnd], None]:
    """Takes a reading and notes whose it is; a function with its parts at hand, which a method had to fetch."""

    def end(ended: PointEnd) -> None:
        read(now())
        note(ended)

    return end


class CycleTimes:
    """The readings of a scheduling cycle or of a binding cycle; they begin with :meth:`start`.

    Args:
        now: The clock.

    Attributes:
        now: The clock.
        laps: When plugins were done (the clock's seconds). Before those of each run of a point stands the point.
        lap: Adds to ``laps``.
        answers: What plugins answered that is not usual, by the place in ``laps``.
        readings: When the cycle began, and when each of its points was done.
        ends: The points that were run, with their answers; one shorter than ``readings``.
        end: Notes that a point was run; the number is one of :data:`ENDS`.
    """

    __slots__ = ("answers", "end", "ends", "lap", "laps", "now", "readings")

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        laps: list[float] = []
        self.laps = laps
        self.lap: Callable[[float], None] = laps.append
        self.answers: dict[int, Code] = {}
        self.readings: list[float] = []
        self.ends: list[PointEnd] = []
        self.end = _ending(now, self.readings.append, self.ends.append)

    def start(self) -> None:
        """A cycle begins."""
        self.readings.append(self.now())

    def resume(self) -> None:
        """The cycle goes on after it stood still for others, which is no part of it: what was read moves up to now."""
        paused = self.now() - self.readings[-1]
        self.readings[:] = [reading + paused for reading in self.readings]
        if self.laps:
            self.laps[:] = [lap if isinstance(lap, Point) else lap + paused for lap in self.laps]

    def take_back(self, count: int) -> None:
        """Forget the points after the first so many, which are run once more."""
        del self.ends[count:]
        del self.readings[count + 1 :]

    def clear(self) -> None:
        """Forget a cycle, for the next one."""
        self.laps.clear()
        self.readings.clear()
        self.ends.clear()
        if self.answers:
            self.answers.clear()

    def answered(self, code: Code) -> None:
        """The plugin whose lap was added last gave an answer that is not usual."""
        self.answers[len(self.laps) - 1] = code

    @property
    def started(self) -> float:
        """When the cycle began."""
        return self.readings[0]


class SpareTimes:
    """Readings that are used again and again: a cycle's own lists would be a part of what measuring costs.

    Args:
        now: The clock.
    """

    __slots__ = ("_now", "_spare")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._spare: list[CycleTimes] = []

    def take(self) -> CycleTimes:
        """Readings of a cycle that begins now."""
        times = self._spare.pop() if self._spare else CycleTimes(self._now)
        times.start()
        return times

    def give_back(self, times: CycleTimes) -> None:
        """Nobody looks at these any more; a cycle that breaks off may keep its own."""
        if len(self._spare) < _MOST_SPARE:
            times.clear()
            self._spare.append(times)


def plugin_laps(times: CycleTimes, order: PluginOrder) -> list[tuple[Point, str, Code, int, int]]:
    """Whose the laps of a cycle are, in order; the first of a point begins where the point before ended.

    Args:
        times: A cycle's.
        order: That of the attempt.

    Returns:
        Point, plugin, answer, and the places in :func:`row` of the readings with which the plugin began and ended.
    """
    found: list[tuple[Point, str, Code, int, int]] = []
    points = [ENDED[end][0] for end in times.ends]
    first_lap, ended, last = len(times.readings), 0, 0
    current: Point | None = None
    plugins: Iterator[tuple[str, Code]] = iter(())
    for place, lap in enumerate(times.laps):
        if isinstance(lap, Point):
            if lap in points[ended:]:
                last = points.index(lap, ended)
                ended = last + 1
            elif lap is not current:
                # A point that a fault broke off was not ended and stands behind the last one before it that was.
                while ended < len(points) and points[ended] < lap:
                    ended += 1
                last = ended
            current, plugins = lap, iter(order(lap))
        else:
            assert current is not None, "a run begins with its point"
            plugin, usual = next(plugins, _NOBODY)
            found.append((current, plugin, times.answers.get(place, usual), last, first_lap + place))
            last = first_lap + place
    return found


def row(times: CycleTimes) -> list[float]:
    """All that was noted of a cycle, in one: when it began, when its points were done, and its laps."""
    return times.readings + times.laps


def durations(times: CycleTimes, order: PluginOrder) -> list[tuple[Point, str, Code, float]]:
    """How long each plugin took: point, plugin, answer and seconds, in order."""
    noted = row(times)
    return [
        (point, plugin, code, noted[ended] - noted[begun])
        for point, plugin, code, begun, ended in plugin_laps(times, order)
    ]


class _Nothing(CycleTimes):
    """Readings that nobody wants: the clock stands still, and what is noted is dropped."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(float)
        self.lap = self.end = deque[float](maxlen=0).append

    def answered(self, code: Code) -> None:
        """Note nothing."""


UNTIMED: CycleTimes = _Nothing()
"""For states that belong to no attempt."""
