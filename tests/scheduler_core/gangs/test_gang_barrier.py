"""A member that is deleted while the members of its gang wait at Permit or at the barrier before their binds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import BoundElsewhereError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitPlugin, PermitResult, PreBindPlugin, ReservePlugin
from scheduler_core.framework.status import SUCCESS, Code, Status, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.approval_plugin import Approval
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, composite_group, gang_of, group, leaf_group, member
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig, gang_rig, plugin_set, profile
from tests.support.tables import table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PASSED, WAITING = "train-0", "train-1"


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler for a gang of three; two members wait at Permit for an approval that is never given."""
    made = gang_rig(plugins=[Approval], serve=False)
    made.serve(profile(plugins=Plugins(permit=plugin_set("Approval"))))
    made.add(node("a"))
    made.scheduler.group_feed.group_changed(group(min_member=3))
    return made


def gang() -> list[Pod]:
    """Return one member that passes Permit, and two that wait there for a minute."""
    return [member(PASSED), *(member(name, labels={"approval": "needed"}) for name in (WAITING, "train-2"))]


@table(
    "deleted, is_terminating",
    ("deleted at the barrier", PASSED, False),
    ("terminating at the barrier", PASSED, True),
    ("deleted at Permit", WAITING, False),
    ("terminating at Permit", WAITING, True),
)
async def test_a_member_that_is_deleted(cluster: Rig, deleted: str, is_terminating: bool) -> None:
    """When one member is deleted, all members are released at once, also those at Permit, and none is bound."""
    pods = gang()
    cluster.add(*pods)
    async with cluster.running():
        await cluster.until(lambda: len(cluster.context.waiting) == 2)
        before = next(each for each in pods if each.metadata.name == deleted)
        if is_terminating:
            ending = member(deleted, labels=before.metadata.labels, deleted=NOW)
            cluster.scheduler.feed.pod_updated(before, ending)
        else:
            cluster.scheduler.feed.pod_deleted(before)
        await cluster.until(lambda: not cluster.scheduler.binding_count)
        assert cluster.context.cache.assumed_count == 0
        assert len(cluster.context.waiting) == 0
    assert cluster.writer.attempted == []
    assert not gang_of(cluster).has_quorum


def bound_member(name: str, node_name: str) -> Pod:
    return member(name, labels={"approval": "needed"} if name != PASSED else {}, node_name=node_name)


async def test_another_scheduler_binds_a_waiting_member(cluster: Rig) -> None:
    """The bound member leaves the queue; the others are released and retried without it."""
    pods = gang()
    cluster.add(node("b"), *pods)
    async with cluster.running():
        await cluster.until(lambda: len(cluster.context.waiting) == 2)
        held = present(cluster.context.waiting.get(pods[1].metadata.uid))
        other_node = "b" if held.node_name == "a" else "a"
        cluster.scheduler.feed.pod_updated(pods[1], bound_member(WAITING, other_node))
        await cluster.until(lambda: cluster.context.metrics.records["default-scheduler"].lost_binds == 1)
        await cluster.until(lambda: not cluster.scheduler.binding_count)
        assert cluster.context.cache.assumed_count == 0
        cluster.clock.advance(12)
        await cluster.until(lambda: [each.pod.pod.metadata.name for each in cluster.context.waiting] == ["train-2"])
        assert cluster.context.cache.assumed_count == 2
    assert cluster.writer.attempted == []
    assert cluster.place_of(pods[1]) == ""


async def test_another_scheduler_binds_a_member_after_the_barrier(cluster: Rig) -> None:
    """The other members stay bound, and the member that another scheduler bound is not retried."""
    pods = [member(name) for name in (PASSED, WAITING, "train-2")]
    cluster.add(node("b"), *pods)
    cluster.writer.fail_binds([BoundElsewhereError("taken", "b")])
    async with cluster.running():
        await cluster.until(lambda: len(cluster.writer.bindings) == 2)
        await cluster.until(lambda: not cluster.scheduler.binding_count)
        lost = next(pod for pod in pods if pod.metadata.name not in cluster.bound)
        cluster.scheduler.feed.pod_updated(lost, member(lost.metadata.name, node_name="b"))
        cluster.clock.advance(12)
        await cluster.scheduler.until_idle()
    assert len(cluster.writer.attempted) == 3
    assert cluster.context.metrics.records["default-scheduler"].lost_binds == 1
    assert cluster.context.cache.columns.pod_count.sum() == 3


