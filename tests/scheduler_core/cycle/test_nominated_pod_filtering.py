"""Nodes are filtered as if the pods nominated to them ran there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
)
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig


def nominate(made: Rig, wanted: Pod, node_name: str) -> None:
    made.queue.nominator.nominate(made.context.cache.columns.compile_pod(wanted), node_name)


HUGE = pod("huge", requests={"cpu": "4"}, priority=5)


@pytest.mark.parametrize(
    ("priority", "fits"),
    [
        pytest.param(4, "other", id="lower-keeps-off"),
        pytest.param(5, "other", id="equal-keeps-off"),
        pytest.param(6, "nominated", id="higher-may-take-it"),
    ],
)
def test_room_of_a_nominated_pod(priority: int, fits: str) -> None:
    """The room of a nominated pod counts for pods of the same or lower priority, not for those of higher priority."""
    made = rig(defaults=default_plugins())
    # Most room is on the nominated node, so that it is chosen where it is feasible.
    made.add(node("nominated"), node("other", allocatable={"cpu": "1", "memory": "16Gi", "pods": "110"}))
    nominate(made, HUGE, "nominated")
    made.add(pod("small", requests={"cpu": "1"}, priority=priority))
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == fits


@pytest.mark.parametrize(
    ("priority", "pods", "fits"),
    [
        pytest.param(4, "1", "nominated", id="its-priority-is-forgotten"),
        pytest.param(0, "110", "nominated", id="its-requests-are-forgotten"),
        pytest.param(0, "1", "other", id="it-still-counts-as-a-pod"),
    ],
)
def test_a_nominated_pod_that_is_being_deleted(priority: int, pods: str, fits: str) -> None:
    """Once that pod is not retried, its nomination rejects almost no pod, however long a finalizer delays it."""
    made = rig(defaults=default_plugins())
    made.add(node("nominated", allocatable={"cpu": "4", "memory": "16Gi", "pods": pods}))
    made.add(node("other", allocatable={"cpu": "1", "memory": "16Gi", "pods": "110"}))
    now = made.clock.wall()
    made.add(pod("ending", requests={"cpu": "4"}, priority=5, nominated_node="nominated", deleted=now))
    assert made.decide() is None
    made.add(pod("small", requests={"cpu": "1"}, priority=priority))
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == fits


def test_nothing_remains_of_the_dry_run() -> None:
    """The nominated pod is removed from the columns again."""
    made = rig(defaults=default_plugins())
    made.add(node("nominated"))
    nominate(made, HUGE, "nominated")
    made.add(pod("small", requests={"cpu": "1"}))
    assert made.decide() is None
    assert made.context.cache.columns.pod_count.tolist() == [0]
    assert not made.context.cache.columns.requested.any()


def test_a_pods_own_nomination_does_not_reject_it() -> None:
    """It ends when the pod is assumed."""
    made = rig(defaults=default_plugins())
    made.add(node("nominated"))
    made.add(pod("huge", requests={"cpu": "4"}, nominated_node="nominated"))
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == "nominated"
    assert len(made.queue.nominator) == 0


_SEEN: StateKey[list[str]] = StateKey("Counting/seen")


class Counting(PreFilterPlugin, FilterPlugin, PreFilterExtensions):
    """Rejects nodes after AddPod was called."""

    name = "Counting"
    added: Callable[[], object] = staticmethod(lambda: SUCCESS)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        state.write(_SEEN, [])
        return PreFilterResult()

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        state.write(_SEEN, [*state.read(_SEEN), added.pod.metadata.name])
        return type(self).added()  # type: ignore[return-value]  # tests let it answer nonsense

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return np.full(len(nodes.alive[rows]), len(state.read(_SEEN)), dtype=np.int16)

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("seen")


def test_pre_filter_state_is_kept_true() -> None:
    """A plugin's AddPod is called for the nominated pod, on a copy of the state that other nodes do not see."""
    made = rig([Counting])
    made.add(node("n0"), node("nominated"))
    nominate(made, HUGE, "nominated")
    made.add(pod("small"))
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == "n0"
    assert attempt.state.read(_SEEN) == []


def _boom() -> object:
    raise ZeroDivisionError("boom")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(_boom, "raised ZeroDivisionError: boom", id="raises"),
        pytest.param(lambda: None, "returned None; return a Status", id="nonsense"),
        pytest.param(lambda: unschedulable("no"), "no", id="does-not-succeed"),
    ],
)
def test_add_pod_that_fails_fails_the_attempt(answer: Callable[[], object], says: str) -> None:
    """The message names the plugin, and nothing stays on the columns."""
    failing = type("Failing", (Counting,), {"name": "Failing", "added": staticmethod(answer)})
    made = rig([failing])
    made.add(node("nominated"))
    nominate(made, HUGE, "nominated")
    made.add(pod("small"))
    assert made.decide() is None
    assert made.condition.message == f'running AddPod on PreFilter plugin "Failing": {says}'
    assert made.context.cache.columns.pod_count.tolist() == [0]
    made.queue.close()


KEPT_OFF = pod("kept-off", requests={"cpu": "4"}, priority=1)


def unused_nomination() -> Rig:
    """A pod that waits for a node to which another pod is nominated, which then goes elsewhere."""
    made = rig(defaults=default_plugins())
    made.add(node("nominated"), node("cordoned", unschedulable=True))
    nominate(made, HUGE, "nominated")
    made.add(KEPT_OFF)
    assert made.decide() is None
    assert made.place(KEPT_OFF) == "unschedulable"
    return made


def test_an_unused_nomination_requeues_rejected_pods() -> None:
    """If a pod is assumed on another node than its nominated one, that room is free for other pods."""
    made = unused_nomination()
    made.scheduler.cycles.assumed.reserve_and_permit(begun(made, HUGE), "cordoned")
    assert made.place(KEPT_OFF) == "backoff"


def test_a_used_nomination_requeues_no_pod() -> None:
    """The node is as full as expected."""
    made = unused_nomination()
    made.scheduler.cycles.assumed.reserve_and_permit(begun(made, HUGE), "nominated")
    assert made.place(KEPT_OFF) == "unschedulable"


def test_a_nominated_pod_that_another_scheduler_binds_elsewhere() -> None:
    """It also requeues the rejected pods."""
    made = unused_nomination()
    made.add(pod("huge", requests={"cpu": "4"}, priority=5, node_name="cordoned"))
    assert made.place(KEPT_OFF) == "backoff"


def begun(made: Rig, wanted: Pod) -> Attempt:
    """Return an attempt for a pod, whatever else waits."""
    info = made.context.cache.columns.compile_pod(wanted)
    instance = made.context.profiles.get("default-scheduler")
    assert instance is not None
    instance.begin()
    return Attempt(QueuedPod(info, made.clock.now(), 0), info, instance, made.clock.now())
