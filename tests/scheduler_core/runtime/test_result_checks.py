"""What plugins return is checked against their extension point; errors name plugin and point."""

from __future__ import annotations

import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.extension_points import PermitResult
from scheduler_core.framework.status import SUCCESS, Code, Status, error, unschedulable
from scheduler_core.runtime.result_checks import checked, raised, refused
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod

INFO = NodeColumns().compile_pod(pod("web"))


def test_a_good_answer_passes() -> None:
    """A valid result is returned unchanged."""
    assert checked(SUCCESS, Status, "P", "bind") is SUCCESS
    assert checked(PermitResult(), PermitResult, "P", "permit") == PermitResult()


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        pytest.param(None, Status, 'running Bind plugin "P": returned None; return a Status', id="none"),
        pytest.param(SUCCESS, PermitResult, "return a PermitResult", id="another-kind"),
        pytest.param(PermitResult("x"), PermitResult, "status 'x'; set a Status", id="hollow"),  # type: ignore[arg-type]  # nonsense
    ],
)
def test_nonsense(answer: object, kind: type[object], says: str) -> None:
    """An invalid result is an error that says what to return."""
    with pytest.raises(PluginError, match=says):
        checked(answer, kind, "P", "bind")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(ValueError("x"), 'running Bind plugin "P": raised ValueError: x', id="any"),
        pytest.param(
            PluginError("Q", "score", "y"), 'running Score plugins: plugin "Q" failed with: y', id="said-already"
        ),
    ],
)
def test_raised(fault: Exception, message: str) -> None:
    """The exception becomes one message, never nested."""
    assert raised("P", "bind", INFO, fault) == error(message).of("P")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(unschedulable("x"), unschedulable("x").of("P"), id="rejection-as-it-is"),
        pytest.param(error("x"), error('running Bind plugin "P": x').of("P"), id="error-is-named"),
        pytest.param(Status(Code.WAIT), error('running Bind plugin "P": returned Wait').of("P"), id="not-allowed"),
    ],
)
def test_refused(status: Status, expected: Status) -> None:
    """A status that is not a rejection is an error."""
    assert refused(status, "P", "bind") == expected