@table("is_last", ("before others wait at Permit", False), ("after that", True))
async def test_members_at_the_barrier_have_nominated_nodes(cluster: Rig, *, is_last: bool) -> None:
    """While others wait at Permit, one that arrives at the barrier has a nomination until the gang is released."""
    pods = gang()
    cluster.add(*(reversed(pods) if is_last else pods))
    nominated: dict[str, list[str | None]] = {}
    async with cluster.running():
        await cluster.until(lambda: len(cluster.context.waiting) == 2)
        await cluster.until(lambda: len(cluster.writer.patches) >= 3)
        assert sorted(each.name for each in cluster.writer.patches) == sorted(each.metadata.name for each in pods)
        cluster.scheduler.feed.pod_deleted(pods[2])
        await cluster.until(lambda: not cluster.scheduler.binding_count)
    for patch in cluster.writer.patches:
        nominated.setdefault(patch.name, []).append(patch.nominated_node_name)
    assert nominated[PASSED] == nominated[WAITING] == ["a", ""]


async def test_no_nomination_is_written_if_nothing_delays_the_binds(cluster: Rig) -> None:
    """The members of a gang that pass Permit and PreBind at once are bound without another write."""
    cluster.add(*(member(f"train-{number}") for number in range(3)))
    async with cluster.running():
        await cluster.scheduler.until_idle()
    assert len(cluster.writer.bindings) == 3
    assert cluster.writer.patches == []


@table(
    "comes, outcome",
    ("later, quorum rejected", True, "rejected"),
    ("later, quorum deleted", True, "deleted"),
    ("later, quorum bound", True, "bound"),
    ("infeasible at first, quorum rejected", False, "rejected"),
)
async def test_a_further_member_is_bound_after_the_quorum(cluster: Rig, *, comes: bool, outcome: str) -> None:
    """A member beyond the quorum that is scheduled by itself waits for it, and is bound with it or not at all."""
    pods, further = gang(), member("train-3")
    cluster.add(*pods)
    async with cluster.running():
        if comes:
            await cluster.until(lambda: len(cluster.context.waiting) == 2)
        cluster.add(further)
        await cluster.until(lambda: cluster.context.cache.assumed_count == 4)
        assert cluster.writer.attempted == []
        waiting = [present(cluster.context.waiting.get(each.metadata.uid)) for each in pods[1:]]
        if outcome == "bound":
            for each in waiting:
                each.allow("Approval")
        elif outcome == "rejected":
            waiting[0].reject("Approval", "no")
        else:
            cluster.scheduler.feed.pod_deleted(pods[2])
        await cluster.until(lambda: not cluster.scheduler.binding_count)
        assert gang_of(cluster).binding == 0
        assert gang_of(cluster).barrier is None
    assert len(cluster.writer.bindings) == (4 if outcome == "bound" else 0)


class Late(PermitPlugin, PreBindPlugin):
    """Rejects two members first, of which one waits at Permit then; the PreBind of another member fails once."""

    name = "Late"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: set[tuple[str, str]] = set()

    def _is_first(self, step: str, name: str) -> bool:
        is_first = (step, name) not in self.seen
        self.seen.add((step, name))
        return is_first

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        name = pod.pod.metadata.name
        if name in ("train-2", "train-3") and self._is_first("permit", name):
            return PermitResult(unschedulable("not yet"))
        return PermitResult(Status(Code.WAIT), 600) if name == "train-3" else PermitResult()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        name = pod.pod.metadata.name
        return unschedulable("broken") if name == "train-0" and self._is_first("preBind", name) else SUCCESS


