"""Status codes, their kube-scheduler names, and the checks of a Status."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.errors import (
    DeviceBindingTimeoutError,
    NotFoundError,
    SchedulerCoreError,
    StatusError,
    StorageError,
)
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


def test_message() -> None:
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
