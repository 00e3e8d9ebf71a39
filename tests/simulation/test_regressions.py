"""Seeds that once found a bug; each bug also has a test of its own.

After a change of the generated steps or of any duration, a seed is a different run and proves little; its row may be
deleted then.
"""

from __future__ import annotations

from tests.simulation.simulation import run_seed
from tests.support.tables import table


@table(
    "seed",
    ("preemptor-gated-at-its-retry-is-not-requeued", 79),
    ("pod-grows-between-decision-and-bind", 362),
    ("pod-rejected-for-an-unused-nomination-is-not-requeued", 552),
    ("nomination-of-a-gated-pod", 737),
    ("scheduled-member-retains-its-nomination", 41),
    ("failed-member-is-scheduled-alone", 101),
    ("profile-of-an-in-flight-gang-is-deleted", 105),
    ("gangs-with-other-priorities-than-their-pods-evict-each-other", 5),
    ("gang-becomes-complete-while-its-cycle-waits-for-an-extender", 593),
    ("watch-shows-an-unbound-pod-after-a-read-of-its-bind", 91340006),
    ("pod-that-shrinks-between-decision-and-bind-requeues-no-pod", 2011),
    ("nomination-of-a-pod-that-a-new-revision-gates", 55220263),
    ("watch-shows-a-pod-on-another-node-after-an-acknowledged-bind", 73300487),
    ("member-bound-by-another-scheduler-releases-its-reservation-first", 73301305),
    ("read-fails-while-the-api-server-is-unavailable", 73300817),
    ("read-of-unconfirmed-pods-waits-for-a-gang-cycle", 73300057),
    ("claim-is-deleted-before-the-response-to-a-write", 64),
    ("response-to-an-allocation-is-lost", 124),
    ("claim-is-deallocated-during-the-bind-of-its-pod", 396),
    ("allocation-is-written-after-its-attempt-was-cancelled", 4372),
    ("reservation-cannot-be-removed-while-the-api-server-is-unavailable", 4080),
    ("claim-is-deallocated-before-the-next-attempt", 700832),
    ("nomination-of-a-gang-has-the-priority-of-the-gang-after-a-restart", 700849),
    ("complete-native-gang-with-a-gated-member", 700473),
    ("profile-is-created-again-while-a-gang-cycle-waits-for-an-extender", 701365),
    ("claim-is-deleted-after-the-response-to-its-allocation-was-lost", 700396),
    ("attempt-releases-devices-before-their-allocation-is-written", 701680),
    ("claim-is-deallocated-before-the-response-to-its-allocation", 2000944),
    ("restarted-process-has-not-received-devices-in-use", 45),
    ("extended-resource-in-a-pod-class-without-it", 332),
    ("claim-of-an-earlier-attempt-is-deleted", 968),
    ("removal-of-a-reservation-is-rejected", 1600124),
    ("claim-is-allocated-by-another-pod-before-the-bind", 1600461),
    ("deallocation-of-a-claim-ends-between-decision-and-prebind", 2001741),
    ("late-member-of-a-gang-whose-domain-another-scheduler-changed", 1602681),
    ("edited-profile-gates-a-member-while-its-tree-is-scheduled", 2000475),
    ("rejected-member-of-a-gang-is-bound-by-another-scheduler", 1600041),
    ("another-scheduler-binds-a-member-while-the-binds-of-its-gang-are-sent", 529),
    ("nomination-of-a-gated-member-whose-group-is-recreated", 1200205),
    ("nomination-with-the-priority-of-its-group-ends", 1301989),
    ("members-terminate-while-a-cycle-of-their-gang-waits-for-an-extender", 1301749),
    ("member-bound-by-another-scheduler-terminates-before-the-binds-of-its-gang", 1402345),
    ("read-fails-while-a-cycle-waits-for-an-extender", 1402257),
    ("new-revision-gates-members-whose-cycle-waits-for-an-extender", 1301021),
    ("tree-skips-a-domain-without-enough-capacity", 2000251),
    ("bind-without-effect-displaces-the-write-of-a-nomination", 2001107),
    ("succeeded-member-of-a-tree-is-collected", 2001459),
    ("gang-breaks-up-while-a-further-member-is-searched-for-in-a-copy", 9000597),
    ("gang-breaks-up-while-a-member-waits-at-permit-and-others-become-the-quorum", 9100965),
    ("tree-loses-its-quorum-while-it-is-searched-in-a-copy-and-a-member-backs-off-alone", 9102187),
    ("created-claim-is-deleted-while-its-watch-stalls-and-then-expires", 9200004),
    ("nomination-of-a-gang-ends-when-its-next-attempt-fails", 9300061),
    ("member-is-deleted-while-a-cycle-waits-and-its-profile-goes-live", 9300414),
    ("victim-terminates-on-a-deleted-node-when-another-is-evicted", 76),
    ("group-is-deleted-during-an-attempt-of-its-nominated-gang", 325),
    ("a-pod-of-the-budget-is-deleted-while-an-extender-answers-a-preemption", 9310784),
)
def test_a_fixed_bug_does_not_return(seed: int) -> None:
    """A run that once failed passes."""
    assert run_seed(seed).problems == []