async def test_further_members_are_no_quorum_that_was_not_bound() -> None:
    """Members that were tried by themselves beside the quorum are not bound when it has failed before their binds."""
    made = gang_rig(plugins=[Late], serve=False)
    made.serve(profile(plugins=Plugins(multi_point=plugin_set("Late"))))
    made.add(node("a", allocatable={"cpu": "9", "pods": "99"}))
    made.scheduler.group_feed.group_changed(group(min_member=2))
    made.add(*(member(f"train-{number}") for number in range(4)))
    sent = set()
    async with made.running():
        for _ in range(60):
            for _ in range(20):
                await asyncio.sleep(0)
            sent.add(len(made.writer.attempted))
            made.clock.advance(1.0)
    assert sent == {0, 3}


async def test_a_further_member_at_permit_is_released_with_the_quorum(cluster: Rig) -> None:
    """A further member that waits at Permit is released at once when the quorum fails, and tried again with it."""
    pods, further = gang(), member("train-3", labels={"approval": "needed"})
    cluster.add(*pods)
    async with cluster.running():
        await cluster.until(lambda: len(cluster.context.waiting) == 2)
        cluster.add(further)
        await cluster.until(lambda: len(cluster.context.waiting) == 3)
        present(cluster.context.waiting.get(pods[1].metadata.uid)).reject("Approval", "no")
        await cluster.until(lambda: not cluster.scheduler.binding_count)
        assert cluster.context.cache.assumed_count == 0
        assert gang_of(cluster).barrier is None
    assert cluster.writer.attempted == []


class FailsFirst(ReservePlugin, PreBindPlugin):
    """Rejects the first reservation of a-1, and the first PreBind of a-0."""

    name = "FailsFirst"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.left = {"a-1", "a-0"}

    def _status(self, name: str, fails: str) -> Status:
        if name != fails or name not in self.left:
            return SUCCESS
        self.left.discard(name)
        return unschedulable("not yet")

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._status(pod.pod.metadata.name, "a-1")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._status(pod.pod.metadata.name, "a-0")


def tree_rig(plugin: type[PermitPlugin | PreBindPlugin]) -> Rig:
    """Return a scheduler for a tree that needs both of its gangs, a and b, of one member each."""
    made = default_rig(plugins=[plugin], groups=[GroupSource.NATIVE, GroupSource.COMPOSITE], serve=False)
    made.serve(profile(plugins=Plugins(multi_point=plugin_set(plugin.name))))
    made.add(node("n", allocatable={"cpu": "9", "pods": "99"}))
    add_groups(made, composite_group("root", 2), leaf_group("a", "root"), leaf_group("b", "root"))
    return made


async def test_a_further_member_of_a_tree_is_not_bound_without_the_tree() -> None:
    """A further member whose gang has its quorum is released when the quorum of the tree fails before its bind."""
    made = tree_rig(FailsFirst)
    made.add(*(pod(name, group=name[0]) for name in ("a-0", "a-1", "b-0")))
    async with made.running():
        for _ in range(99):
            await asyncio.sleep(0)
        assert made.writer.attempted == []
        made.clock.advance(30.0)
        await made.until(lambda: len(made.bound) == 3)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_tree_that_loses_a_gang_while_a_further_member_waits(is_deleted: bool) -> None:
    """A member that waits at Permit beside a tree that runs is not bound if the quorum of the tree is gone then."""
    made = tree_rig(Approval)
    other = pod("b-0", group="b")
    made.add(pod("a-0", group="a"), other)
    async with made.running():
        await made.until(lambda: len(made.bound) == 2)
        made.add(pod("a-1", group="a", labels={"approval": "needed"}))
        await made.until(lambda: len(made.context.waiting) == 1)
        if is_deleted:
            made.scheduler.feed.pod_deleted(other)
        present(made.context.waiting.get("uid-of-default-a-1")).allow("Approval")
        await made.until(lambda: not made.scheduler.binding_count)
    assert len(made.writer.attempted) == (2 if is_deleted else 3)
