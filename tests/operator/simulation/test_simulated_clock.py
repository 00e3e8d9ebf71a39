"""Tests of the virtual time of simulations."""

import asyncio
from datetime import timedelta

from bayplan.simulation.memory_cluster import SimulatedClock


def test_timers_run_in_order() -> None:
    """The clock advances from timer to timer, and timers of equal times run in the order of their creation."""
    clock, ran = SimulatedClock(), list[tuple[str, float]]()
    for name, seconds in (("late", 5.0), ("early", 1.0), ("early too", 1.0)):
        clock.call_later(seconds, lambda name=name: ran.append((name, clock.now())))  # type: ignore[misc]  # a default binds the name
    while clock.advance(10.0):
        pass
    assert ran == [("early", 1.0), ("early too", 1.0), ("late", 5.0)]


def test_the_clock_does_not_exceed_the_limit() -> None:
    """A timer beyond the limit does not run, and the time does not change."""
    clock, ran = SimulatedClock(), list[int]()
    clock.call_later(5.0, lambda: ran.append(1))
    assert not clock.advance(4.9)
    assert (ran, clock.now()) == ([], 0.0)


def test_cancelled_timers_are_skipped() -> None:
    """A cancelled timer neither runs nor advances the time."""
    clock, ran = SimulatedClock(), list[int]()
    clock.call_later(1.0, lambda: ran.append(1)).cancel()
    assert not clock.advance(10.0)
    assert (ran, clock.now()) == ([], 0.0)


async def test_sleep_waits_for_virtual_time() -> None:
    """A sleeping task waits for virtual time, and the date advances with it."""
    clock = SimulatedClock()
    before = clock.wall()
    sleeper = asyncio.create_task(clock.sleep(60.0))
    await clock.sleep(0)
    assert not sleeper.done()
    assert clock.advance(60.0)
    await sleeper
    assert clock.wall() - before == timedelta(seconds=60)
