"""Lives of a cluster with faults: nothing goes wrong in them, every kind of fault occurs, and a seed is one life."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.faults.campaign import Campaign, run_campaign
from hack.faults.fault_counts import FAULTS, FaultCounts, shares
from hack.faults.simulation import run_seed
from hack.faults.steps import draw_steps

SEEDS = 200
ROOT = Path(__file__).parents[2]
ASKED = "from hack.faults.simulation import run_seed; print(run_seed(11).digest)"


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return run_campaign(range(SEEDS))


def test_nothing_goes_wrong(campaign: Campaign) -> None:
    """Whatever happens to the cluster, every invariant holds in each of many seeds."""
    assert campaign.problems == {}
    assert campaign.seeds == SEEDS
    assert campaign.bound > 10 * SEEDS


def test_every_kind_of_fault_occurs(campaign: Campaign) -> None:
    """Each kind takes effect in at least a tenth of the seeds, so that none has died out."""
    rare = {name: share for name, share in shares(campaign.counts).items() if share < 0.1}
    assert rare == {}


def test_a_fault_that_is_not_on_the_list() -> None:
    """It would be counted and never be shown."""
    with pytest.raises(KeyError, match="add it to FAULTS"):
        FaultCounts().add("a flood")


def test_shares() -> None:
    """A kind counts once for each run, however often it occurs there."""
    found = shares([{"throttled": 3}, {"throttled": 1, "node came": 1}, {}, {}])
    assert (found["throttled"], found["node came"], found["evicted"]) == (0.5, 0.25, 0.0)
    assert list(found) == list(FAULTS)


def test_a_seed_repeats() -> None:
    """Equal seeds give equal traces, to the last line; another seed gives another."""
    first, again, other = run_seed(11), run_seed(11), run_seed(12)
    assert first.trace == again.trace
    assert first.digest != other.digest


def test_a_seed_repeats_in_another_process() -> None:
    """No order of hashes and no address gets into a trace."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4711",
        "PYTHONPATH": os.pathsep.join((str(ROOT), f"{ROOT}/operator")),
    }
    elsewhere = subprocess.run(
        [sys.executable, "-c", ASKED], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert elsewhere.stdout.strip() == run_seed(11).digest


def test_steps_that_are_left_out() -> None:
    """What a step draws does not depend on which others there are."""
    steps = draw_steps(3)
    left = run_seed(3, without=[step.number for step in steps[10:]])
    assert left.steps == steps[:10]
    whole = run_seed(3)
    until = f"{steps[9].at:8.3f}"
    assert [line for line in left.trace if line < until] == [line for line in whole.trace if line < until]
