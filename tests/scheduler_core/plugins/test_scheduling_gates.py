"""SchedulingGates: gated pods are rejected at PreEnqueue and requeued when their gates are removed."""

import pytest

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.status import Code
from scheduler_core.plugins.scheduling_gates import SchedulingGates, after_gates_eliminated
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.tables import table


@pytest.fixture
def plugin() -> SchedulingGates:
    return SchedulingGates(None, FakeHandle())


def test_a_pod_without_gates_is_accepted(plugin: SchedulingGates) -> None:
    """PreEnqueue returns Success for a pod without gates."""
    assert plugin.pre_enqueue(columns([]).compile_pod(pod())).is_success


@table(
    "gates, reason",
    ("one", ["example.com/a"], "waiting for scheduling gates: [example.com/a]"),
    ("in-order-of-the-spec", ["b", "a"], "waiting for scheduling gates: [b a]"),
)
def test_a_gated_pod_is_rejected(plugin: SchedulingGates, gates: list[str], reason: str) -> None:
    """The reason lists the remaining gates."""
    status = plugin.pre_enqueue(columns([]).compile_pod(pod(gates=gates)))
    assert (status.code, status.reasons) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))


@table(
    "new, hint",
    ("the-pod-itself", pod("waiting"), Hint.QUEUE),
    ("another-pod", pod("other"), Hint.SKIP),
    ("an-object-of-another-kind", node(), Hint.QUEUE),
)
def test_hint(new: object, hint: Hint) -> None:
    """A pod is requeued if its own gates were removed, or if the object is of another kind."""
    assert after_gates_eliminated(pod("waiting", gates=["a"]), None, new) is hint
