"""Lives of a cluster with faults: nothing goes wrong in them, every kind of fault occurs, and a seed is one life."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.campaign import Campaign, run_campaign
from tests.simulation.fault_counts import FAULTS, FaultCounts, shares
from tests.simulation.simulation import run_seed
from tests.simulation.steps import draw_steps, has_trees

SEEDS = 60
"""Seeds of every run; `make nightly` runs 3,000 others."""
SEEDS_AT_ONCE = 20
SEEDS_OF_SPREAD = 6
TREES = 4
ROOT = Path(__file__).parents[2]
REPEATED = (11, 13, 193)
DIGESTS = (
    "import sys; from tests.simulation.simulation import run_seed; "
    "print(*(run_seed(int(a)).digest for a in sys.argv[1:]))"
)


@cache
def campaign(first: int) -> Campaign:
    """Some seeds, in this process: a test's time limit then covers few of them, and its name contains them."""
    return run_campaign(range(first, first + SEEDS_AT_ONCE), jobs=1)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
def test_nothing_goes_wrong(first: int) -> None:
    """Whatever happens to the cluster, every invariant holds in each of many seeds."""
    found = campaign(first)
    assert found.problems == {}
    assert found.seeds == SEEDS_AT_ONCE
    assert found.bound > 10 * SEEDS_AT_ONCE


def test_every_kind_of_fault_occurs() -> None:
    """Each kind takes effect in at least a tenth of the seeds, so that none has died out."""
    counts = [each for first in range(0, SEEDS, SEEDS_AT_ONCE) for each in campaign(first).counts]
    rare = {name: share for name, share in shares(counts).items() if share < 0.1}
    assert rare == {}


def test_a_campaign_spread_over_processes() -> None:
    """It finds what one process finds, in the same order."""
    seeds = range(SEEDS_OF_SPREAD)
    alone, spread = run_campaign(seeds, jobs=1), run_campaign(seeds, jobs=2)
    assert (spread.seeds, spread.bound, spread.counts) == (alone.seeds, alone.bound, alone.counts)


def test_a_fault_that_is_not_on_the_list() -> None:
    """It would be counted and never be shown."""
    with pytest.raises(KeyError, match="add it to FAULTS"):
        FaultCounts().add("a flood")


def test_trees_are_bound() -> None:
    """Gangs of a tree are bound, members of several of them in one run."""
    seeds = [seed for seed in range(SEEDS) if has_trees(seed)][:TREES]
    traces = ["\n".join(run_seed(seed).trace) for seed in seeds]
    leaves = [
        len(set(re.findall(r"did POST /api/v1/namespaces/\w+/pods/(t\d+-\d)-\d+/binding -> 201", t))) for t in traces
    ]
    assert max(leaves) > 1
    assert sum(map(bool, leaves)) * 2 > TREES


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
    """A trace depends on no order of hashes, on no address, and on no seed that ran before in the same process."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4711",
        "PYTHONPATH": os.pathsep.join((str(ROOT), f"{ROOT}/operator")),
    }
    backwards = [sys.executable, "-c", DIGESTS, *map(str, reversed(REPEATED))]
    elsewhere = subprocess.run(backwards, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert elsewhere.stdout.split()[::-1] == [run_seed(seed).digest for seed in REPEATED]


def test_steps_that_are_left_out() -> None:
    """What a step draws does not depend on which others there are."""
    steps = draw_steps(3)
    left = run_seed(3, without=[step.number for step in steps[10:]])
    assert left.steps == steps[:10]
    whole = run_seed(3)
    until = f"{steps[9].at:8.3f}"
    assert [line for line in left.trace if line < until] == [line for line in whole.trace if line < until]
