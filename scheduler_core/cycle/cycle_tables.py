"""Cycles that wait to be counted, many at a time.

Owns tables of what was read in cycles. Those that went the same way are the rows of one table, so that whose the
columns are is found out once, and all rows are counted in a few array operations. Must not know who reads the counts.

Why the tables are dropped when they are counted: the ways are few at a time, but with time there are many.
"""

from __future__ import annotations

from array import array

import numpy as np
from msgspec import Struct, field

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import (
    ENDED,
    LAST_OF_ALGORITHM,
    CycleTimes,
    Point,
    PointEnd,
    plugin_intervals,
    row,
)
from scheduler_core.framework.histogram import Bounds, Histogram, observe_columns
from scheduler_core.framework.status import Code
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.plugin_order import plugin_order


class CyclesOfPoints:
    """Cycles of a profile whose points are to be counted; a way is the points that were run, with their answers.

    Args:
        points: Where they are counted, by point and answer.
        algorithm: Where the search for a node is counted; None for cycles without one.
    """

    __slots__ = ("_algorithm", "_points", "_tables")

    def __init__(self, points: list[list[Histogram]], algorithm: Histogram | None = None) -> None:
        self._points = points
        self._algorithm = algorithm
        self._tables: dict[tuple[PointEnd, ...], array[float]] = {}

    def add(self, times: CycleTimes) -> None:
        """Keep a cycle's readings."""
        way = tuple(times.ends)
        table = self._tables.get(way)
        if table is None:
            table = self._tables[way] = array("d")
        table.fromlist(times.point_times)

    def settle(self) -> None:
        """Count all cycles that were kept."""
        for way, table in self._tables.items():
            readings = np.array(table).reshape(-1, len(way) + 1)
            points = [ENDED[end] for end in way]
            if points:
                observe_columns([self._points[point][code] for point, code in points], np.diff(readings, axis=1))
            if self._algorithm is not None:
                searched = sum(point <= LAST_OF_ALGORITHM for point, _ in points)
                observe_columns((self._algorithm,), readings[:, [searched]] - readings[:, [0]])
        self._tables.clear()


class _PluginTable(Struct):
    """Cycles that went one way.

    Attributes:
        columns: Point, plugin and answer of each duration.
        begun: Where in a row it begins.
        ended: Where it ends.
        width: Numbers in a row.
        rows: One after the other.
    """

    columns: list[tuple[Point, str, Code]]
    begun: list[int]
    ended: list[int]
    width: int
    rows: array[float] = field(default_factory=lambda: array("d"))


class CyclesOfPlugins:
    """Cycles whose plugins are to be counted; a way is who was asked where, and what they answered.

    Args:
        plugins: Where they are counted, by point, plugin and answer.
        bounds: Those of histograms that are begun.
    """

    __slots__ = ("_bounds", "_plugins", "_tables")

    def __init__(self, plugins: dict[tuple[Point, str, Code], Histogram], bounds: Bounds) -> None:
        self._plugins = plugins
        self._bounds = bounds
        self._tables: dict[tuple[object, ...], _PluginTable] = {}

    def add(self, instance: FrameworkInstance, state: CycleState) -> None:
        """Keep what was noted in a cycle of ``instance``, and is still in its state."""
        times = state.times
        way = (
            instance.name,
            instance.revision,
            tuple(times.ends),
            tuple((place, entry) for place, entry in enumerate(times.plugin_times) if isinstance(entry, Point)),
            tuple(times.statuses.items()),
            frozenset(state.skip_filter),
            frozenset(state.skip_score),
            frozenset(state.skip_pre_bind),
            len(times.plugin_times),
        )
        table = self._tables.get(way)
        if table is None:
            intervals = plugin_intervals(times, plugin_order(instance, state))
            columns = [(point, plugin, code) for point, plugin, code, _, _ in intervals]
            table = _PluginTable(
                columns, [entry[3] for entry in intervals], [entry[4] for entry in intervals], len(row(times))
            )
            self._tables[way] = table
        table.rows.fromlist(row(times))

    def settle(self) -> None:
        """Count all cycles that were kept."""
        for table in self._tables.values():
            if table.columns:
                rows = np.array(table.rows).reshape(-1, table.width)
                seconds = rows[:, table.ended] - rows[:, table.begun]
                observe_columns([self._of(column) for column in table.columns], seconds)
        self._tables.clear()

    def _of(self, column: tuple[Point, str, Code]) -> Histogram:
        histogram = self._plugins.get(column)
        if histogram is None:
            histogram = self._plugins[column] = Histogram(self._bounds)
        return histogram
