"""Filters count nominated pods as if they ran on their nominated nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig, rig
from tests.support.tables import table


def nominate(made: Rig, wanted: Pod, node_name: str) -> None:
    made.queue.nominator.nominate(made.columns.compile_pod(wanted), node_name)


HUGE = pod("huge", requests={"cpu": "4"}, priority=5)


@table(
    "priority, fits",
    ("lower-priority-is-rejected", 4, "other"),
    ("equal-priority-is-rejected", 5, "other"),
    ("higher-priority-is-accepted", 6, "nominated"),
)
def test_requests_of_a_nominated_pod(priority: int, fits: str) -> None:
    """Requests of a nominated pod count for pods of equal or lower priority only."""
    made = default_rig()
    # The nominated node has the most free resources, so it is chosen if it is feasible.
    made.add(node("nominated"), node("other", allocatable={"cpu": "1", "memory": "16Gi", "pods": "110"}))
    nominate(made, HUGE, "nominated")
    made.add(pod("small", requests={"cpu": "1"}, priority=priority))
    attempt = present(made.decide())
    assert attempt.node_name == fits


@table(
    "priority, pods, fits",
    ("priority-is-ignored", 4, "1", "nominated"),
    ("requests-are-ignored", 0, "110", "nominated"),
    ("pod-is-counted", 0, "1", "other"),
)
def test_a_nominated_pod_that_is_being_deleted(priority: int, pods: str, fits: str) -> None:
    """The nomination of a terminating pod counts as one pod without requests and with the lowest priority."""
    made = default_rig(node("nominated", allocatable={"cpu": "4", "memory": "16Gi", "pods": pods}))
    made.add(node("other", allocatable={"cpu": "1", "memory": "16Gi", "pods": "110"}))
    now = made.clock.wall()
    made.add(pod("ending", requests={"cpu": "4"}, priority=5, nominated_node="nominated", deleted=now))
    assert made.decide() is None
    made.add(pod("small", requests={"cpu": "1"}, priority=priority))
    attempt = present(made.decide())
    assert attempt.node_name == fits


def test_the_columns_are_unchanged_afterwards() -> None:
    """The nominated pod is removed from the columns after filtering."""
    made = default_rig(node("nominated"))
    nominate(made, HUGE, "nominated")
    made.add(pod("small", requests={"cpu": "1"}))
    assert made.decide() is None
    assert made.columns.pod_count.tolist() == [0]
    assert not made.columns.requested.any()


def test_a_pods_own_nomination_does_not_reject_it() -> None:
    """A pod is scheduled on its own nominated node, and its nomination ends."""
    made = default_rig(node("nominated"), pod("huge", requests={"cpu": "4"}, nominated_node="nominated"))
    attempt = present(made.decide())
    assert attempt.node_name == "nominated"
    assert len(made.queue.nominator) == 0


_ADDED: StateKey[list[str]] = StateKey("Counting/added")


class Counting(PreFilterPlugin, FilterPlugin, PreFilterExtensions):
    """Filter plugin that rejects all nodes after its AddPod was called."""

    name = "Counting"
    added: Callable[[], object] = staticmethod(lambda: SUCCESS)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        state.write(_ADDED, [])
        return PreFilterResult()

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        state.write(_ADDED, [*state.read(_ADDED), added.pod.metadata.name])
        return type(self).added()  # type: ignore[return-value]  # tests return invalid values

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return np.full(len(nodes.alive[rows]), len(state.read(_ADDED)), dtype=np.int16)

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("seen")


def test_add_pod_updates_a_copy_of_the_pre_filter_state() -> None:
    """AddPod is called for the nominated pod with a copy of the cycle state, which is used for its node only."""
    made = rig([Counting])
    made.add(node("n0"), node("nominated"))
    nominate(made, HUGE, "nominated")
    made.add(pod("small"))
    attempt = present(made.decide())
    assert attempt.node_name == "n0"
    assert attempt.state.read(_ADDED) == []


def _boom() -> object:
    raise ZeroDivisionError("boom")


@table(
    "answer, message",
    ("raises", _boom, "raised ZeroDivisionError: boom"),
    ("invalid-value", lambda: None, "returned None; return a Status"),
    ("rejects", lambda: unschedulable("no"), "no"),
)
def test_a_failed_add_pod_fails_the_attempt(answer: Callable[[], object], message: str) -> None:
    """After a failed AddPod the condition names the plugin, and the columns are unchanged."""
    failing = type("Failing", (Counting,), {"name": "Failing", "added": staticmethod(answer)})
    made = rig([failing])
    made.add(node("nominated"))
    nominate(made, HUGE, "nominated")
    made.add(pod("small"))
    assert made.decide() is None
    assert made.condition.message == f'running AddPod on PreFilter plugin "Failing": {message}'
    assert made.columns.pod_count.tolist() == [0]


REJECTED = pod("rejected", requests={"cpu": "4"}, priority=1)


def rig_with_rejected_pod() -> Rig:
    """Return a scheduler with a pod that was rejected because another pod is nominated to its node."""
    made = default_rig(node("nominated"), node("cordoned", unschedulable=True))
    nominate(made, HUGE, "nominated")
    made.add(REJECTED)
    assert made.decide() is None
    assert made.place_of(REJECTED) == "unschedulable"
    return made


@table("assumed_on, place", ("unused", "cordoned", "backoff"), ("used", "nominated", "unschedulable"))
def test_only_an_unused_nomination_requeues_rejected_pods(assumed_on: str, place: str) -> None:
    """If a nominated pod is assumed on another node, pods that its nomination rejected are requeued."""
    made = rig_with_rejected_pod()
    made.scheduler.cycles.assumed.reserve_and_permit(start_attempt(made, HUGE), assumed_on)
    assert made.place_of(REJECTED) == place


def test_a_nominated_pod_that_another_scheduler_binds_elsewhere() -> None:
    """A bind by another scheduler to another node requeues the rejected pods."""
    made = rig_with_rejected_pod()
    made.add(pod("huge", requests={"cpu": "4"}, priority=5, node_name="cordoned"))
    assert made.place_of(REJECTED) == "backoff"


def start_attempt(made: Rig, wanted: Pod) -> Attempt:
    """Return an attempt of a pod that is not in the queue."""
    info = made.columns.compile_pod(wanted)
    instance = present(made.context.profiles.get("default-scheduler"))
    instance.begin()
    return Attempt(QueuedPod(info, made.clock.now(), 0), info, instance, made.clock.now())
