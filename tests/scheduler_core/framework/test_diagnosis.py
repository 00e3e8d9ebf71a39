"""The diagnosis of an unschedulable pod, whose message equals kube-scheduler's, and statuses with their code names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler_core.errors import (
    DeviceBindingTimeoutError,
    NotFoundError,
    SchedulerCoreError,
    StatusError,
    StorageError,
)
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import (
    SKIP,
    SUCCESS,
    Code,
    Status,
    error,
    failed_write,
    unresolvable,
    unschedulable,
)
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


# -- statuses ----------------------------------------------------------------------------------------------------------


@table(
    "code, number, name, rejected",
    ("success", Code.SUCCESS, 0, "Success", False),
    ("error", Code.ERROR, 1, "Error", False),
    ("unschedulable", Code.UNSCHEDULABLE, 2, "Unschedulable", True),
    ("unresolvable", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, 3, "UnschedulableAndUnresolvable", True),
    ("wait", Code.WAIT, 4, "Wait", False),
    ("skip", Code.SKIP, 5, "Skip", False),
    ("pending", Code.PENDING, 6, "Pending", True),
)
def test_codes(code: Code, number: int, name: str, rejected: bool) -> None:
    """Numbers and names are those of kube-scheduler."""
    status = Status(code)
    assert (int(code), status.code_name, status.is_rejected) == (number, name, rejected)
    assert (status.is_success, status.is_skip) == (code is Code.SUCCESS, code is Code.SKIP)


def test_short_forms() -> None:
    """Short constructors equal a Status with the code and reasons."""
    assert Status() == SUCCESS
    assert SKIP.is_skip
    assert error("x") == Status(Code.ERROR, ("x",))
    assert unschedulable("x", "y") == Status(Code.UNSCHEDULABLE, ("x", "y"))
    assert unresolvable("x") == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("x",))


def test_message_of_a_status() -> None:
    """The message joins the reasons."""
    assert (unschedulable("x", "y").message, SUCCESS.message) == ("x, y", "")


def test_the_plugin_is_set_once() -> None:
    """of() does not replace a plugin that is already set."""
    first = unschedulable("x").of("A")
    assert (first.plugin, first.of("B").plugin) == ("A", "A")


@table(
    "code, reasons, message",
    ("name-for-code", "Unschedulable", (), "'Unschedulable' is not a status code"),
    ("number-for-code", 2, (), "2 is not a status code"),
    ("one-text", Code.UNSCHEDULABLE, "no seat", "'no seat' are not valid reasons"),
    ("list", Code.UNSCHEDULABLE, ["no seat"], "are not valid reasons"),
    ("number", Code.UNSCHEDULABLE, (1,), "are not valid reasons"),
    ("none", Code.UNSCHEDULABLE, None, "None are not valid reasons"),
)
def test_invalid_statuses_are_rejected(code: Any, reasons: Any, message: str) -> None:
    """An invalid code or reason raises StatusError in the constructor."""
    with pytest.raises(StatusError, match=message):
        Status(code, reasons)


@table(
    "fault, is_of_cluster",
    ("failed write", NotFoundError("gone"), True),
    ("late volume", StorageError("binding volumes: context deadline exceeded"), True),
    ("late device", DeviceBindingTimeoutError("device binding timeout"), True),
    ("other", SchedulerCoreError("bug"), False),
)
def test_errors_of_the_cluster_are_no_faults_of_plugins(fault: SchedulerCoreError, *, is_of_cluster: bool) -> None:
    """A write that failed, and a volume or device that is late, are errors of the cluster, which degrade no profile."""
    found = failed_write(fault)
    assert (found.code, found.reasons, found.is_of_cluster) == (Code.ERROR, (str(fault),), is_of_cluster)
