"""PreEnqueue gates, backoffs and queueing hints of a profile."""

from __future__ import annotations

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
from tests.support.tables import table


def queued() -> QueuedPod:
    return QueuedPod(NodeColumns().compile_pod(pod("web")), 0.0, 0)


def rules(journal: Journal, initial: float = 1.0, maximum: float = 10.0) -> QueueingRules:
    gates = tuple(recorder(name, journal)(None, FakeHandle()) for name in ("A", "B"))
    everything = EventRegistration(ClusterEvent(Resource.NODE, Action.ALL))
    return QueueingRules(gates, {"A": (everything,)}, lambda each: each.sequence, initial, maximum)


@table(
    "answer, code, reason",
    ("rejects", unschedulable("wait"), Code.UNSCHEDULABLE, "wait"),
    ("raises", ValueError("boom"), Code.ERROR, 'plugin "A" failed at preEnqueue: boom'),
    ("invalid-value", None, Code.ERROR, 'plugin "A" failed at preEnqueue: answered None; return a Status'),
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


@table(
    "unschedulable_count, error_count, seconds",
    ("never-failed", 0, 0, 0),
    ("first", 1, 0, 2),
    ("doubles", 3, 0, 8),
    ("maximum", 9, 0, 30),
    ("does-not-overflow", 10_000, 0, 30),
    ("errors-count-separately", 9, 1, 2),
)
def test_backoff(unschedulable_count: int, error_count: int, seconds: float) -> None:
    """The backoff doubles with each failure, up to the maximum."""
    waiting = queued()
    waiting.unschedulable_count, waiting.error_count = unschedulable_count, error_count
    assert rules(Journal(), 2.0, 30.0).backoff(waiting) == seconds


def test_any_event_requeues_a_pod_that_no_plugin_rejected() -> None:
    """A pod that failed with an error has no rejecting plugin, so any event requeues it."""
    assert rules(Journal()).evaluate(queued(), NODE_ADD, None, None) is Requeue.AFTER_BACKOFF


@table(
    "timestamp, initial, maximum, end",
    ("rounded-to-nanoseconds", 1000.1, 0.9, 10.0, 1002.0),
    ("no-initial-backoff-ends-with-the-second", 1000.0, 0.0, 10.0, 1001.0),
    ("disabled", 1000.0, 1.0, 0.0, 0.0),
    ("initial-exceeds-maximum", 1000.0, 5.0, 3.0, 1004.0),
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


@table(
    "new, verdict",
    ("all-pods", None, Requeue.AFTER_BACKOFF),
    ("this-pod", pod("web"), Requeue.AFTER_BACKOFF),
    ("another-pod", pod("other"), Requeue.STAY),
    ("another-object", "no pod", Requeue.STAY),
)
def test_a_wildcard_event(new: object, verdict: Requeue) -> None:
    """A wildcard event without an object requeues all pods, with a pod only that pod."""
    waiting = queued()
    waiting.rejected_by = frozenset(("A",))
    assert rules(Journal()).evaluate(waiting, FORCE_ACTIVATE, None, new) is verdict
