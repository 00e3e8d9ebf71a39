"""Tests of simulated cluster lifetimes with faults.

No invariant is violated, every kind of fault occurs, equal seeds give equal runs, and the records of operator processes
replay equally. Hours of campaigns are added up, and a repeated campaign counts once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.simulation import campaign
from tests.simulation.campaign import run_campaign
from tests.simulation.fault_counts import FAULTS, FaultCounts, shares
from tests.simulation.records import Records, holds_room, replay_process
from tests.simulation.simulated_hours import NightHours, add_hours, read_hours
from tests.simulation.simulation import Outcome, Simulation, run_seed
from tests.simulation.steps import generate_steps, has_plans, has_trees
from tests.support.presence import present

SEEDS = 60
"""Number of seeds of every test run; `make nightly` runs 3,000 others."""
SEEDS_PER_TEST = 20
SEEDS_IN_PROCESSES = 3
RECORDED_SEEDS = 20
WITH_ROOM = (62, 88, 131)
"""Seeds of recorded runs with NodeReservations; the last one has RebalancePlans, too."""
TREE_SEEDS = 4
FIRST_PLAN_SEED, PLAN_SEEDS = 114, 5
ROOT = Path(__file__).parents[2]
REPEATED_SEEDS = (11, 13, 131, 193, 5002, 3_000_017)
PRINT_DIGESTS = (
    "import sys; from tests.simulation.simulation import run_seed; "
    "print(*(run_seed(int(a)).digest for a in sys.argv[1:]))"
)


@cache
def recorded_run(seed: int) -> tuple[Outcome, Records]:
    """Run a seed with a record, once for all tests in this process."""
    records = Records()
    return run_seed(seed, records=records), records


@cache
def run(seed: int) -> Outcome:
    """Run a seed, once for all tests in this process."""
    return recorded_run(seed)[0] if seed < RECORDED_SEEDS else run_seed(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_no_invariant_is_violated(first: int) -> None:
    """Every invariant holds in every run, whatever faults occur. Few seeds per test keep each within its time limit."""
    outcomes = [run(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert {each.seed: each.problems for each in outcomes if each.problems} == {}
    assert sum(each.bound for each in outcomes) > 10 * SEEDS_PER_TEST


def test_every_kind_of_fault_occurs() -> None:
    """Each kind of fault takes effect in at least a tenth of the seeds."""
    rare = {name: share for name, share in shares([run(seed).counts for seed in range(SEEDS)]).items() if share < 0.1}
    assert rare == {}


def test_a_campaign_in_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign in two processes has the same results as runs in this one, in the same order."""
    monkeypatch.setattr(campaign, "_SEEDS_PER_TASK", 1)
    found = run_campaign(range(SEEDS_IN_PROCESSES), jobs=2)
    alone = [run(seed) for seed in range(SEEDS_IN_PROCESSES)]
    assert (found.seeds, found.problems) == (SEEDS_IN_PROCESSES, {})
    assert (found.bound, found.counts) == (sum(each.bound for each in alone), [each.counts for each in alone])
    night = NightHours.of(found, 7)
    assert (night.first, night.seeds, night.failed) == (7, SEEDS_IN_PROCESSES, 0)
    assert 0 < night.hours == round(sum(each.seconds for each in alone) / 3600, 2)


def test_an_unknown_fault_is_an_error() -> None:
    """Counting a fault that FAULTS does not contain raises KeyError."""
    with pytest.raises(KeyError, match="add it to FAULTS"):
        FaultCounts().add("a flood")


def test_trees_are_bound() -> None:
    """Gangs of a tree are bound, in at least one run several of them."""
    seeds = [seed for seed in range(SEEDS) if has_trees(seed)][:TREE_SEEDS]
    traces = ["\n".join(run(seed).trace) for seed in seeds]
    bound_gangs = [
        len(set(re.findall(r"did POST /api/v1/namespaces/\w+/pods/(t\d+-\d)-\d+/binding -> 201", t))) for t in traces
    ]
    assert max(bound_gangs) > 1
    assert sum(map(bool, bound_gangs)) * 2 > TREE_SEEDS


