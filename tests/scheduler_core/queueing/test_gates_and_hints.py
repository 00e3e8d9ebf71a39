"""PreEnqueue gates, backoffs and queueing hints of a profile."""

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
from scheduler_core.queueing.queueing_rules import QueueingRules, Requeue
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod
from tests.support.handles import FakeHandle
from tests.support.recording_plugins import Journal, recorder


def queued() -> QueuedPod:
    return QueuedPod(NodeColumns().compile_pod(pod("web")), 0.0, 0)


def rules(journal: Journal, initial: float = 1.0, maximum: float = 10.0) -> QueueingRules:
    gates = tuple(recorder(name, journal)(None, FakeHandle()) for name in ("A", "B"))
    everything = EventRegistration(ClusterEvent(Resource.NODE, Action.ALL))
    return QueueingRules(gates, {"A": (everything,)}, lambda each: each.sequence, initial, maximum)


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        pytest.param(unschedulable("wait"), Code.UNSCHEDULABLE, "wait", id="rejects"),
        pytest.param(ValueError("boom"), Code.ERROR, 'plugin "A" failed at preEnqueue: boom', id="raises"),
        pytest.param(
            None, Code.ERROR, 'plugin "A" failed at preEnqueue: answered None; return a Status', id="invalid-value"
        ),
    ],
)
def test_the_first_closed_gate_is_returned(answer: object, code: Code, reason: str) -> None:
    """Plugins after the first closed gate are not called; a plugin that fails counts as a closed gate."""
    journal = Journal(results={"A.preEnqueue": answer})
    status = rules(journal).gate(queued())
    assert (status.code, status.reasons, status.plugin) == (code, (reason,), "A")
    assert journal.plugins_at("preEnqueue") == ["A"]


def test_open_gates() -> None:
    """All PreEnqueue plugins are called in order while the gates are open."""
    journal = Journal()
    assert rules(journal).gate(queued()) == SUCCESS
    assert journal.plugins_at("preEnqueue") == ["A", "B"]


@pytest.mark.parametrize(
    ("unschedulable_count", "error_count", "seconds"),
    [
        pytest.param(0, 0, 0, id="never-failed"),
        pytest.param(1, 0, 2, id="first"),
        pytest.param(3, 0, 8, id="doubles"),
        pytest.param(9, 0, 30, id="maximum"),
        pytest.param(10_000, 0, 30, id="does-not-overflow"),
        pytest.param(9, 1, 2, id="errors-count-separately"),
    ],
)
def test_backoff(unschedulable_count: int, error_count: int, seconds: float) -> None:
    """The backoff doubles with each failure, up to the maximum."""
    waiting = queued()
    waiting.unschedulable_count, waiting.error_count = unschedulable_count, error_count
    assert rules(Journal(), 2.0, 30.0).backoff(waiting) == seconds


def test_any_event_requeues_a_pod_that_no_plugin_rejected() -> None:
    """A pod that failed with an error has no rejecting plugin, so any event requeues it."""
    assert rules(Journal()).evaluate(queued(), NODE_ADD, None, None) is Requeue.AFTER_BACKOFF


@pytest.mark.parametrize(
    ("timestamp", "initial", "maximum", "end"),
    [
        pytest.param(1000.1, 0.9, 10.0, 1002.0, id="rounded-to-nanoseconds"),
        pytest.param(1000.0, 0.0, 10.0, 1001.0, id="no-initial-backoff-ends-with-the-second"),
        pytest.param(1000.0, 1.0, 0.0, 0.0, id="disabled"),
        pytest.param(1000.0, 5.0, 3.0, 1004.0, id="initial-exceeds-maximum"),
    ],
)
def test_backoff_end(timestamp: float, initial: float, maximum: float, end: float) -> None:
    """A backoff ends at the end of the second in which its duration has passed."""
    waiting = queued()
    waiting.timestamp, waiting.unschedulable_count = timestamp, 1
    assert rules(Journal(), initial, maximum).backoff_end(waiting) == end


def test_the_gate_that_holds_a_pod_is_called_first() -> None:
    """The plugin that gates a pod is called first, because it most often still rejects the pod."""
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
        pytest.param(None, Requeue.AFTER_BACKOFF, id="all-pods"),
        pytest.param(pod("web"), Requeue.AFTER_BACKOFF, id="this-pod"),
        pytest.param(pod("other"), Requeue.STAY, id="another-pod"),
        pytest.param("no pod", Requeue.STAY, id="another-object"),
    ],
)
def test_a_wildcard_event(new: object, verdict: Requeue) -> None:
    """A wildcard event without an object requeues all pods, with a pod only that pod."""
    waiting = queued()
    waiting.rejected_by = frozenset(("A",))
    assert rules(Journal()).evaluate(waiting, FORCE_ACTIVATE, None, new) is verdict
