"""Shrinks a failing run: leaves out steps while it still fails in the same way.

The search is delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002). Every
step has its own random generator, so the others do not change when one is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from tests.simulation.simulation import Outcome, run_seed

_MOST_RUNS = 250
_UIDS = re.compile(r"\b[a-z]+\d[\w-]*\b|\d+")

Planted = Callable[[], AbstractContextManager[object]]
"""A bug that is planted during a run."""


def kind_of(problem: str) -> str:
    """Return a problem without names and numbers: two of the same text count as the same."""
    return _UIDS.sub("#", problem.partition(":")[0].partition("(")[0])


def shrink(outcome: Outcome, planted: Planted = nullcontext) -> Outcome:
    """Find a small part of a run that fails in the same way.

    Args:
        outcome: Outcome of a run that failed.
        planted: Bug that was planted in it.

    Returns:
        The smallest run that was found; ``outcome`` itself if nothing can be left out.
    """
    kind = kind_of(outcome.problems[0])
    every = {step.number for step in outcome.steps}
    best, runs = outcome, 0

    def fails(kept: Sequence[int]) -> bool:
        nonlocal best, runs
        runs += 1
        with planted():
            tried = run_seed(outcome.seed, without=every.difference(kept))
        if any(kind_of(problem) == kind for problem in tried.problems):
            best = tried
            return True
        return False

    kept = sorted(every)
    parts = 2
    while len(kept) >= 2 and runs < _MOST_RUNS:
        size = max(1, len(kept) // parts)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if rest and fails(rest):
                kept = rest
                parts = max(parts - 1, 2)
                break
            if runs >= _MOST_RUNS:
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), parts * 2)
    return best
