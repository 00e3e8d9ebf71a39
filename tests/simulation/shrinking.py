"""Shrinks a failing run: leaves out steps while the run still fails in the same way.

The search is delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from tests.simulation.simulation import Outcome, run_seed

_MAXIMUM_RUNS = 250
_UIDS = re.compile(r"\b[a-z]+\d[\w-]*\b|\d+")
Planted = Callable[[], AbstractContextManager[object]]
"""Plants a bug during a run."""


def kind_of(problem: str) -> str:
    """Return a problem without names and numbers; problems with the same result are of the same kind."""
    return _UIDS.sub("#", problem.partition(":")[0].partition("(")[0])


def shrink(outcome: Outcome, planted: Planted = nullcontext) -> Outcome:
    """Find a small part of a run that fails in the same way.

    Args:
        planted: Bug that was planted in the run.

    Returns:
        The smallest failing run that was found; ``outcome`` itself if no step can be left out.
    """
    kind = kind_of(outcome.problems[0])
    all_steps = {step.number for step in outcome.steps}
    best, runs = outcome, 0

    def fails(included: Sequence[int]) -> bool:
        nonlocal best, runs
        runs += 1
        with planted():
            attempt = run_seed(outcome.seed, without=all_steps.difference(included))
        if any(kind_of(problem) == kind for problem in attempt.problems):
            best = attempt
            return True
        return False

    included = sorted(all_steps)
    parts = 2
    while len(included) >= 2 and runs < _MAXIMUM_RUNS:
        size = max(1, len(included) // parts)
        for start in range(0, len(included), size):
            rest = included[:start] + included[start + size :]
            if rest and fails(rest):
                included = rest
                parts = max(parts - 1, 2)
                break
            if runs >= _MAXIMUM_RUNS:
                break
        else:
            if size == 1:
                break
            parts = min(len(included), parts * 2)
    return best
