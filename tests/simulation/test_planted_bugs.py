"""Tests of the simulation itself: it finds planted bugs."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.simulation.device_bugs import DEVICE_BUGS
from tests.simulation.gang_bugs import GANG_BUGS, OWNER_BUGS, TREE_BUGS
from tests.simulation.planted_bugs import BUGS, LIMIT_BUGS, PLAN_BUGS, RESERVATION_BUGS, SHADOW_BUGS
from tests.simulation.profiles import limits_victims
from tests.simulation.shrinking import kind_of, shrink
from tests.simulation.simulation import Outcome, run_seed
from tests.simulation.steps import (
    has_devices,
    has_gangs,
    has_owners,
    has_plans,
    has_reservations,
    has_trees,
    shadow_revision,
)
from tests.support.presence import present
from tests.support.tables import table

MAXIMUM_SEEDS = 500

FOUND_BY_FEW_SEEDS: dict[str, int] = {
    "TaintToleration's hint is inverted": 91,
    "NodeUnschedulable skips node events": 226,
    "InterPodAffinity skips events of assigned pods": 28,
    "NodeAffinity skips node events": 11,
    "a PreEnqueue plugin is called only once": 14,
    "a deleted pod keeps waiting at Permit": 29,
    "an attempt that was gated by a preemption is not repeated": 79,
    "a preemptor is gated forever": 11,
    "a failed bind does not report freed capacity": 41,
    "assumed volumes are not reverted": 15,
    "unconfirmed bound pods are not read": 140,
    "failed members are not requeued with their gang": 633,
    "an older watch event overrides a read": 91340006,
    "nominations are restored from a copy": 137,
    "a member that was never bound counts as placed": 57,
    "free resources of overcommitted nodes are negative": 125,
    "deallocated claims are not read again": 396,
    "DynamicResources skips events of resource claims": 40,
    "devices of deleted claims are not released": 36,
    "devices are allocated before the first list of claims": 45,
    "the deletion of an earlier attempt's claim requeues no pod": 968,
    "a gang is not reconciled when its owner is received": 78,
    "evictions that budgets do not show are not counted": 24,
    "a resize frees room before the kubelet makes it": 72,
    "pods of equal priority use the room of a lost member": 37,
    "members that wait as single pods are not regrouped": 361,
    "a restart resumes no move": 131,
    "the next move begins before the replacement is bound": 131,
}
"""Seed that finds a bug that few seeds find; the search tries this seed first."""

FOUND_FIRST: dict[str, int] = {
    "pods of a deleted node are dropped": 8,
    "the Permit timeout never expires": 3,
    "a conflict of a bind is treated as success": 2,
    "a terminated pod stays on its node": 1,
    "members are not gated when their PodGroup is deleted": 13,
    "the room of a lost member is not held": 13,
    "shares of devices are not counted": 16,
    "an allocation with unknown outcome is treated as failed": 4,
    "a tree without its quorum is tried": 3,
}
"""First seed that finds a bug of every test run, or one that finds it sooner; the search tries it first, too."""

ALL_BUGS = (
    BUGS | GANG_BUGS | DEVICE_BUGS | TREE_BUGS | SHADOW_BUGS | OWNER_BUGS | LIMIT_BUGS | RESERVATION_BUGS | PLAN_BUGS
)

RUNS_OF_BUGS = (
    (GANG_BUGS, has_gangs),
    (DEVICE_BUGS, has_devices),
    (TREE_BUGS, has_trees),
    (SHADOW_BUGS, shadow_revision),
    (OWNER_BUGS, has_owners),
    (LIMIT_BUGS, limits_victims),
    (RESERVATION_BUGS, has_reservations),
    (PLAN_BUGS, has_plans),
)
"""Bugs that only some runs can find, and whether a seed is such a run."""

SAMPLE = [name for name in ALL_BUGS if name not in FOUND_BY_FEW_SEEDS][::5]
"""Bugs of every test run; `make nightly` plants all."""


def first_failure(name: str) -> Outcome | None:
    """Return the first run that finds a bug, or None."""
    planted, likely = ALL_BUGS[name], (FOUND_BY_FEW_SEEDS | FOUND_FIRST).get(name, 0)
    for seed in chain((likely,), range(MAXIMUM_SEEDS)):
        if any(name in bugs and not occurs(seed) for bugs, occurs in RUNS_OF_BUGS):
            continue
        with planted():
            outcome = run_seed(seed)
        if outcome.problems:
            return outcome
    return None


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.nightly]) for name in ALL_BUGS]
)
def test_a_planted_bug_is_found(name: str) -> None:
    """The simulation finds each bug within 500 seeds."""
    assert first_failure(name) is not None


def test_each_bug_can_be_planted() -> None:
    """What a bug replaces exists, also of the bugs that are planted every night only."""
    for planted in ALL_BUGS.values():
        with planted():
            pass


def test_enough_bugs_are_planted() -> None:
    """Each large area has a minimum number of planted bugs."""
    assert len(BUGS) >= 20
    assert len(GANG_BUGS) >= 10
    assert len(DEVICE_BUGS) >= 10


def test_a_failing_run_is_shrunk() -> None:
    """A shrunk run fails in the same way with at most a quarter of the steps."""
    planted = BUGS["a PreEnqueue plugin is called only once"]
    found = present(first_failure("a PreEnqueue plugin is called only once"))
    small = shrink(found, planted)
    assert kind_of(small.problems[0]) == kind_of(found.problems[0])
    assert len(small.steps) <= len(found.steps) // 4


@table(
    "problem, kind",
    ("names", "p1-0-0013 fits on n3, n4 and is left waiting (rejected by A)", "# fits on #, # and is left waiting "),
    ("numbers", "node n1: requested is 5 in the cache", "node #"),
)
def test_kinds_of_problems(problem: str, kind: str) -> None:
    """The kind of a problem contains no names and numbers."""
    assert kind_of(problem) == kind
