"""Native PodGroups with a gated member: no member is scheduled before all gates are removed.

The cases follow kube-scheduler v1.37.1, ``test/integration/scheduler/podgroup/queueing``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.ports import ExtenderVerdict
from scheduler_core.queueing.gang_members import Gang
from tests.support.builders import node, pod
from tests.support.gangs import settle
from tests.support.presence import present
from tests.support.queue_world import NameGate
from tests.support.scheduling import Rig, default_rig, rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_profile, extender_rig
from tests.support.tables import table

KEY = GroupKey(GroupSource.NATIVE, "default", "train")
GATE = "example.com/later"


@pytest.fixture
def cluster() -> Rig:
    return default_rig(node("n0"), groups=[GroupSource.NATIVE])


def group(min_member: int = 2, *, waits_for_gated: bool = True) -> PodGroup:
    return PodGroup(KEY, "uid-of-train", min_member, waits_for_gated=waits_for_gated)


def member(name: str, *, is_gated: bool = False) -> Pod:
    return pod(name, requests={"cpu": "1"}, group="train", gates=[GATE] if is_gated else [])


def gang_of(cluster: Rig) -> Gang:
    return present(cluster.queue.gangs.get(KEY))


def ungate(cluster: Rig, gated: Pod) -> None:
    cluster.scheduler.feed.pod_updated(gated, replace(gated, spec=replace(gated.spec, scheduling_gates=())))


@table("min_member", ("gang", 2), ("basic", 1))
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_gated_member_holds_the_group_back(cluster: Rig, min_member: int, is_first: bool) -> None:
    """The other members are scheduled only when the gate is removed, although they meet the quorum."""
    gated, others = member("p1", is_gated=True), (member("p2"), member("p3"))
    cluster.scheduler.group_feed.group_changed(group(min_member))
    await settle(cluster, *((gated, *others) if is_first else (*others, gated)))
    assert cluster.bound == {}
    assert {cluster.place_of(each) for each in others} == {"gated"}
    assert gang_of(cluster).why_held == "no member is scheduled while others are gated: p1"
    ungate(cluster, gated)
    await settle(cluster)
    assert set(cluster.bound) == {"p1", "p2", "p3"}


async def test_a_group_that_does_not_wait(cluster: Rig) -> None:
    """In a group that does not wait for gated members, a gated member does not hold the others back."""
    cluster.scheduler.group_feed.group_changed(group(waits_for_gated=False))
    await settle(cluster, member("p1", is_gated=True), member("p2"), member("p3"))
    assert set(cluster.bound) == {"p2", "p3"}


@pytest.mark.parametrize("event", ["gate removed", "member deleted", "group deleted", "group changed"])
async def test_members_beyond_the_quorum(cluster: Rig, event: str) -> None:
    """A gated member also holds back unschedulable members of a group whose quorum is scheduled."""
    cluster.scheduler.group_feed.group_changed(group())
    await settle(cluster, *(member(f"p{number}") for number in range(6)))
    assert len(cluster.bound) == 4
    gated = member("late", is_gated=True)
    cluster.add(gated)
    cluster.add(node("n1"))
    await settle(cluster, after=30.0)
    assert len(cluster.bound) == 4
    if event == "gate removed":
        ungate(cluster, gated)
    elif event == "member deleted":
        cluster.scheduler.feed.pod_deleted(gated)
    elif event == "group deleted":
        cluster.scheduler.group_feed.group_deleted(KEY)
    else:
        cluster.scheduler.group_feed.group_changed(group(waits_for_gated=False))
    await settle(cluster, after=30.0)
    assert len(cluster.bound) == {"gate removed": 7, "group deleted": 4}.get(event, 6)


async def test_the_gate_of_a_plugin() -> None:
    """Any PreEnqueue plugin that gates a member holds the group back."""
    NameGate.closed = {"p1"}
    made = rig([NameGate], groups=[GroupSource.NATIVE])
    made.add(node("n0"))
    made.scheduler.group_feed.group_changed(group())
    first = member("p1")
    await settle(made, first, member("p2"), member("p3"))
    assert made.bound == {}
    NameGate.closed = set()
    made.queue.activate([first.metadata.uid])
    await settle(made)
    assert set(made.bound) == {"p1", "p2", "p3"}


async def test_a_gate_that_closes_while_the_group_is_scheduled() -> None:
    """The members are bound by the old profile revision, and no gate stays recorded that holds later members back."""
    NameGate.closed = set()

    def swap_profile(node_names: Sequence[str]) -> ExtenderVerdict:
        if not NameGate.closed:
            NameGate.closed = {"p1"}
            made.serve(extender_profile(config))
        return ExtenderVerdict(tuple(node_names))

    config = extender()
    made = extender_rig((config, ScriptedExtender(on_filter=swap_profile)), plugins=[NameGate])
    made.scheduler.group_feed.serve(GroupSource.NATIVE)
    made.scheduler.group_feed.group_changed(group())
    await settle(made, node("n0"), member("p1"), member("p2"))
    assert set(made.bound) == {"p1", "p2"}
    assert gang_of(made).gates == set()
    await settle(made, member("p3"))
    assert set(made.bound) == {"p1", "p2", "p3"}
    NameGate.closed = set()
