"""Tests of the circuit breaker on virtual time."""

from __future__ import annotations

from datetime import timedelta

from bayplan.extenders.circuit_breaker import Circuit, CircuitOptions, CircuitState

from tests.support.virtual_clock import VirtualClock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


class World:
    """A circuit that opens at the third failure."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.seen: list[CircuitState] = []
        self.circuit = Circuit(self.clock, CircuitOptions(3, 1.0, 8.0, seed=7), self._changed)

    def _changed(self) -> None:
        self.seen.append(self.circuit.state)

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.circuit.admits()
            self.circuit.failed("away")

    def open_seconds(self) -> float:
        """Return how long it stays open from now on."""
        assert self.circuit.until is not None
        return (self.circuit.until - self.clock.wall()).total_seconds()

    def pass_time(self) -> None:
        """Advance the time until it allows a call."""
        self.clock.advance(self.open_seconds() + 0.001)


def test_it_opens_after_failures_in_a_row() -> None:
    """A success between them starts the count again."""
    world = World()
    world.fail(2)
    world.circuit.succeeded()
    world.fail(2)
    assert world.circuit.state is CLOSED
    assert world.seen == []
    world.fail()
    assert world.seen == [OPEN]
    assert not world.circuit.admits()
    assert (world.circuit.since, world.circuit.last_error) == (world.clock.wall(), "away")


def test_it_allows_one_call_when_its_time_is_over() -> None:
    """Other calls wait until that one has ended; a success closes the circuit."""
    world = World()
    world.fail(3)
    world.clock.advance(world.open_seconds() - 0.01)
    assert not world.circuit.admits()
    world.pass_time()
    assert world.circuit.admits()
    assert not world.circuit.admits()
    world.circuit.succeeded()
    assert world.circuit.admits()
    assert world.seen == [OPEN, HALF_OPEN, CLOSED]
    assert world.circuit.last_error == "away"


def test_it_stays_open_longer_each_time_up_to_the_maximum() -> None:
    """One failure of the trial call is enough; the time doubles, and starts over after a success."""
    world = World()
    world.fail(3)
    times = [world.open_seconds()]
    for _ in range(5):
        world.pass_time()
        world.fail()
        times.append(world.open_seconds())
    steps = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert all(step / 2 <= seconds <= step for step, seconds in zip(steps, times, strict=True))
    assert len(set(times)) == len(times)
    world.pass_time()
    assert world.circuit.admits()
    world.circuit.succeeded()
    world.fail(3)
    assert world.open_seconds() <= 1.0


def test_the_seed_fixes_the_jitter() -> None:
    """Two circuits with one seed stay open for the same time."""
    first, second = World(), World()
    first.fail(3)
    second.fail(3)
    assert first.open_seconds() == second.open_seconds() > 0


def test_an_aborted_call_leaves_the_trial_to_the_next() -> None:
    """A cancelled call says nothing about the extender."""
    world = World()
    world.fail(3)
    world.pass_time()
    assert world.circuit.admits()
    world.circuit.abandoned()
    assert world.circuit.state is OPEN
    assert world.circuit.admits()
    assert world.circuit.state is HALF_OPEN


def test_an_aborted_call_while_closed_changes_nothing() -> None:
    """It does not count as a failure."""
    world = World()
    world.fail(2)
    world.circuit.abandoned()
    assert (world.circuit.state, world.seen) == (CLOSED, [])


def test_a_late_failure_does_not_prolong() -> None:
    """Calls that were in flight when it opened do not extend its time."""
    world = World()
    world.fail(3)
    until = world.circuit.until
    world.clock.advance(0.1)
    world.circuit.failed("away")
    assert world.circuit.until == until
    assert until is not None
    assert until - world.clock.wall() < timedelta(seconds=1)
