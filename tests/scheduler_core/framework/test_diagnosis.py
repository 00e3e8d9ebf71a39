"""The diagnosis of an unschedulable pod; its message equals kube-scheduler's."""

from __future__ import annotations

import numpy as np

from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from tests.support.tables import table

STATUSES = {
    1: unschedulable("Insufficient cpu").of("Fit"),
    2: unschedulable("Insufficient cpu", "Insufficient memory").of("Fit"),
    3: unresolvable("node(s) had untolerated taint(s)").of("Taint"),
    4: unschedulable().of("Silent"),
}


def diagnosis(verdicts: list[int], evaluated: list[bool] | None = None, count: int | None = None) -> Diagnosis:
    evaluated_rows = np.array([True] * len(verdicts) if evaluated is None else evaluated)
    return Diagnosis(
        len(verdicts) if count is None else count,
        np.array(verdicts, dtype=np.int32),
        evaluated_rows,
        STATUSES.__getitem__,
    )


@table(
    "verdicts, message",
    ("one", [1], "0/1 nodes are available: 1 Insufficient cpu."),
    ("two-reasons", [1, 1, 3], "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."),
    ("a-reason-of-two-statuses", [1, 2], "0/2 nodes are available: 1 Insufficient memory, 2 Insufficient cpu."),
    (
        "counts-sorted-as-text",
        [3] * 9 + [1] * 10,
        "0/19 nodes are available: 10 Insufficient cpu, 9 node(s) had untolerated taint(s).",
    ),
    ("no-reason-given", [4], "0/1 nodes are available:"),
)
def test_message(verdicts: list[int], message: str) -> None:
    """Reasons are counted over nodes, for all plugins together, and sorted as text."""
    assert diagnosis(verdicts).message() == message


def test_rows_that_were_not_evaluated_do_not_count() -> None:
    """The number of nodes is the total; reasons are counted over evaluated nodes only."""
    assert diagnosis([1, 1, 3], [True, False, False], 2).message() == "0/2 nodes are available: 1 Insufficient cpu."


@table(
    "status, after, message",
    ("pre-filter", unresolvable("bad volume"), "", "0/2 nodes are available: bad volume."),
    ("pre-filter-two-reasons", unresolvable("a", "b"), "", "0/2 nodes are available: a, b."),
    ("pre-filter-no-reason", unresolvable(), "", "0/2 nodes are available:"),
    ("both", unresolvable("a"), "preemption: no.", "0/2 nodes are available: a. preemption: no."),
    ("post-filter", SUCCESS, "preemption: no.", "0/2 nodes are available: 2 Insufficient cpu. preemption: no."),
)
def test_message_of_the_whole_pod(status: Status, after: str, message: str) -> None:
    """A rejection by PreFilter applies to all nodes; PostFilter's message comes last."""
    found = diagnosis([1, 1])
    found.pre_filter, found.post_filter_message = status, after
    assert found.message() == message


def test_rows_by_code() -> None:
    """rows_with() returns the evaluated rows with the status code."""
    found = diagnosis([0, 1, 2, 3, 1], [True, True, True, True, False])
    assert found.rows_with(Code.UNSCHEDULABLE).tolist() == [1, 2]
    assert found.rows_with(Code.UNSCHEDULABLE_AND_UNRESOLVABLE).tolist() == [3]


def test_status_of_a_row() -> None:
    """The status is Success for rows that were accepted or not evaluated."""
    found = diagnosis([0, 1, 3], [True, True, False])
    assert [found.status_of(row).code for row in range(3)] == [Code.SUCCESS, Code.UNSCHEDULABLE, Code.SUCCESS]


def test_distinct_verdicts_are_decoded_once() -> None:
    """Each distinct verdict is decoded once, not once per node."""
    decoded: list[int] = []

    def decode(verdict: int) -> Status:
        decoded.append(verdict)
        return STATUSES[verdict]

    found = Diagnosis(1000, np.full(1000, 1, dtype=np.int32), np.ones(1000, dtype=np.bool_), decode)
    assert list(found.counted()) == [(STATUSES[1], 1000)]
    assert decoded == [1]
