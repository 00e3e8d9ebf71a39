"""Tests of the circuit breaker on virtual time."""

from __future__ import annotations

from datetime import timedelta

from bayplan.extenders.http_extender import Circuit, CircuitOptions, CircuitState

from tests.support.virtual_clock import VirtualClock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


class World:
    """Circuit that opens at the third failure."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.states: list[CircuitState] = []
        self.circuit = Circuit(self.clock, CircuitOptions(3, 1.0, 8.0, seed=7), self._changed)

    def _changed(self) -> None:
        self.states.append(self.circuit.state)

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.circuit.admits()
            self.circuit.failed("away")

    def open_seconds(self) -> float:
        """Return the remaining time for which the circuit is open."""
        assert self.circuit.until is not None
        return (self.circuit.until - self.clock.wall()).total_seconds()

    def pass_time(self) -> None:
        """Advance the time until the circuit allows a call."""
        self.clock.advance(self.open_seconds() + 0.001)


def test_consecutive_failures_open_the_circuit() -> None:
    """Consecutive failures open the circuit, and a success resets their count."""
    world = World()
    world.fail(2)
    world.circuit.succeeded()
    world.fail(2)
    assert world.circuit.state is CLOSED
    assert world.states == []
    world.fail()
    assert world.states == [OPEN]
    assert not world.circuit.admits()
    assert (world.circuit.since, world.circuit.last_error) == (world.clock.wall(), "away")


def test_an_open_circuit_allows_one_trial_call() -> None:
    """After its time an open circuit allows one trial call, whose success closes it."""
    world = World()
    world.fail(3)
    world.clock.advance(world.open_seconds() - 0.01)
    assert not world.circuit.admits()
    world.pass_time()
    assert world.circuit.admits()
    assert not world.circuit.admits()
    world.circuit.succeeded()
    assert world.circuit.admits()
    assert world.states == [OPEN, HALF_OPEN, CLOSED]
    assert world.circuit.last_error == "away"


def test_open_time_doubles_up_to_the_maximum() -> None:
    """The open time doubles with each failed trial call up to the maximum, and starts over after a success."""
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


def test_jitter_depends_on_the_seed() -> None:
    """Circuits with the same seed stay open for the same time."""
    first, second = World(), World()
    first.fail(3)
    second.fail(3)
    assert first.open_seconds() == second.open_seconds() > 0


def test_an_abandoned_trial_call_is_repeated() -> None:
    """After an abandoned trial call the next call is the trial."""
    world = World()
    world.fail(3)
    world.pass_time()
    assert world.circuit.admits()
    world.circuit.abandoned()
    assert world.circuit.state is OPEN
    assert world.circuit.admits()
    assert world.circuit.state is HALF_OPEN


def test_an_abandoned_call_is_no_failure() -> None:
    """An abandoned call of a closed circuit does not count as a failure."""
    world = World()
    world.fail(2)
    world.circuit.abandoned()
    assert (world.circuit.state, world.states) == (CLOSED, [])


def test_a_late_failure_does_not_extend_the_open_time() -> None:
    """The failure of a call that was in flight when the circuit opened does not extend its open time."""
    world = World()
    world.fail(3)
    until = world.circuit.until
    world.clock.advance(0.1)
    world.circuit.failed("away")
    assert world.circuit.until == until
    assert until is not None
    assert until - world.clock.wall() < timedelta(seconds=1)
