"""Group scheduling cycles: all members or none are scheduled, and every failure is reported."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduler_core.model.devices import DeviceClass
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from tests.support.builders import node, pod
from tests.support.devices import decoded
from tests.support.gangs import gang_of, group, member, members, settle, settle_gang
from tests.support.presence import present
from tests.support.scheduling import Rig, profile, rig
from tests.support.tables import table


def confirm(rig: Rig, *pods: Pod) -> None:
    """Deliver the watch events of the binds of pods."""
    for each in pods:
        rig.scheduler.feed.pod_updated(each, pod_on(each, rig.bound[each.metadata.name]))


def pod_on(each: Pod, node_name: str) -> Pod:
    return member(each.metadata.name, node_name=node_name)


async def test_a_gang_that_fits(cluster: Rig) -> None:
    """All members of a feasible gang are bound in one attempt."""
    cluster.add(node("a"), node("b"))
    await settle_gang(cluster, *members(6), of=group(min_member=6))
    assert len(cluster.bound) == 6
    gang, outcome = gang_of(cluster), present(gang_of(cluster).outcome)
    assert (outcome.reason, outcome.fitting, gang.needed) == ("Scheduled", 6, 0)
    assert all(cluster.queue.find(each) is None for each in gang.pods)


async def test_a_gang_that_does_not_fit(cluster: Rig) -> None:
    """No member of an infeasible gang is bound or assumed, and each member's message has the number that fit."""
    cluster.add(node("a"))
    await settle_gang(cluster, *members(5), of=group(min_member=5))
    assert cluster.bound == {}
    assert cluster.context.cache.assumed_count == 0
    assert int(cluster.context.cache.columns.requested.sum()) == 0
    conditions = [patch.condition for patch in cluster.writer.patches if patch.condition is not None]
    assert len(conditions) == 5
    (message,) = {each.message for each in conditions}
    assert message == (
        "4 of the 5 members that must be placed together fit; with them in place, for default/train-4: "
        "0/1 nodes are available: 1 Insufficient cpu."
    )
    assert {cluster.place_of(each) for each in gang_of(cluster).pods.values()} == {"unschedulable"}


async def test_a_queued_gang_is_one_entity(cluster: Rig) -> None:
    """A gang counts as one entity in its queue, and with all its members among the incoming pods."""
    cluster.add(node("a"), pod("alone", requests={"cpu": "99"}))
    cluster.scheduler.group_feed.group_changed(group(min_member=5))
    cluster.add(*members(5))
    queue = cluster.queue
    assert {key: count for key, count in queue.readings.entities().items() if count} == {
        ("active", "pod"): 1,
        ("active", "podgroup"): 1,
    }
    await settle(cluster)
    assert {key: count for key, count in queue.readings.entities().items() if count} == {
        ("unschedulable", "pod"): 1,
        ("unschedulable", "podgroup"): 1,
    }
    of_gangs = {key[:2]: count for key, count in queue.readings.incoming_entities.items() if key[2] == "podgroup"}
    assert of_gangs == {("UnscheduledPodAdd", "active"): 1, ("ScheduleAttemptFailure", "unschedulable"): 1}
    assert {key: queue.readings.incoming[key] for key in of_gangs} == {
        ("UnscheduledPodAdd", "active"): 6,
        ("ScheduleAttemptFailure", "unschedulable"): 6,
    }


async def test_more_than_the_quorum(cluster: Rig) -> None:
    """Infeasible members beyond the quorum wait, and the other members are bound."""
    cluster.add(node("a"))
    await settle_gang(cluster, *members(6), of=group(min_member=2))
    assert len(cluster.bound) == 4
    waiting = [each for each in gang_of(cluster).pods.values() if each.metadata.name not in cluster.bound]
    assert {cluster.place_of(each) for each in waiting} == {"unschedulable"}
    assert gang_of(cluster).outcome is not None


async def test_a_later_member_is_queued_alone(cluster: Rig) -> None:
    """A later member of a running gang has its own queue entry."""
    cluster.add(node("a"))
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    first = members(2)
    await settle(cluster, *first)
    confirm(cluster, *first)
    cluster.add(member("train-2"))
    assert cluster.queue.pop() is cluster.queue.find("uid-of-default-train-2")


