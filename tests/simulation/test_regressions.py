"""Runs in which something went wrong once.

Each row is a seed and the bug that it found, which has a test of its own beside. A seed is another life after a change
of what steps are drawn or how long anything takes; the rows then cost a run each and prove little, and may go.
"""

from __future__ import annotations

import pytest

from tests.simulation.simulation import run_seed


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
        pytest.param(2011, id="pod-that-shrank-between-decision-and-bind-wakes-nobody"),
        pytest.param(55220263, id="nomination-of-a-pod-that-a-new-revision-gates"),
        pytest.param(73300487, id="answered-bind-of-a-pod-that-a-watch-shows-elsewhere"),
        pytest.param(73301305, id="member-that-a-rival-bound-releases-its-reservation-first"),
        pytest.param(73300817, id="read-that-fails-while-the-server-is-away"),
        pytest.param(73300057, id="settlement-that-waits-for-a-gang-cycle"),
        pytest.param(64, id="claim-that-was-deleted-before-the-answer-to-a-write"),
        pytest.param(124, id="allocation-whose-answer-was-lost"),
        pytest.param(396, id="claim-that-was-deallocated-while-its-pod-was-being-bound"),
        pytest.param(4372, id="allocation-that-is-written-after-its-attempt-was-cancelled"),
        pytest.param(4080, id="reservation-that-could-not-be-ended-while-the-server-was-away"),
        pytest.param(700832, id="claim-that-was-deallocated-before-the-next-attempt-began"),
        pytest.param(700849, id="nomination-of-a-gang-counts-by-its-priority-after-a-restart-too"),
        pytest.param(700473, id="whole-native-gang-with-a-gated-member"),
        pytest.param(701365, id="profile-that-is-live-again-while-a-gang-cycle-waits-for-an-extender"),
        pytest.param(700396, id="claim-that-was-deleted-after-an-allocation-whose-answer-was-lost"),
        pytest.param(701680, id="devices-that-an-attempt-freed-before-they-were-written"),
        pytest.param(2000944, id="claim-that-was-deallocated-before-the-response-to-its-allocation"),
        pytest.param(45, id="devices-in-use-that-a-restarted-process-does-not-know-yet"),
        pytest.param(332, id="extended-resource-in-a-class-of-pods-without-it"),
        pytest.param(968, id="claim-of-an-earlier-attempt-that-is-deleted"),
        pytest.param(1600124, id="refused-removal-of-a-reservation"),
        pytest.param(1600461, id="claim-that-another-pod-allocated-again-before-it-was-bound"),
        pytest.param(2001741, id="claim-whose-deallocation-ended-between-decision-and-prebind"),
        pytest.param(1602681, id="late-member-of-a-gang-whose-domain-a-rival-changed"),
        pytest.param(1702125, id="late-member-of-a-gang-with-a-member-that-a-rival-bound-elsewhere"),
        pytest.param(2000475, id="member-that-a-swapped-profile-gated-while-its-tree-was-scheduled"),
        pytest.param(1600041, id="gang-whose-rejected-member-a-rival-has-bound"),
        pytest.param(529, id="member-that-a-rival-bound-while-its-gang-was-being-sent"),
        pytest.param(1200205, id="nomination-of-a-member-whose-group-was-recreated-while-another-gate-was-closed"),
        pytest.param(1301989, id="nomination-that-counted-by-the-priority-of-its-group-ends"),
        pytest.param(1301749, id="members-that-ended-while-a-cycle-of-their-gang-waited-for-an-extender"),
        pytest.param(1402345, id="member-that-a-rival-bound-and-that-ends-before-the-binds-of-its-gang"),
        pytest.param(1402257, id="read-that-fails-while-a-cycle-waits-for-an-extender"),
        pytest.param(1301021, id="revision-that-gates-members-whose-cycle-waits-for-an-extender"),
        pytest.param(2000251, id="tree-that-skipped-a-domain-with-too-little-room"),
    ],
)
def test_it_stays_mended(seed: int) -> None:
    """The run that once failed passes."""
    assert run_seed(seed).problems == []
