"""Records of lives with faults replay equal."""

from __future__ import annotations

import pytest

from tests.simulation.records import Records, replay_life
from tests.simulation.simulation import run_seed

SEEDS = 20
"""Seeds of every run."""
REPEATED = (11, 13)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_life_replays_equal(seed: int) -> None:
    """Every decision of every life is computed again from the record, whatever faults occurred."""
    records = Records()
    outcome = run_seed(seed, records=records)
    replays = [replay_life(life.content) for life in records.lives]
    assert [difference for _, difference in replays if difference is not None] == []
    assert sum(decisions for decisions, _ in replays) > outcome.bound > 0


@pytest.mark.parametrize("seed", REPEATED)
def test_a_recorded_run_is_the_same_run(seed: int) -> None:
    """Recording changes nothing, so that a failing seed fails in the same way when it is recorded."""
    assert run_seed(seed, records=Records()).digest == run_seed(seed).digest


def test_a_replay_finds_a_decision_that_differs() -> None:
    """The first decision that is not computed as recorded is named with both diagnoses."""
    records = Records()
    run_seed(0, records=records)
    life = records.lives[0]
    decisions, _ = replay_life(life.content)
    life.header.options["max_backoff_seconds"] = 0.5
    equal, difference = replay_life(life.content)
    assert difference is not None
    assert equal < decisions
    assert difference.recorded != difference.computed
