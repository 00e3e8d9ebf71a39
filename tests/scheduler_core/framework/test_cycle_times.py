"""Timings of a cycle, converted to durations."""

from __future__ import annotations

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import ENDS, UNTIMED, CycleTimes, CycleTimesPool, Point, durations
from scheduler_core.framework.status import Code
from tests.support.virtual_clock import VirtualClock


def time(clock: VirtualClock, times: CycleTimes, *seconds: float) -> None:
    for each in seconds:
        clock.advance(each)
        times.add_plugin_time(times.now())


def end(clock: VirtualClock, times: CycleTimes, seconds: float, point: Point) -> None:
    clock.advance(seconds)
    times.end(ENDS[point][Code.SUCCESS])


def begun() -> tuple[VirtualClock, CycleTimes]:
    clock = VirtualClock()
    times = CycleTimes(clock.now)
    times.start()
    return clock, times


def a_and_b(point: Point) -> list[tuple[str, Code]]:
    del point
    return [("A", Code.SUCCESS), ("B", Code.SKIP)]


def test_a_plugin_lasts_from_the_reading_before_it() -> None:
    """The first plugin of a point starts at the end of the previous point, others at the end of the plugin before."""
    clock, times = begun()
    times.add_plugin_time(Point.PRE_FILTER)
    time(clock, times, 1, 2)
    end(clock, times, 4, Point.PRE_FILTER)
    times.add_plugin_time(Point.FILTER)
    time(clock, times, 8)
    end(clock, times, 16, Point.FILTER)
    assert durations(times, a_and_b) == [
        (Point.PRE_FILTER, "A", Code.SUCCESS, 1),
        (Point.PRE_FILTER, "B", Code.SKIP, 2),
        (Point.FILTER, "A", Code.SUCCESS, 8),
    ]


def test_a_pause_does_not_count() -> None:
    """A pause shifts the earlier times, so that the cycle ends at the clock's time."""
    clock, times = begun()
    times.add_plugin_time(Point.RESERVE)
    time(clock, times, 1)
    end(clock, times, 2, Point.RESERVE)
    clock.advance(512)
    times.resume()
    times.add_plugin_time(Point.PERMIT)
    time(clock, times, 4)
    end(clock, times, 8, Point.PERMIT)
    assert [(point, seconds) for point, *_, seconds in durations(times, a_and_b)] == [
        (Point.RESERVE, 1),
        (Point.PERMIT, 4),
    ]
    assert times.point_times[-1] == clock.now()
    assert times.point_times[-1] - times.point_times[0] == 15


def test_a_point_that_was_broken_off() -> None:
    """Its plugins count from the end of the previous point, also if other points ran after it."""
    clock, times = begun()
    end(clock, times, 1, Point.PRE_FILTER)
    times.add_plugin_time(Point.FILTER)
    time(clock, times, 2)
    times.add_plugin_time(Point.UNRESERVE)
    time(clock, times, 4)
    end(clock, times, 8, Point.UNRESERVE)
    assert [(point, seconds) for point, *_, seconds in durations(times, a_and_b)] == [
        (Point.FILTER, 2),
        (Point.UNRESERVE, 6),
    ]


def test_a_point_that_was_run_twice() -> None:
    """Each run starts at the end of the previous point; the time in between counts for no plugin."""
    clock, times = begun()
    for _ in range(2):
        times.add_plugin_time(Point.FILTER)
        time(clock, times, 1)
        end(clock, times, 2, Point.FILTER)
        end(clock, times, 4, Point.EXTENDERS)
    assert [seconds for *_, seconds in durations(times, a_and_b)] == [1, 1]


def test_an_answer_that_is_not_usual() -> None:
    """The status belongs to the plugin whose time was added last."""
    clock, times = begun()
    times.add_plugin_time(Point.RESERVE)
    time(clock, times, 1)
    times.set_status(Code.UNSCHEDULABLE)
    time(clock, times, 1)
    assert [code for _, _, code, _ in durations(times, a_and_b)] == [Code.UNSCHEDULABLE, Code.SKIP]


def test_readings_that_are_used_again_hold_nothing_of_the_cycle_before() -> None:
    """A cycle sees only its own times, statuses and points."""
    clock = VirtualClock()
    spare = CycleTimesPool(clock.now)
    times = spare.take()
    times.add_plugin_time(Point.FILTER)
    time(clock, times, 1)
    times.set_status(Code.UNSCHEDULABLE)
    end(clock, times, 1, Point.FILTER)
    spare.release(times)
    again = spare.take()
    assert again is times
    assert (again.plugin_times, again.statuses, again.point_times, again.ends) == ([], {}, [clock.now()], [])


def test_a_clone_notes_nothing() -> None:
    """Dry runs are not part of an attempt's times."""
    state = CycleState()
    state.times = CycleTimes(VirtualClock().now)
    dry_run = state.clone().times
    assert dry_run is UNTIMED
    dry_run.add_plugin_time(dry_run.now())
    dry_run.set_status(Code.UNSCHEDULABLE)
    dry_run.end(ENDS[Point.FILTER][Code.SUCCESS])
    assert (dry_run.plugin_times, dry_run.statuses, dry_run.ends, state.times.plugin_times) == ([], {}, [], [])
