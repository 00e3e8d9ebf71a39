"""A profile's gates and backoffs; its hints are tested with the queue."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cluster_events import (
    FORCE_ACTIVATE,
    NODE_ADD,
    Action,
    ClusterEvent,
    EventRegistration,
    Resource,
)
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Code, unschedulable
from scheduler_core.queueing.gates_and_hints import QueueingRules, Requeue
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod
from tests.support.handles import FakeHandle
from tests.support.recording_plugins import Journal, recorder


def queued() -> QueuedPod:
    return QueuedPod(NodeColumns().compile_pod(pod("web")), 0.0, 0)


def rules(journal: Journal, initial: float = 1.0, longest: float = 10.0) -> QueueingRules:
    gates = tuple(recorder(name, journal)(None, FakeHandle()) for name in ("A", "B"))
    everything = EventRegistration(ClusterEvent(Resource.NODE, Action.ALL))
    return QueueingRules(gates, {"A": (everything,)}, lambda each: each.sequence, initial, longest)


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        pytest.param(unschedulable("wait"), Code.UNSCHEDULABLE, "wait", id="rejects"),
        pytest.param(ValueError("boom"), Code.ERROR, 'plugin "A" failed at preEnqueue: boom', id="raises"),
        pytest.param(
            None, Code.ERROR, 'plugin "A" failed at preEnqueue: answered None; return a Status', id="nonsense"
        ),
    ],
)
def test_the_first_closed_gate_decides(answer: object, code: Code, reason: str) -> None:
    """The others are not called; a gate that fails stays closed, and its reason says so."""
    journal = Journal(results={"A.preEnqueue": answer})
    status = rules(journal).gate(queued())
    assert (status.code, status.reasons, status.plugin) == (code, (reason,), "A")
    assert journal.plugins_at("preEnqueue") == ["A"]


def test_open_gates() -> None:
    """All are called, in order."""
    journal = Journal()
    assert rules(journal).gate(queued()) == SUCCESS
    assert journal.plugins_at("preEnqueue") == ["A", "B"]


@pytest.mark.parametrize(
    ("unschedulable_count", "error_count", "seconds"),
    [
        pytest.param(0, 0, 0, id="never-failed"),
        pytest.param(1, 0, 2, id="first"),
        pytest.param(3, 0, 8, id="doubles"),
        pytest.param(9, 0, 30, id="longest"),
        pytest.param(10_000, 0, 30, id="does-not-overflow"),
        pytest.param(9, 1, 2, id="errors-apart"),
    ],
)
def test_backoff(unschedulable_count: int, error_count: int, seconds: float) -> None:
    """It doubles from the first to the maximum."""
    waiting = queued()
    waiting.unschedulable_count, waiting.error_count = unschedulable_count, error_count
    assert rules(Journal(), 2.0, 30.0).backoff(waiting) == seconds


def test_a_pod_that_nobody_rejected_is_worth_every_event() -> None:
    """It was requeued after an error."""
    assert rules(Journal()).judge(queued(), NODE_ADD, None, None) is Requeue.AFTER_BACKOFF


@pytest.mark.parametrize(
    ("timestamp", "initial", "longest", "end"),
    [
        pytest.param(1000.1, 0.9, 10.0, 1002.0, id="rounded-to-nanoseconds"),
        pytest.param(1000.0, 0.0, 10.0, 1001.0, id="no-first-backoff-still-waits-for-the-window"),
        pytest.param(1000.0, 1.0, 0.0, 0.0, id="turned-off"),
        pytest.param(1000.0, 5.0, 3.0, 1004.0, id="first-is-longer-than-longest"),
    ],
)
def test_backoff_end(timestamp: float, initial: float, longest: float, end: float) -> None:
    """The end of the second in which the backoff has passed."""
    waiting = queued()
    waiting.timestamp, waiting.unschedulable_count = timestamp, 1
    assert rules(Journal(), initial, longest).backoff_end(waiting) == end


def test_the_gate_that_holds_a_pod_is_called_first() -> None:
    """Most often it still rejects the pod, and the others need not be called."""
    journal = Journal(results={"B.preEnqueue": unschedulable("wait")})
    waiting = queued()
    waiting.gated_by = "B"
    assert rules(journal).gate(waiting).plugin == "B"
    journal.results = {}
    assert rules(journal).gate(waiting) == SUCCESS
    assert journal.plugins_at("preEnqueue") == ["B", "B", "A"]


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        pytest.param(None, Requeue.AFTER_BACKOFF, id="for-everyone"),
        pytest.param(pod("web"), Requeue.AFTER_BACKOFF, id="for-this-pod"),
        pytest.param(pod("other"), Requeue.STAY, id="for-another"),
        pytest.param("no pod", Requeue.STAY, id="for-something-else"),
    ],
)
def test_a_wildcard_event(new: object, verdict: Requeue) -> None:
    """Without an object it is for all pods, with a pod for that one."""
    waiting = queued()
    waiting.rejected_by = frozenset(("A",))
    assert rules(Journal()).judge(waiting, FORCE_ACTIVATE, None, new) is verdict