async def test_priority_then_age_of_the_group(cluster: Rig) -> None:
    """Gangs are ordered by priority, then by the age of their groups."""
    cluster.add(node("a", allocatable={"cpu": "2", "pods": "10"}))
    for name in ("old", "young"):
        cluster.scheduler.group_feed.group_changed(group(name, min_member=2))
        cluster.clock.advance(1.0)
    cluster.scheduler.group_feed.group_changed(group("high", min_member=2, priority=5))
    cluster.add(*members(2, "young"), *members(2, "old"), *members(2, "high"))
    order = []
    while (queued := cluster.queue.pop()) is not None:
        order.append(queued.uid.rpartition("/")[2])
    assert order == ["high", "old", "young"]


async def test_a_deleted_member_ends_the_quorum(cluster: Rig) -> None:
    """A gang without its quorum leaves the queue, and is queued again when a replacement member is created."""
    cluster.add(node("a", allocatable={"cpu": "1", "pods": "10"}))
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    first, second = members(2)
    await settle(cluster, first, second)
    cluster.scheduler.feed.pod_deleted(second)
    assert cluster.place_of(first) == "gated"
    await settle(cluster, node("b"))
    assert cluster.bound == {}
    cluster.add(member("train-9"))
    await settle(cluster, after=20.0)
    assert set(cluster.bound) == {"train-0", "train-9"}


@table(
    "event, is_requeued",
    ("a node with capacity", node("b"), True),
    ("a node without capacity", node("b", allocatable={"cpu": "100m", "pods": "9"}), False),
    ("another pod", pod("other", requests={"cpu": "1"}), False),
)
async def test_events_requeue_a_gang(cluster: Rig, event: object, is_requeued: bool) -> None:
    """A gang is requeued if a queueing hint for a rejected member returns Queue."""
    cluster.add(node("a", allocatable={"cpu": "2", "pods": "10"}))
    await settle_gang(cluster, *members(3), of=group(min_member=3))
    cluster.add(event)  # type: ignore[arg-type]  # nodes or pods
    entry = present(gang_of(cluster).entry)
    assert (entry.place.label != "unschedulable") == is_requeued


async def test_a_lower_min_member_requeues_the_gang(cluster: Rig) -> None:
    """A lower minMember requeues the gang and applies in its next cycle."""
    cluster.add(node("a", allocatable={"cpu": "2", "pods": "10"}))
    await settle_gang(cluster, *members(3), of=group(min_member=3))
    cluster.scheduler.group_feed.group_changed(group(min_member=2, generation=2))
    await settle(cluster, after=20.0)
    assert len(cluster.bound) == 2


async def test_min_resources_that_are_not_free(cluster: Rig) -> None:
    """A group is not attempted while the cluster has less than its minResources free."""
    cluster.add(node("a"))
    await settle_gang(cluster, *members(2), of=group(min_member=2, min_resources={"cpu": 6000}))
    assert cluster.bound == {}
    assert cluster.condition.message == (
        "the group's minResources are not free in the cluster: cpu 6 of which 4 are free"
    )
    cluster.add(node("b"))
    await settle(cluster, after=20.0)
    assert len(cluster.bound) == 2


@pytest.mark.parametrize("preempts", [False, True], ids=["free", "by preemption"])
async def test_min_resources_of_a_run_that_has_begun(cluster: Rig, *, preempts: bool) -> None:
    """After a member has succeeded, minResources are not demanded for the replacement of another one."""
    cluster.add(node("a", allocatable={"cpu": 3, "pods": 10}))
    cluster.scheduler.group_feed.group_changed(group(min_member=3, min_resources={"cpu": 3000}))
    cluster.add(*(member(f"train-{number}", node_name="a", phase="Succeeded") for number in range(2)))
    cluster.add(member("train-2", node_name="a", phase="Failed"), member("train-3", priority=9))
    await settle(
        cluster, *(pod(f"other-{number}", node_name="a", requests={"cpu": "1"}) for number in range(2 + preempts))
    )
    assert len(cluster.writer.deletions) == preempts
    assert list(cluster.bound) == ([] if preempts else ["train-3"])


