"""Tests of the records of operator processes under faults, and of their replay."""

from __future__ import annotations

import pytest

from tests.simulation.records import Records, holds_room, replay_process
from tests.simulation.simulation import run_seed

SEEDS = 20
"""Number of recorded seeds."""
WITH_ROOM = (62, 88, 131)
"""Seeds of runs with NodeReservations; the last one has RebalancePlans, too."""
REPEATED = (11, 13, 131)


@pytest.mark.parametrize("seed", [*range(SEEDS), *WITH_ROOM])
def test_every_process_replays_equally(seed: int) -> None:
    """A replay computes every recorded decision again."""
    records = Records()
    outcome = run_seed(seed, records=records)
    replays = [replay_process(process.content) for process in records.processes]
    assert [difference for _, difference in replays if difference is not None] == []
    assert sum(decisions for decisions, _ in replays) > outcome.bound > 0
    assert (seed in WITH_ROOM) == any(holds_room(process.content) for process in records.processes)


@pytest.mark.parametrize("seed", REPEATED)
def test_recording_does_not_change_a_run(seed: int) -> None:
    """A recorded run has the same trace as an unrecorded one."""
    assert run_seed(seed, records=Records()).digest == run_seed(seed).digest


def test_a_replay_finds_a_decision_that_differs() -> None:
    """A replay with other options reports the first decision that differs, with both results."""
    records = Records()
    run_seed(0, records=records)
    process = records.processes[0]
    decisions, _ = replay_process(process.content)
    process.header.options["max_backoff_seconds"] = 0.5
    equal, difference = replay_process(process.content)
    assert difference is not None
    assert equal < decisions
    assert difference.recorded != difference.computed
