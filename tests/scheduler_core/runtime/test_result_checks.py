"""Checks of plugin results, whose errors name the plugin and the extension point."""

from __future__ import annotations

import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.extension_points import PermitResult
from scheduler_core.framework.status import SUCCESS, Code, Status, error, unschedulable
from scheduler_core.runtime.node_adapters import checked, raised, refused
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod

INFO = NodeColumns().compile_pod(pod("web"))


def test_a_valid_result() -> None:
    """A valid result is returned unchanged."""
    assert checked(SUCCESS, Status, "P", "bind") is SUCCESS
    assert checked(PermitResult(), PermitResult, "P", "permit") == PermitResult()


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        pytest.param(None, Status, 'running Bind plugin "P": returned None; return a Status', id="none"),
        pytest.param(SUCCESS, PermitResult, "return a PermitResult", id="another-kind"),
        pytest.param(PermitResult("x"), PermitResult, "status 'x'; set a Status", id="without-status"),  # type: ignore[arg-type]  # an invalid value
    ],
)
def test_an_invalid_result(answer: object, kind: type[object], message: str) -> None:
    """An invalid result raises an error that contains the valid type."""
    with pytest.raises(PluginError, match=message):
        checked(answer, kind, "P", "bind")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(ValueError("x"), 'running Bind plugin "P": raised ValueError: x', id="any"),
        pytest.param(
            PluginError("Q", "score", "y"), 'running Score plugins: plugin "Q" failed with: y', id="plugin-error"
        ),
    ],
)
def test_an_exception(fault: Exception, message: str) -> None:
    """An exception is converted to an error status with one message."""
    assert raised("P", "bind", INFO, fault) == error(message).of("P")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(unschedulable("x"), unschedulable("x").of("P"), id="rejection-is-unchanged"),
        pytest.param(error("x"), error('running Bind plugin "P": x').of("P"), id="error-is-named"),
        pytest.param(Status(Code.WAIT), error('running Bind plugin "P": returned Wait').of("P"), id="not-allowed"),
    ],
)
def test_a_status_other_than_success(status: Status, expected: Status) -> None:
    """A rejection is returned unchanged, and every other status becomes an error."""
    assert refused(status, "P", "bind") == expected