def test_pods_are_moved() -> None:
    """In runs with RebalancePlans, pods are moved, and plans are completed, stopped, suspended and resumed."""
    total: Counter[str] = Counter()
    simulations: list[Simulation] = []
    for seed in [seed for seed in range(FIRST_PLAN_SEED, 2 * FIRST_PLAN_SEED) if has_plans(seed)][:PLAN_SEEDS]:
        assert not run_seed(seed, observe=simulations.append).problems
        total += present(simulations[-1].plans).counts
    assert total["pod moved"] >= PLAN_SEEDS
    assert total.keys() >= {"plan completed", "plan stopped", "moving plan suspended", "plan resumed"}


def test_shares() -> None:
    """A kind of fault counts once per run."""
    found = shares([{"throttled": 3}, {"throttled": 1, "node added": 1}, {}, {}])
    assert (found["throttled"], found["node added"], found["evicted"]) == (0.5, 0.25, 0.0)
    assert list(found) == list(FAULTS)


def test_a_seed_repeats_in_another_process() -> None:
    """A trace does not depend on hash order, addresses, seeds that ran before in the process, or a record."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4711",
        "PYTHONPATH": os.pathsep.join((str(ROOT), f"{ROOT}/operator")),
    }
    command = [sys.executable, "-c", PRINT_DIGESTS, *map(str, reversed(REPEATED_SEEDS))]
    other_process = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    digests = [recorded_run(seed)[0].digest for seed in REPEATED_SEEDS]
    assert other_process.stdout.split()[::-1] == digests
    assert len(set(digests)) == len(REPEATED_SEEDS)


def test_left_out_steps_do_not_change_others() -> None:
    """A run without later steps has the same trace up to the last remaining step."""
    steps = generate_steps(3)
    shortened = run_seed(3, without=[step.number for step in steps[10:]])
    assert shortened.steps == steps[:10]
    whole = run(3)
    until = f"{steps[9].at:8.3f}"
    assert [line for line in shortened.trace if line < until] == [line for line in whole.trace if line < until]


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [*range(RECORDED_SEEDS), *WITH_ROOM])
def test_every_process_replays_equally(seed: int) -> None:
    """A replay computes every recorded decision again."""
    outcome, records = recorded_run(seed)
    replays = [replay_process(process.content) for process in records.processes]
    assert [difference for _, difference in replays if difference is not None] == []
    assert sum(decisions for decisions, _ in replays) > outcome.bound > 0
    assert (seed in WITH_ROOM) == any(holds_room(process.content) for process in records.processes)


def test_a_replay_finds_a_decision_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay with other options reports the first decision that differs, with both results."""
    process = recorded_run(0)[1].processes[0]
    decisions, _ = replay_process(process.content)
    monkeypatch.setitem(process.header.options, "max_backoff_seconds", 0.5)
    equal, difference = replay_process(process.content)
    assert difference is not None
    assert equal < decisions
    assert difference.recorded != difference.computed


# -- hours of simulations ----------------------------------------------------------------------------------------------


def test_nights_are_added_up(tmp_path: Path) -> None:
    """The line has the hours of the campaign and of all campaigns; the same first seed replaces its campaign."""
    file = tmp_path / "nightly" / "hours.jsonl"
    add_hours(file, NightHours(1, 3000, 0, 100.25))
    add_hours(file, NightHours(2, 3000, 1, 101.5))
    line = add_hours(file, NightHours(2, 3000, 0, 101.5))
    assert line.startswith("101.5 simulated hours, 0 of 3000 lifetimes with a violation; all 2 campaigns of ")
    assert line.endswith(": 201.8 simulated hours, 0 of 6000 lifetimes with a violation")
    assert list(read_hours(file)) == [1, 2]
