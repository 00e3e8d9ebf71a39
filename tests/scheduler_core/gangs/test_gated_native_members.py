"""Native groups with a gated member: no member is scheduled before all gates are open.

The cases follow kube-scheduler v1.37.1, ``test/integration/scheduler/podgroup/queueing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
from msgspec.structs import replace

from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.ports import ExtenderVerdict
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gangs import settle
from tests.support.scheduling import Rig, rig
from tests.support.scripted_extender import ScriptedExtender, extended_profile, extended_rig, extender

KEY = GroupKey(GroupSource.NATIVE, "default", "train")
GATE = "example.com/later"


@pytest.fixture
def cluster() -> Rig:
    made = rig(defaults=default_plugins())
    made.scheduler.group_feed.serve(GroupSource.NATIVE)
    made.add(node("n0"))
    return made


def group(min_member: int = 2, *, waits_for_gated: bool = True) -> PodGroup:
    return PodGroup(KEY, "uid-of-train", min_member, waits_for_gated=waits_for_gated)


def member(name: str, *, is_gated: bool = False) -> Pod:
    return pod(name, requests={"cpu": "1"}, group="train", gates=[GATE] if is_gated else [])


def gang_of(cluster: Rig) -> Gang:
    gang = cluster.queue.gangs.get(KEY)
    assert gang is not None
    return gang


def ungate(cluster: Rig, gated: Pod) -> None:
    cluster.scheduler.feed.pod_updated(gated, replace(gated, spec=replace(gated.spec, scheduling_gates=())))


@pytest.mark.parametrize("min_member", [pytest.param(2, id="gang"), pytest.param(1, id="basic")])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_gated_member_holds_the_group_back(cluster: Rig, min_member: int, is_first: bool) -> None:
    """The others would be enough; they are scheduled with it when its gate is removed."""
    gated, others = member("p1", is_gated=True), (member("p2"), member("p3"))
    cluster.scheduler.group_feed.group_changed(group(min_member))
    cluster.add(*((gated, *others) if is_first else (*others, gated)))
    await settle(cluster)
    assert cluster.bound == {}
    assert {cluster.place(each) for each in others} == {"gated"}
    assert gang_of(cluster).why_held == "no member is scheduled while others are gated: p1"
    ungate(cluster, gated)
    await settle(cluster)
    assert set(cluster.bound) == {"p1", "p2", "p3"}


async def test_a_group_that_does_not_wait(cluster: Rig) -> None:
    """Members of other groups do not count while they are gated, and hold nobody back."""
    cluster.scheduler.group_feed.group_changed(group(waits_for_gated=False))
    cluster.add(member("p1", is_gated=True), member("p2"), member("p3"))
    await settle(cluster)
    assert set(cluster.bound) == {"p2", "p3"}


@pytest.mark.parametrize("ending", ["ungated", "deleted", "group deleted", "group waits no longer"])
async def test_members_beyond_the_quorum(cluster: Rig, ending: str) -> None:
    """A group whose quorum is scheduled is held back as well: its unschedulable members until nothing gates."""
    cluster.scheduler.group_feed.group_changed(group())
    cluster.add(*(member(f"p{number}") for number in range(6)))
    await settle(cluster)
    assert len(cluster.bound) == 4
    gated = member("late", is_gated=True)
    cluster.add(gated)
    cluster.add(node("n1"))
    cluster.clock.advance(30.0)
    await settle(cluster)
    assert len(cluster.bound) == 4
    if ending == "ungated":
        ungate(cluster, gated)
    elif ending == "deleted":
        cluster.scheduler.feed.pod_deleted(gated)
    elif ending == "group deleted":
        cluster.scheduler.group_feed.group_deleted(KEY)
    else:
        cluster.scheduler.group_feed.group_changed(group(waits_for_gated=False))
    cluster.clock.advance(30.0)
    await settle(cluster)
    assert len(cluster.bound) == {"ungated": 7, "group deleted": 4}.get(ending, 6)


class Door(PreEnqueuePlugin):
    """Gates pods by name."""

    name = "Door"
    closed: ClassVar[set[str]] = set()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject the pod."""
        return unschedulable("closed") if pod.pod.metadata.name in self.closed else SUCCESS


async def test_the_gate_of_a_plugin() -> None:
    """Any PreEnqueue plugin that gates a member holds the group back."""
    Door.closed = {"p1"}
    made = rig([Door])
    made.scheduler.group_feed.serve(GroupSource.NATIVE)
    made.add(node("n0"))
    made.scheduler.group_feed.group_changed(group())
    first = member("p1")
    made.add(first, member("p2"), member("p3"))
    await settle(made)
    assert made.bound == {}
    Door.closed = set()
    made.queue.activate([first.metadata.uid])
    await settle(made)
    assert set(made.bound) == {"p1", "p2", "p3"}
    made.queue.close()


async def test_a_gate_that_closes_while_the_group_is_scheduled() -> None:
    """The members are bound by the revision that decided, and no gate is left that would hold later members back."""
    Door.closed = set()

    def swapped(asked: Sequence[str]) -> ExtenderVerdict:
        if not Door.closed:
            Door.closed = {"p1"}
            made.serve(extended_profile(config))
        return ExtenderVerdict(tuple(asked))

    config = extender()
    made = extended_rig((config, ScriptedExtender(on_filter=swapped)), plugins=[Door])
    made.scheduler.group_feed.serve(GroupSource.NATIVE)
    made.scheduler.group_feed.group_changed(group())
    made.add(node("n0"), member("p1"), member("p2"))
    await settle(made)
    assert set(made.bound) == {"p1", "p2"}
    assert gang_of(made).gates == set()
    made.add(member("p3"))
    await settle(made)
    assert set(made.bound) == {"p1", "p2", "p3"}
    Door.closed = set()
    made.queue.close()
