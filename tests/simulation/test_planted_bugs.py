"""Tests of the simulation itself: it finds planted bugs."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.simulation.device_bugs import DEVICE_BUGS
from tests.simulation.gang_bugs import GANG_BUGS
from tests.simulation.planted_bugs import BUGS
from tests.simulation.shadow_bugs import SHADOW_BUGS
from tests.simulation.shrinking import kind_of, shrink
from tests.simulation.simulation import Outcome, run_seed
from tests.simulation.steps import has_devices, has_gangs, has_trees, shadow_revision
from tests.simulation.tree_bugs import TREE_BUGS

MOST_SEEDS = 500

LATE: dict[str, int] = {
    "TaintToleration's hint is inverted": 103,
    "NodeUnschedulable is deaf to nodes": 226,
    "InterPodAffinity is deaf to pods": 28,
    "NodeAffinity is deaf to nodes": 11,
    "a gate is called once": 14,
    "a deleted pod goes on waiting": 29,
    "a try that was held back is not made up for": 79,
    "the gate of a preemption never opens": 11,
    "a failed bind does not report that its node is free": 41,
    "assumed volumes are not restored": 15,
    "bound pods that nobody confirms are not read": 140,
    "members are not taken back into their gang": 633,
    "an older state undoes what was read": 91340006,
    "nominations are restored from a copy": 137,
    "a member that was never bound counts as placed": 57,
    "what an overcommitted node lacks is subtracted": 125,
    "claims are not read after they were deallocated": 396,
    "DynamicResources is deaf to claims": 40,
    "devices of deleted claims stay in use": 36,
    "devices are given before claims are listed": 45,
    "a deleted claim of an earlier attempt wakes nobody": 968,
}
"""Seed that last found a bug that few seeds find; the search starts there, then from the beginning."""

ALL = BUGS | GANG_BUGS | DEVICE_BUGS | TREE_BUGS | SHADOW_BUGS

IN_SOME_RUNS = (
    (GANG_BUGS, has_gangs),
    (DEVICE_BUGS, has_devices),
    (TREE_BUGS, has_trees),
    (SHADOW_BUGS, shadow_revision),
)
"""Bugs that are searched only in the runs that have what they break."""

SAMPLE = [name for name in ALL if name not in LATE][::5]
"""Bugs that every run plants; `make nightly` plants all."""


def first_failure(name: str) -> Outcome | None:
    """Return the first run that finds a bug; bugs of gangs and devices are searched in runs that have these."""
    planted = ALL[name]
    for seed in chain((LATE.get(name, 0),), range(MOST_SEEDS)):
        if any(name in bugs and not occurs(seed) for bugs, occurs in IN_SOME_RUNS):
            continue
        with planted():
            outcome = run_seed(seed)
        if outcome.problems:
            return outcome
    return None


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.nightly]) for name in ALL],
)
def test_it_is_found(name: str) -> None:
    """Each bug is found within 500 seeds."""
    assert first_failure(name) is not None


def test_enough_are_planted() -> None:
    """A simulation that finds a few kinds of bugs may be blind to the rest."""
    assert len(BUGS) >= 20
    assert len(GANG_BUGS) >= 10
    assert len(DEVICE_BUGS) >= 10


def test_a_failure_is_made_small() -> None:
    """A shrunk run fails in the same way, and has far fewer steps."""
    planted = BUGS["a gate is called once"]
    found = first_failure("a gate is called once")
    assert found is not None
    small = shrink(found, planted)
    assert kind_of(small.problems[0]) == kind_of(found.problems[0])
    assert len(small.steps) <= len(found.steps) // 4


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        pytest.param(
            "p1-0-0013 fits on n3, n4 and is left waiting (rejected by A)",
            "# fits on #, # and is left waiting ",
            id="names",
        ),
        pytest.param("node n1: requested is 5 in the cache", "node #", id="numbers"),
    ],
)
def test_kinds_of_problems(problem: str, kind: str) -> None:
    """Names and numbers change when steps are left out; the kind of problem does not."""
    assert kind_of(problem) == kind
