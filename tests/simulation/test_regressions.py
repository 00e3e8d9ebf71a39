"""Seeds that once found a bug; each bug also has a test of its own.

After a change of the generated steps or of any duration, a seed is a different run and proves little; its row may be
deleted then.
"""

from __future__ import annotations

import pytest

from tests.simulation.simulation import run_seed


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(79, id="preemptor-gated-at-its-retry-is-not-requeued"),
        pytest.param(362, id="pod-grows-between-decision-and-bind"),
        pytest.param(552, id="pod-rejected-for-an-unused-nomination-is-not-requeued"),
        pytest.param(737, id="nomination-of-a-gated-pod"),
        pytest.param(41, id="scheduled-member-retains-its-nomination"),
        pytest.param(101, id="failed-member-is-scheduled-alone"),
        pytest.param(105, id="profile-of-an-in-flight-gang-is-deleted"),
        pytest.param(5, id="gangs-with-other-priorities-than-their-pods-evict-each-other"),
        pytest.param(593, id="gang-becomes-complete-while-its-cycle-waits-for-an-extender"),
        pytest.param(91340006, id="watch-shows-an-unbound-pod-after-a-read-of-its-bind"),
        pytest.param(2011, id="pod-that-shrinks-between-decision-and-bind-requeues-no-pod"),
        pytest.param(55220263, id="nomination-of-a-pod-that-a-new-revision-gates"),
        pytest.param(73300487, id="watch-shows-a-pod-on-another-node-after-an-acknowledged-bind"),
        pytest.param(73301305, id="member-bound-by-another-scheduler-releases-its-reservation-first"),
        pytest.param(73300817, id="read-fails-while-the-api-server-is-unavailable"),
        pytest.param(73300057, id="read-of-unconfirmed-pods-waits-for-a-gang-cycle"),
        pytest.param(64, id="claim-is-deleted-before-the-response-to-a-write"),
        pytest.param(124, id="response-to-an-allocation-is-lost"),
        pytest.param(396, id="claim-is-deallocated-during-the-bind-of-its-pod"),
        pytest.param(4372, id="allocation-is-written-after-its-attempt-was-cancelled"),
        pytest.param(4080, id="reservation-cannot-be-removed-while-the-api-server-is-unavailable"),
        pytest.param(700832, id="claim-is-deallocated-before-the-next-attempt"),
        pytest.param(700849, id="nomination-of-a-gang-has-the-priority-of-the-gang-after-a-restart"),
        pytest.param(700473, id="complete-native-gang-with-a-gated-member"),
        pytest.param(701365, id="profile-is-created-again-while-a-gang-cycle-waits-for-an-extender"),
        pytest.param(700396, id="claim-is-deleted-after-the-response-to-its-allocation-was-lost"),
        pytest.param(701680, id="attempt-releases-devices-before-their-allocation-is-written"),
        pytest.param(2000944, id="claim-is-deallocated-before-the-response-to-its-allocation"),
        pytest.param(45, id="restarted-process-has-not-received-devices-in-use"),
        pytest.param(332, id="extended-resource-in-a-pod-class-without-it"),
        pytest.param(968, id="claim-of-an-earlier-attempt-is-deleted"),
        pytest.param(1600124, id="removal-of-a-reservation-is-rejected"),
        pytest.param(1600461, id="claim-is-allocated-by-another-pod-before-the-bind"),
        pytest.param(2001741, id="deallocation-of-a-claim-ends-between-decision-and-prebind"),
        pytest.param(1602681, id="late-member-of-a-gang-whose-domain-another-scheduler-changed"),
        pytest.param(2000475, id="edited-profile-gates-a-member-while-its-tree-is-scheduled"),
        pytest.param(1600041, id="rejected-member-of-a-gang-is-bound-by-another-scheduler"),
        pytest.param(529, id="another-scheduler-binds-a-member-while-the-binds-of-its-gang-are-sent"),
        pytest.param(1200205, id="nomination-of-a-gated-member-whose-group-is-recreated"),
        pytest.param(1301989, id="nomination-with-the-priority-of-its-group-ends"),
        pytest.param(1301749, id="members-terminate-while-a-cycle-of-their-gang-waits-for-an-extender"),
        pytest.param(1402345, id="member-bound-by-another-scheduler-terminates-before-the-binds-of-its-gang"),
        pytest.param(1402257, id="read-fails-while-a-cycle-waits-for-an-extender"),
        pytest.param(1301021, id="new-revision-gates-members-whose-cycle-waits-for-an-extender"),
        pytest.param(2000251, id="tree-skips-a-domain-without-enough-capacity"),
        pytest.param(2001107, id="bind-without-effect-displaces-the-write-of-a-nomination"),
        pytest.param(2001459, id="succeeded-member-of-a-tree-is-collected"),
        pytest.param(9000597, id="gang-breaks-up-while-a-further-member-is-searched-for-in-a-copy"),
    ],
)
def test_a_fixed_bug_does_not_return(seed: int) -> None:
    """A run that once failed passes."""
    assert run_seed(seed).problems == []
