"""DeferredPodScheduling. Expected values follow kube-scheduler v1.37.1, ``deferred_pod_scheduling.go``."""

import pytest
from msgspec.structs import replace

from scheduler_core.framework.cluster_events import NODE_ADD, Action, ClusterEvent, Hint, HintFunction, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler_core.model.node import Node, PodPreemptionPolicy
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.plugins.deferred_pod_scheduling import DeferredPodScheduling
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.tables import table


def _with_policy(name: str, *owners: str) -> Node:
    plain = node(name)
    return replace(plain, spec=replace(plain.spec, pod_preemption_policy=PodPreemptionPolicy(owners)))


def _deferred(node_name: str = "a", reason: str = "Deferred") -> Pod:
    return pod("resized", node_name=node_name, conditions=[PodCondition("PodResizePending", "True", reason)])


NODES = columns([node("a"), _with_policy("b", "an-operator"), _with_policy("c")])
ELSEWHERE = unresolvable("pod assigned to different node")
DISABLED = unresolvable("node had resize preemption disabled")


@pytest.fixture
def plugin() -> DeferredPodScheduling:
    return DeferredPodScheduling(None, FakeHandle(nodes=NODES))


@table(
    "running, statuses",
    ("no-policy", _deferred("a"), [SUCCESS, ELSEWHERE, ELSEWHERE]),
    ("an-owner-disables", _deferred("b"), [ELSEWHERE, DISABLED, ELSEWHERE]),
    ("no-owner-disables", _deferred("c"), [ELSEWHERE, ELSEWHERE, SUCCESS]),
    ("unknown-node", _deferred("gone"), [ELSEWHERE, ELSEWHERE, ELSEWHERE]),
    ("infeasible", _deferred("b", "Infeasible"), [SUCCESS] * 3),
    ("no-resize", pod(node_name="b"), [SUCCESS] * 3),
    ("no-node", pod(), [SUCCESS] * 3),
)
def test_filter(plugin: DeferredPodScheduling, running: Pod, statuses: list[Status]) -> None:
    """A deferred resize passes only on its own node, if it allows preemption; other pods pass everywhere."""
    info = NODES.compile_pod(running)
    assert plugin.pre_filter(CycleState(), info, NODES).status.is_skip is not running.has_deferred_resize
    codes = plugin.filter(CycleState(), info, NODES, ALL_ROWS)
    found = [0] * 3 if codes is None else codes.tolist()
    assert [plugin.decode(CycleState(), info, code) if code else SUCCESS for code in found] == statuses


@table("running, code", ("deferred", _deferred(), Code.UNSCHEDULABLE_AND_UNRESOLVABLE), ("other", pod(), Code.SUCCESS))
def test_permit(plugin: DeferredPodScheduling, running: Pod, code: Code) -> None:
    """A pod with a feasible deferred resize is rejected at Permit, because the kubelet resizes it."""
    assert plugin.permit(CycleState(), NODES.compile_pod(running), "a").status.code is code


def _hint(plugin: DeferredPodScheduling, event: ClusterEvent) -> HintFunction:
    (hint,) = (each.hint for each in plugin.events_to_register() if each.event.covers(event))
    assert hint is not None
    return hint


@table(
    "running, old, new, hint",
    ("enabled", _deferred(), _with_policy("a", "x"), node("a"), Hint.QUEUE),
    ("last-owner-removed", _deferred(), _with_policy("a", "x"), _with_policy("a"), Hint.QUEUE),
    ("one-owner-removed", _deferred(), _with_policy("a", "x", "y"), _with_policy("a", "x"), Hint.SKIP),
    ("disabled", _deferred(), node("a"), _with_policy("a", "x"), Hint.SKIP),
    ("another-node", _deferred(), _with_policy("b", "x"), node("b"), Hint.SKIP),
    ("another-pod", pod(), _with_policy("a", "x"), node("a"), Hint.SKIP),
)
def test_changed_policy(plugin: DeferredPodScheduling, running: Pod, old: Node, new: Node, hint: Hint) -> None:
    """A pod is requeued if preemption becomes enabled on its node."""
    changed = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_PREEMPTION_POLICY)
    assert _hint(plugin, changed)(running, old, new) is hint


@table(
    "running, new, hint",
    ("its-node", _deferred(), node("a"), Hint.QUEUE),
    ("preemption-disabled", _deferred(), _with_policy("a", "x"), Hint.SKIP),
    ("another-node", _deferred(), node("b"), Hint.SKIP),
    ("another-pod", pod(), node("a"), Hint.SKIP),
)
def test_added_node(plugin: DeferredPodScheduling, running: Pod, new: Node, hint: Hint) -> None:
    """A pod is requeued if its node is added and allows preemption."""
    assert _hint(plugin, NODE_ADD)(running, None, new) is hint
