"""Promised nodes are filtered as if the promised pods ran there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scheduler_core.cycle.context import Attempt
from scheduler_core.cycle.scheduling import hold
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


def promised(made: Rig, wanted: Pod, node_name: str) -> None:
    made.queue.nominator.nominate(made.context.cache.columns.compile_pod(wanted), node_name)


HUGE = pod("huge", requests={"cpu": "4"}, priority=5)


@pytest.mark.parametrize(
    ("priority", "fits"),
    [
        pytest.param(4, "other", id="lower-keeps-off"),
        pytest.param(5, "other", id="equal-keeps-off"),
        pytest.param(6, "promised", id="higher-may-take-it"),
    ],
)
def test_room_that_is_promised_is_taken(priority: int, fits: str) -> None:
    """By pods of no lower priority; who is more important does not care."""
    made = rig(defaults=default_plugins())
    # Most room is on the promised node, so that it is chosen where it is feasible.
    made.add(node("promised"), node("other", allocatable={"cpu": "1", "memory": "16Gi", "pods": "110"}))
    promised(made, HUGE, "promised")
    made.add(pod("small", requests={"cpu": "1"}, priority=priority))
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == fits


@pytest.mark.parametrize(
    ("priority", "pods", "fits"),
    [
        pytest.param(4, "1", "promised", id="its-priority-is-forgotten"),
        pytest.param(0, "110", "promised", id="its-requests-are-forgotten"),
        pytest.param(0, "1", "other", id="it-still-counts-as-a-pod"),
    ],
)
def test_a_promise_to_a_pod_that_is_being_deleted(priority: int, pods: str, fits: str) -> None:
    """Once that pod is not tried any more, it keeps hardly anybody off, however long a finalizer holds it."""
    made = rig(defaults=default_plugins())
    made.add(node("promised", allocatable={"cpu": "4", "memory": "16Gi", "pods": pods}))
    made.add(node("other", allocatable={"cpu": "1", "memory": "16Gi", "pods": "110"}))
    now = made.clock.wall()
    made.add(pod("ending", requests={"cpu": "4"}, priority=5, nominated_node="promised", deleted=now))
    assert made.decide() is None
    made.add(pod("small", requests={"cpu": "1"}, priority=priority))
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == fits


def test_nothing_stays_of_the_what_if() -> None:
    """The promised pod is taken off the columns again."""
    made = rig(defaults=default_plugins())
    made.add(node("promised"))
    promised(made, HUGE, "promised")
    made.add(pod("small", requests={"cpu": "1"}))
    assert made.decide() is None
    assert made.context.cache.columns.pod_count.tolist() == [0]
    assert not made.context.cache.columns.requested.any()


def test_a_pods_own_promise_does_not_keep_it_off() -> None:
    """And ends when the node is held for it."""
    made = rig(defaults=default_plugins())
    made.add(node("promised"))
    made.add(pod("huge", requests={"cpu": "4"}, nominated_node="promised"))
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == "promised"
    assert len(made.queue.nominator) == 0


_SEEN: StateKey[list[str]] = StateKey("Counting/seen")


class Counting(PreFilterPlugin, FilterPlugin, PreFilterExtensions):
    """Rejects nodes once it has been told of an added pod."""

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
    """A plugin is told of the added pod, on a copy of the state that the other nodes do not see."""
    made = rig([Counting])
    made.add(node("n0"), node("promised"))
    promised(made, HUGE, "promised")
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
    """With the plugin's name, and nothing left on the columns."""
    failing = type("Failing", (Counting,), {"name": "Failing", "added": staticmethod(answer)})
    made = rig([failing])
    made.add(node("promised"))
    promised(made, HUGE, "promised")
    made.add(pod("small"))
    assert made.decide() is None
    assert made.condition.message == f'running AddPod on PreFilter plugin "Failing": {says}'
    assert made.context.cache.columns.pod_count.tolist() == [0]
    made.queue.close()


KEPT_OFF = pod("kept-off", requests={"cpu": "4"}, priority=1)


def kept_off() -> Rig:
    """A pod that waits for a node that is promised to another, which is then promised in vain."""
    made = rig(defaults=default_plugins())
    made.add(node("promised"), node("cordoned", unschedulable=True))
    promised(made, HUGE, "promised")
    made.add(KEPT_OFF)
    assert made.decide() is None
    assert made.place(KEPT_OFF) == "unschedulable"
    return made


def test_a_promise_that_is_not_used_wakes_who_kept_off() -> None:
    """A pod that is put on another node than it was promised leaves the promised one to the others."""
    made = kept_off()
    hold(made.context, begun(made, HUGE), "cordoned")
    assert made.place(KEPT_OFF) == "backoff"


def test_a_promise_that_is_used_wakes_nobody() -> None:
    """The node is as full as it was expected to be."""
    made = kept_off()
    hold(made.context, begun(made, HUGE), "promised")
    assert made.place(KEPT_OFF) == "unschedulable"


def test_a_promise_to_a_pod_that_another_scheduler_binds_elsewhere() -> None:
    """It wakes who kept off, too."""
    made = kept_off()
    made.add(pod("huge", requests={"cpu": "4"}, priority=5, node_name="cordoned"))
    assert made.place(KEPT_OFF) == "backoff"


def begun(made: Rig, wanted: Pod) -> Attempt:
    """An attempt for a pod, whatever else waits."""
    info = made.context.cache.columns.compile_pod(wanted)
    instance = made.context.profiles.get("default-scheduler")
    assert instance is not None
    instance.begin()
    return Attempt(QueuedPod(info, made.clock.now(), 0), info, instance, made.clock.now())