async def test_min_resources_that_devices_provide(cluster: Rig) -> None:
    """An extended resource of a DeviceClass is not compared with what nodes have free."""
    served = decoded({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}, DeviceClass)
    cluster.scheduler.device_feed.added(served)
    cluster.add(node("a"))
    await settle_gang(cluster, *members(2), of=group(min_member=2, min_resources={"example.com/gpu": 2}))
    assert len(cluster.bound) == 2


@pytest.mark.parametrize("taken", [{"cpu": "5"}, {"cpu": "50"}], ids=["by-1", "by-46"])
async def test_an_overcommitted_node_does_not_reduce_free_resources(cluster: Rig, taken: dict[str, str]) -> None:
    """A node's overcommitment is not subtracted from the free resources of other nodes."""
    cluster.add(node("a"), node("b"), pod("rival", node_name="a", requests=taken))
    await settle_gang(cluster, *members(2), of=group(min_member=2, min_resources={"cpu": 4000}))
    assert set(cluster.bound.values()) == {"b"}


# -- binding together --------------------------------------------------------------------------------------------


async def test_members_of_several_schedulers(cluster: Rig) -> None:
    """Members of several schedulers meet no quorum, and the condition contains the remedy."""
    cluster.serve(profile(), profile("other"))
    cluster.add(node("a"))
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    await settle(cluster, member("train-0"), member("train-1", scheduler_name="other"))
    assert cluster.bound == {}
    assert "give all members of a group one schedulerName" in cluster.condition.message


async def test_a_group_is_as_old_as_its_object(cluster: Rig) -> None:
    """Groups are ordered by creationTimestamp, in whatever order they are listed after a restart."""
    now = cluster.clock.wall()
    for name, hours in (("young", 1), ("old", 2)):
        cluster.scheduler.group_feed.group_changed(group(name, created=now - timedelta(hours=hours)))
    cluster.add(*members(2, "young"), *members(2, "old"))
    assert cluster.pop().uid.endswith("/old")


def test_a_pod_that_names_several_groups(cluster: Rig) -> None:
    """A pod belongs to its group of the first API that is not ignored, whether or not that group is listed."""
    labels = {"scheduling.x-k8s.io/pod-group": "other"}
    several = member("train-0", labels=labels, group="native")
    cluster.add(several)
    assert [gang.key.name for gang in cluster.queue.gangs] == ["train"]
    without = rig()
    without.queue.gangs.ignore(GroupSource.BAYPLAN)
    without.add(several)
    assert [gang.key.name for gang in without.queue.gangs] == ["other"]
    without = rig()
    without.queue.gangs.ignore(GroupSource.BAYPLAN)
    without.queue.gangs.ignore(GroupSource.SCHEDULER_PLUGINS)
    without.add(several)
    assert [gang.key.name for gang in without.queue.gangs] == ["native"]


@table(
    "nodes, expected",
    (
        "amounts",
        [node("a", allocatable={"cpu": "1", "memory": "1Gi", "pods": "9"}), node("b")],
        (
            "Nearest: b (needs 3 cpu, has 1), a (needs 3 cpu, has 1, needs 2Gi memory, has 1Gi); "
            "it would fit on b with 2 cpu more."
        ),
    ),
    (
        "a reason",
        [node("a", allocatable={"cpu": "3", "memory": "2Gi", "pods": "9"}), node("b", taints=["busy=x:NoSchedule"])],
        (
            "Nearest: b (node(s) had untolerated taint(s)), a (needs 3 cpu, has 0, needs 2Gi memory, has 0); "
            "no other reason excludes b."
        ),
    ),
)
async def test_the_status_of_the_group_has_the_nearest_nodes(cluster: Rig, nodes: list[Node], expected: str) -> None:
    """The group's status has the nearest nodes for the next member; the members' conditions do not."""
    cluster.add(*nodes)
    await settle_gang(cluster, *members(2, requests={"cpu": "3", "memory": "2Gi"}), of=group(min_member=2))
    outcome = present(gang_of(cluster).outcome)
    assert outcome.message.startswith("1 of the 2 members that must be placed together fit; ")
    assert outcome.message.endswith(expected)
    assert "Nearest" not in cluster.condition.message
