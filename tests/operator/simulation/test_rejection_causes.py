"""Tests of the causes in the messages of unscheduled pods."""

import pytest
from bayplan.simulation.simulation import PodPlacement, RejectionCause, Verdict, cause_of, rejection_causes

NOT_HELPFUL = " preemption: 0/9 nodes are available: 9 Preemption is not helpful."


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        pytest.param(
            f"0/9 nodes are available: 2 Insufficient example.com/gpu, 7 Insufficient cpu.{NOT_HELPFUL}",
            "Insufficient cpu, Insufficient example.com/gpu",
            id="counted reasons",
        ),
        pytest.param(
            "0/12 nodes are available: 12 Insufficient cpu.", "Insufficient cpu", id="without a result of preemption"
        ),
        pytest.param(
            f'0/9 nodes are available: persistentvolumeclaim "data-0" not found.{NOT_HELPFUL}',
            'persistentvolumeclaim "..." not found',
            id="PreFilter",
        ),
        pytest.param(
            "0/9 nodes are available: the claim is lost, restore it.", "the claim is lost, restore it", id="comma"
        ),
        pytest.param(
            "1 of the 3 members that must be placed together fit in zone=a; with them in place, for ml/train-1: 0/3 "
            "nodes are available: 1 node(s) were outside the gang's domain zone=a, 2 Insufficient cpu.",
            "no room for its gang: Insufficient cpu",
            id="gang",
        ),
        pytest.param("waits at Permit on node n-7 for Quota", "waits at Permit for Quota", id="Permit"),
        pytest.param("the pod is being deleted", "the pod is being deleted", id="no nodes mentioned"),
    ],
)
def test_cause_of_a_message(message: str, cause: str) -> None:
    """A cause has no counts, no names and no result of preemption."""
    assert cause_of(message) == cause


def test_causes_are_grouped() -> None:
    """Causes are grouped by verdict, largest group first, with the first pod as example."""
    messages = (
        "0/2 nodes are available: 2 Insufficient cpu.",
        "0/3 nodes are available: 3 Insufficient cpu.",
        "failed",
    )
    verdicts = (Verdict.UNSCHEDULABLE, Verdict.UNSCHEDULABLE, Verdict.ERROR)
    pods = [
        PodPlacement("ns", f"p-{number}", "p", verdict, "", message, 1)
        for number, (verdict, message) in enumerate(zip(verdicts, messages, strict=True))
    ]
    placed = PodPlacement("ns", "placed", "p", Verdict.PLACED, "n", "", 1)
    assert rejection_causes([placed, *pods]) == (
        RejectionCause(Verdict.UNSCHEDULABLE, "Insufficient cpu", 2, "ns/p-0"),
        RejectionCause(Verdict.ERROR, "failed", 1, "ns/p-2"),
    )
