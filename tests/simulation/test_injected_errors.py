"""Simulated cluster lifetimes with exceptions at the scheduler's own calls, on top of all other faults.

An exception at any call of a scheduling cycle, a group cycle, a binding cycle, a timer or a flush fails only the pod or
gang of that call. The invariants of the simulation are those of any other lifetime: the loop runs, no pod is lost or
bound twice, no node is overcommitted, and nothing stays assumed, reserved or in flight.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.gangs.group_cycle import QuorumCommit
from scheduler_core.queueing.queue_moves import Moves
from scheduler_core.runtime.profile_table import ProfileTable
from tests.simulation.simulation import Outcome, run_seed
from tests.support.injected_errors import KINDS, NAMES, InjectedErrors, Site, now_and_then
from tests.support.tables import table

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
"""An exception at the call that receives a coroutine of a plugin leaves the coroutine unused."""

ROOT = Path(__file__).parents[2]
_CALLS = 1200
"""Mean number of calls between two exceptions."""


def _run(seed: int, calls: int = _CALLS) -> tuple[Outcome, InjectedErrors]:
    errors = InjectedErrors(now_and_then(seed, calls))
    return run_seed(seed, errors=errors), errors


def _problems(seed: int, errors: InjectedErrors, outcome: Outcome) -> str:
    last = "\n".join(f"  call {each.number}: {each.kind} at {each.site}" for each in errors.injected[-5:])
    return f"seed {seed}: {outcome.problems[:3]}, after\n{last}"


@pytest.mark.parametrize("seed", range(12))
def test_exceptions_fail_only_their_pods_and_gangs(seed: int) -> None:
    """All invariants hold during the lifetime and at its end."""
    outcome, errors = _run(seed)
    assert not outcome.problems, _problems(seed, errors, outcome)
    assert errors.injected


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(1000, 1400, 10))
def test_many_lifetimes(first: int) -> None:
    """The same for more seeds, with more exceptions in each lifetime."""
    for seed in range(first, first + 10):
        outcome, errors = _run(seed, 300)
        assert not outcome.problems, _problems(seed, errors, outcome)


def _every_site(seed: int) -> list[tuple[int, Site]]:
    """Return the first call of each site of a lifetime without exceptions."""
    first: dict[Site, int] = {}

    def choose(number: int, site: Site) -> None:
        first.setdefault(site, number)

    run_seed(seed, errors=InjectedErrors(choose))
    return [(number, site) for site, number in first.items()]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5, 7, 11])
def test_every_site(seed: int) -> None:
    """One exception at the first call of each site, one lifetime for each: plain pods, gangs, trees, devices."""
    for number, site in _every_site(seed):
        kind = KINDS[number % len(KINDS)]
        errors = InjectedErrors(lambda call, _site, at=number, kind=kind: kind if call == at else None)  # type: ignore[misc]
        outcome = run_seed(seed, errors=errors)
        assert not outcome.problems, f"{site}: {_problems(seed, errors, outcome)}"


REPEATED_LIFETIMES = """
from tests.simulation.simulation import run_seed
from tests.simulation.test_injected_errors import InjectedErrors, _run

run_seed(3, errors=InjectedErrors(lambda _number, _site: None))
for outcome, errors in (_run(3), _run(3)):
    print(outcome.digest, *(each.site for each in errors.injected))
"""


def test_exceptions_are_deterministic() -> None:
    """A seed gives the same exceptions and the same trace in every run with warm caches.

    The process is a new one: a cache that earlier tests have almost filled is emptied during a run, which then makes
    other calls.
    """
    path = os.pathsep.join((str(ROOT), f"{ROOT}/operator"))
    first, second = subprocess.run(
        [sys.executable, "-c", REPEATED_LIFETIMES],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert first == second
    assert len(first.split()) > 10


@pytest.mark.parametrize("name", NAMES)
def test_a_named_function_exists(name: str) -> None:
    """A function that is renamed would no longer be a root, or no longer be exempt."""
    module, function = name.split(":")
    assert callable(
        attrgetter(function)(import_module("scheduler_core." + module.removesuffix(".py").replace("/", ".")))
    )


def _undo_nothing(_self: AssumedPods, begun: int = 0, overlays: int = 0) -> None:
    del begun, overlays


def _take_nothing_back(*_arguments: object) -> None:
    pass


def _lose(_self: Moves, *_arguments: object) -> None:
    pass


def _report_only(self: ProfileTable, replaced: Mapping[str, object]) -> None:
    for name in replaced:
        self._on_change(name)


@table(
    "kind, method, bug, calls",
    ("assumed pods of an interrupted cycle stay", AssumedPods, "undo", _undo_nothing, 60),
    ("members of a failed commit stay", QuorumCommit, "_take_back", _take_nothing_back, 300),
    ("a pod whose move raised is lost", Moves, "delay_faulty", _lose, 60),
    ("a swap of profiles that raised is not undone", ProfileTable, "_report", _report_only, 60),
)
@pytest.mark.nightly
def test_a_planted_bug_is_found(
    kind: type, method: str, bug: Callable[..., object], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one part of the recovery, a seed fails that passes with it."""
    for seed in range(80):
        with monkeypatch.context() as planted:
            planted.setattr(kind, method, bug)
            is_found = bool(_run(seed, calls)[0].problems)
        if is_found and not _run(seed, calls)[0].problems:
            return
    pytest.fail("no seed finds the bug")
