"""The number of unschedulable pods by plugin: what leaves the queue, in whatever state, no longer counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PostFilterPlugin, PostFilterResult, PreEnqueuePlugin
from scheduler_core.framework.gang_preemptor import GangPostFilter, TriedMember
from scheduler_core.framework.status import SUCCESS, Status, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, composite_group, group, key, leaf_group, members
from tests.support.scheduling import Rig, default_rig, gang_rig, plugin_set, profile

_WANTED = {"cpu": "2"}
_NATIVE = GroupKey(GroupSource.NATIVE, "default", "leaf")


def _in_group(count: int, name: str) -> list[Pod]:
    return [pod(f"{name}-{number}", requests=_WANTED, group=name) for number in range(count)]


def _counted(made: Rig) -> dict[tuple[str, str], int]:
    return {plugin: count for plugin, count in made.queue.readings.unschedulable_by.items() if count}


async def _failed_gang() -> tuple[Rig, list[Pod]]:
    """Return a scheduler in which the attempt of a gang of two failed, and its members."""
    made = gang_rig(node("n0", allocatable={"cpu": "1", "pods": "10"}))
    add_groups(made, group(min_member=2))
    pods = members(2, requests=_WANTED)
    made.add(*pods)
    await made.scheduler.cycles.gangs.schedule(made.pop())  # type: ignore[arg-type]  # the entry of the gang
    return made, pods


def _delete_members(made: Rig, pods: list[Pod]) -> None:
    for each in pods:
        made.scheduler.feed.pod_deleted(each)


def _delete_all(made: Rig, pods: list[Pod]) -> None:
    _delete_members(made, pods)
    made.scheduler.group_feed.group_deleted(key())


def _delete_group_first(made: Rig, pods: list[Pod]) -> None:
    made.scheduler.group_feed.group_deleted(key())
    _delete_members(made, pods)


def _lose_quorum(made: Rig, pods: list[Pod]) -> None:
    made.scheduler.feed.pod_deleted(pods[0])


def _withdraw_profile(made: Rig, _pods: list[Pod]) -> None:
    made.scheduler.withdraw("default-scheduler")


@pytest.mark.parametrize(
    "leave",
    [_delete_members, _delete_all, _delete_group_first, _lose_quorum, _withdraw_profile],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["unschedulable", "after the backoff"])
async def test_a_gang_that_leaves_the_queue_does_not_count(
    leave: Callable[[Rig, list[Pod]], None], seconds: float
) -> None:
    """A failed gang counts once, and not any more without its quorum, its members or its profile."""
    made, pods = await _failed_gang()
    assert _counted(made) == {("NodeResourcesFit", "default-scheduler"): 1}
    made.clock.advance(seconds)
    leave(made, pods)
    waiting = {each.uid for each in made.queue.readings if each.gated_by}
    assert {plugin for plugin, _ in _counted(made)} <= {"GangScheduling"} if waiting else not _counted(made)


async def test_a_quorum_that_is_complete_again_counts_again() -> None:
    """The rejection of the last attempt counts while the gang waits in the queue."""
    made, pods = await _failed_gang()
    made.scheduler.feed.pod_deleted(pods[0])
    assert not _counted(made)
    made.add(pods[0])
    assert _counted(made) == {("NodeResourcesFit", "default-scheduler"): 1}
    _delete_members(made, pods)
    assert not _counted(made)


async def test_a_tree_that_is_deleted_does_not_count() -> None:
    """A failed tree counts once, and not any more when its root or its members are deleted."""
    made = default_rig(
        node("n0", allocatable={"cpu": "1", "pods": "10"}), groups=[GroupSource.NATIVE, GroupSource.COMPOSITE]
    )
    add_groups(made, composite_group("root"), leaf_group("leaf", "root"))
    pods = _in_group(1, "leaf")
    made.add(*pods)
    await made.scheduler.cycles.gangs.schedule(made.pop())  # type: ignore[arg-type]  # the entry of the tree
    assert sum(_counted(made).values()) >= 1
    _delete_members(made, pods)
    assert not _counted(made)
    made.scheduler.group_feed.group_deleted(_NATIVE)
    made.scheduler.group_feed.group_deleted(GroupKey(GroupSource.COMPOSITE, "default", "root"))
    assert not made.queue.readings.counts()


class Helper(PostFilterPlugin, GangPostFilter):
    """Helps every gang."""

    name = "Helper"

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        return PostFilterResult(unschedulable())

    def post_filter_for_gang(self, members: Sequence[TriedMember], group_uid: str) -> Sequence[PodInfo]:
        return [member.pod for member in members]


class Gate(PreEnqueuePlugin):
    """A gate that the test closes."""

    name = "Gate"
    is_open = True

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return SUCCESS if self.is_open else unresolvable("closed")


async def test_a_helped_gang_that_is_gated_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that gates a gang after others have rejected it counts too, until the gang leaves the queue."""
    made = gang_rig(plugins=[Helper, Gate], serve=False)
    gated = Plugins(post_filter=plugin_set("Helper"), pre_enqueue=plugin_set("Gate"))
    made.serve(profile(plugins=gated))
    made.add(node("n0", allocatable={"cpu": "1", "pods": "10"}))
    add_groups(made, group(min_member=2))
    pods = members(2, requests=_WANTED)
    made.add(*pods)
    await made.scheduler.cycles.gangs.schedule(made.pop())  # type: ignore[arg-type]  # the entry of the gang
    assert sorted(plugin for plugin, _ in _counted(made)) == ["Helper", "NodeResourcesFit"]
    monkeypatch.setattr(Gate, "is_open", False)
    made.add(node("n1"))
    assert sorted(plugin for plugin, _ in _counted(made)) == ["Gate", "Helper", "NodeResourcesFit"]
    _delete_members(made, pods)
    assert not _counted(made)
