"""Runs in which something went wrong once.

Each row is a seed and the bug that it found, which has a test of its own beside. A seed is another life after a change
of what steps are drawn or how long anything takes; the rows then cost a run each and prove little, and may go.
"""

from __future__ import annotations

import pytest

from hack.faults.simulation import run_seed


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(79, id="preemptor-whose-try-was-held-back-not-woken"),
        pytest.param(362, id="pod-that-grew-between-decision-and-bind"),
        pytest.param(552, id="pod-that-kept-off-an-unused-promise-not-woken"),
        pytest.param(737, id="nomination-of-a-gated-pod"),
        pytest.param(41, id="member-that-keeps-a-promise-beside-its-place"),
        pytest.param(101, id="member-that-failed-first-and-went-on-alone"),
        pytest.param(105, id="gang-in-flight-whose-profile-goes"),
        pytest.param(5, id="gangs-of-other-priority-than-their-pods-that-evict-each-other"),
        pytest.param(593, id="gang-that-became-whole-while-its-cycle-waited-for-an-extender"),
        pytest.param(91340006, id="pod-that-was-read-and-shown-as-it-was-before-its-bind"),
        pytest.param(529, id="member-that-a-rival-bound-while-its-gang-was-being-sent"),
    ],
)
def test_it_stays_mended(seed: int) -> None:
    """What went wrong in this run does not any more."""
    assert run_seed(seed).problems == []
