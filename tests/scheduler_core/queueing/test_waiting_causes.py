"""Numbers of waiting pods by what they wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler_core.cycle.scheduling_cycle import SchedulingCycle
from tests.support.builders import node, pod
from tests.support.gang_preemption import running_pod
from tests.support.gangs import group, member, members, settle
from tests.support.scheduling import Rig, default_rig, gang_rig
from tests.support.tables import table


def _attempt(made: Rig) -> None:
    # The only node has room for it, and no attempt runs in these tests before the count.
    made.add(pod("p", requests={"cpu": "1"}))


def _room(made: Rig) -> None:
    made.add(pod("p", requests={"cpu": "3"}), pod("q", requests={"cpu": "3"}))


def _gang_without_room(made: Rig) -> None:
    made.scheduler.group_feed.group_changed(group(min_member=3))
    made.add(*members(4))


def _preemption(made: Rig) -> None:
    made.add(running_pod("low", "n", cpus=2), pod("high", requests={"cpu": "2"}, priority=9))


def _other_than_nodes(made: Rig) -> None:
    made.scheduler.group_feed.group_changed(group(min_member=3))
    made.add(*members(3, node_selector={"kubernetes.io/hostname": "gone"}))


def _quorum(made: Rig) -> None:
    made.scheduler.group_feed.group_changed(group(min_member=3))
    made.add(*members(2))


def _gated_member(made: Rig) -> None:
    made.scheduler.group_feed.group_changed(replace(group(min_member=2), waits_for_gated=True))
    made.add(member("train-0"), member("train-1"), member("train-2", gates=["example.com/quota"]))


def _no_node(made: Rig) -> None:
    made.scheduler.feed.node_deleted(node("n", allocatable={"cpu": "2", "pods": "10"}))
    made.add(pod("p", requests={"cpu": "1"}))


def _error(made: Rig) -> None:
    # Members with different priorities are an error, as in kube-scheduler.
    made.scheduler.group_feed.group_changed(replace(group(min_member=2, priority=1), is_uniform=True))
    made.add(*members(2, priority=2))


def _no_pod_group(made: Rig) -> None:
    made.add(*members(2))


def _gates(made: Rig) -> None:
    made.add(pod("p", gates=["example.com/quota"]))


def _other_scheduler(made: Rig) -> None:
    made.add(pod("p", scheduler_name="other"))


@table(
    "state, runs, expected",
    ("attempt", _attempt, False, {("attempt", ""): 1}),
    ("room", _room, True, {("room", ""): 2}),
    ("gang-without-room", _gang_without_room, True, {("room", ""): 4}),
    ("preemption", _preemption, True, {("preemption", ""): 1}),
    ("other-than-nodes", _other_than_nodes, True, {("other_than_nodes", ""): 3}),
    ("no-node", _no_node, True, {("room", ""): 1}),
    ("error", _error, True, {("error", ""): 2}),
    ("quorum", _quorum, True, {("quorum", ""): 2}),
    ("gated-member", _gated_member, True, {("gated_member", ""): 2, ("gate", "SchedulingGates"): 1}),
    ("gang-to-attempt", _gang_without_room, False, {("attempt", ""): 4}),
    ("no-pod-group", _no_pod_group, True, {("gate", "GangScheduling"): 2}),
    ("scheduling-gates", _gates, True, {("gate", "SchedulingGates"): 1}),
    ("another-scheduler", _other_scheduler, True, {}),
)
async def test_causes(state: Callable[[Rig], None], runs: bool, expected: dict[tuple[str, str], int]) -> None:
    """Each waiting pod counts for one cause, and all of them are counted."""
    made = gang_rig(node("n", allocatable={"cpu": "2", "pods": "10"}))
    state(made)
    if runs:
        await settle(made)
    found = made.queue.readings.causes(made.queue.nominator.node_by_uid)
    assert {(cause.value, plugin): count for (cause, plugin), count in found.items() if count} == expected
    assert sum(found.values()) == len(made.queue.readings)


async def test_an_error_of_a_pod_with_a_nomination(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that keeps its nomination after an error of the scheduler counts once, as an error."""
    made = default_rig(node("n", allocatable={"cpu": "2", "pods": "10"}))
    _preemption(made)
    await settle(made)
    nominated = made.queue.nominator.node_by_uid
    assert list(nominated) == [pod("high").metadata.uid]

    def raise_error(*_: object) -> None:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(SchedulingCycle, "conclude", raise_error)
        made.queue.activate(list(nominated))
        await settle(made)
    found = made.queue.readings.causes(made.queue.nominator.node_by_uid)
    assert {(cause.value, plugin): count for (cause, plugin), count in found.items() if count} == {("error", ""): 1}
