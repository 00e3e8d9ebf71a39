"""Readings of a cycle, made into durations."""

from __future__ import annotations

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import UNTIMED, CycleTimes, Point, durations
from scheduler_core.framework.status import Code
from tests.support.virtual_clock import VirtualClock


def timed(clock: VirtualClock, times: CycleTimes, seconds: float, point: Point, plugin: str = "") -> None:
    clock.advance(seconds)
    if plugin:
        times.lap((point, plugin, Code.SUCCESS, times.now()))
    else:
        times.point((point, Code.SUCCESS, times.now()))


def test_a_plugin_lasts_from_the_reading_before_it() -> None:
    """The first of a point begins where the point before ended, any other where the one before it did."""
    clock = VirtualClock()
    times = CycleTimes(clock.now)
    timed(clock, times, 1, Point.PRE_FILTER, "A")
    timed(clock, times, 2, Point.PRE_FILTER, "B")
    timed(clock, times, 4, Point.PRE_FILTER)
    timed(clock, times, 8, Point.FILTER, "A")
    timed(clock, times, 16, Point.FILTER)
    assert [(point, plugin, seconds) for point, plugin, _, seconds in durations(times)] == [
        (Point.PRE_FILTER, "A", 1),
        (Point.PRE_FILTER, "B", 2),
        (Point.FILTER, "A", 8),
    ]


def test_a_point_that_was_broken_off() -> None:
    """Its plugins count from the end of the point before."""
    clock = VirtualClock()
    times = CycleTimes(clock.now)
    timed(clock, times, 1, Point.PRE_FILTER)
    timed(clock, times, 2, Point.FILTER, "A")
    assert [seconds for *_, seconds in durations(times)] == [2]


def test_a_clone_notes_nothing() -> None:
    """What-if questions are no part of an attempt's times."""
    state = CycleState()
    state.times = CycleTimes(VirtualClock().now)
    what_if = state.clone().times
    assert what_if is UNTIMED
    what_if.lap((Point.FILTER, "A", Code.SUCCESS, what_if.now()))
    what_if.point((Point.FILTER, Code.SUCCESS, what_if.now()))
    assert (what_if.laps, what_if.points, state.times.laps) == ([], [], [])
