"""PodGroups of Kubernetes' own API, compared with kube-scheduler v1.37.1 and v1.36.3.

The cases follow its integration tests (``test/integration/scheduler/podgroup``).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from scheduler_core.errors import Problem
from scheduler_core.model.pod import Pod, SchedulingGroup
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from tests.support.builders import node, pod
from tests.support.gang_preemption import evicted, running_pod, small_node
from tests.support.gangs import gang_of, settle, settle_gang
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig
from tests.support.tables import table

ZONE = GroupTopology("zone")


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler for PodGroups of Kubernetes' and of Bayplan's API."""
    return default_rig(groups=[GroupSource.NATIVE, GroupSource.BAYPLAN])


def native(name: str = "train", min_member: int = 2, **fields: Any) -> PodGroup:
    return PodGroup(GroupKey(GroupSource.NATIVE, "default", name), f"uid-{name}", min_member, **fields)


def member(name: str, of: str = "train", *, created: datetime | None = None, priority: int = 10) -> Pod:
    made = pod(name, requests={"cpu": "1"}, priority=priority)
    spec = msgspec.structs.replace(made.spec, scheduling_group=SchedulingGroup(pod_group_name=of))
    return msgspec.structs.replace(
        made, spec=spec, metadata=msgspec.structs.replace(made.metadata, creation_timestamp=created)
    )


def pods(count: int) -> list[Pod]:
    """Return members of the default group."""
    return [member(f"p{number}") for number in range(count)]


def changed(made: Pod, **fields: Any) -> Pod:
    """Return a pod with other fields of its spec."""
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, **fields))


@table("cpu_milli, victims", ("free-after-the-preemption", 2000, 2), ("not-free-after-the-preemption", 2001, 0))
async def test_min_resources(cluster: Rig, cpu_milli: int, victims: int) -> None:
    """The reference has no minResources; a group that has them evicts no pod unless they are free afterwards."""
    cluster.add(small_node("a"), *(running_pod(f"v{number}", "a") for number in range(2)))
    await settle_gang(cluster, member("p0"), member("p1"), of=native(min_resources={"cpu": cpu_milli}))
    assert len(evicted(cluster)) == victims


async def test_a_member_beyond_the_quorum_that_does_not_fit(cluster: Rig) -> None:
    """An infeasible member beyond the quorum has its own condition, and is bound when capacity is added."""
    cluster.add(small_node("a", 2))
    await settle_gang(cluster, *pods(3), of=native())
    (left,) = {"p0", "p1", "p2"} - set(cluster.bound)
    messages = {patch.name: patch.condition.message for patch in cluster.writer.patches if patch.condition}
    assert "preemption: 0/1 nodes are available" in messages[left]
    cluster.add(small_node("b", 1))
    await settle(cluster, after=30.0)
    assert cluster.bound[left] == "b"


async def test_a_member_that_is_created_after_a_failed_attempt(cluster: Rig) -> None:
    """A new member requeues its group; each member is then bound or has a condition."""
    cluster.add(small_node("a", 1))
    cluster.scheduler.group_feed.group_changed(native(min_member=1))
    large = pod("large", requests={"cpu": "9"})
    of_group = member("p").spec.scheduling_group
    await settle(
        cluster, msgspec.structs.replace(large, spec=msgspec.structs.replace(large.spec, scheduling_group=of_group))
    )
    cluster.add(member("p0"), member("p1"))
    await settle(cluster, after=2.0)
    assert len(cluster.bound) == 1
    reported = {patch.name for patch in cluster.writer.patches if patch.condition}
    assert reported == {"large", "p0", "p1"} - set(cluster.bound)


@table("preempts", ("v1alpha2", False), ("v1beta1", True))
@table("count, bound_count", ("quorum", 2, 0), ("member-beyond-the-quorum", 3, 2))
async def test_preemption_with_a_topology_constraint(
    cluster: Rig, count: int, bound_count: int, preempts: bool
) -> None:
    """With a topology constraint the group and its members preempt in v1beta1, but not in v1alpha2."""
    running = [running_pod("v0", "a"), *([] if bound_count else [running_pod("v1", "a")])]
    cluster.add(small_node("a", 2, zone="x"), *running)
    group = native(topology=ZONE, min_member=bound_count or 2, preempts_in_domain=preempts)
    cluster.scheduler.group_feed.group_changed(group)
    if bound_count:
        cluster.add(small_node("b", 1, zone="x"))
    await settle(cluster, *pods(count))
    assert evicted(cluster) == ({each.metadata.name for each in running} if preempts else set())
    assert len(cluster.bound) == bound_count


@table(
    "policy, of_members, evicts",
    ("default", None, "", True),
    ("policy of the members", None, "Never", False),
    ("policy of the group", "Never", "Never", False),
    ("preempting policy of the group", "PreemptLowerPriority", "PreemptLowerPriority", True),
)
async def test_the_preemption_policy(cluster: Rig, policy: str | None, of_members: str, evicts: bool) -> None:
    """The preemption policy of the group counts, or that of its members if the group has none."""
    cluster.add(small_node("a", 2), running_pod("v0", "a"), running_pod("v1", "a"))
    await settle_gang(
        cluster,
        *(changed(each, preemption_policy=of_members) for each in pods(2)),
        of=native(preemption_policy=policy, priority=10, is_uniform=True),
    )
    assert evicted(cluster) == ({"v0", "v1"} if evicts else set())


@table(
    "group, differing, message",
    ("priority", {"priority": 10}, {"priority": 9}, "priority as the pod group's priority, got 9 and 10"),
    ("priority of all members", {"priority": 0}, {}, "priority as the pod group's priority, got 10 and 0"),
    (
        "preemption policies",
        {"priority": 10},
        {"preemption_policy": "Never"},
        "preemption policy, got Never and PreemptLowerPriority",
    ),
    (
        "preemption policy of the group",
        {"priority": 10, "preemption_policy": "PreemptLowerPriority"},
        {"preemption_policy": "Never"},
        "preemption policy as the pod group's preemption policy, got Never and PreemptLowerPriority",
    ),
)
@pytest.mark.parametrize("is_uniform", [True, False])
async def test_members_that_differ(
    cluster: Rig, group: dict[str, Any], differing: dict[str, Any], message: str, is_uniform: bool
) -> None:
    """Members that differ fail with kube-scheduler's error if the group's API requires uniform members."""
    cluster.add(small_node("a", 9))
    await settle_gang(
        cluster,
        member("p0"),
        member("p1"),
        changed(member("p2"), **differing),
        of=native(is_uniform=is_uniform, **group),
    )
    if not is_uniform:
        assert {"p0", "p1"} <= set(cluster.bound)
        return
    assert cluster.bound == {}
    outcome = present(gang_of(cluster, source=GroupSource.NATIVE).outcome)
    expected = f"all pods in a single pod group should have the same {message}"
    assert (outcome.reason, outcome.message) == ("SchedulerError", expected)


@table(
    "differing, message",
    ("priority", {"priority": 9}, "priority as the pod group's priority, got 9 and 10"),
    ("scheduler", {"scheduler_name": "other"}, '.spec.schedulerName set, got: "other" and "default-scheduler"'),
)
async def test_a_scheduled_member_that_differs(cluster: Rig, differing: dict[str, Any], message: str) -> None:
    """Members that are scheduled are compared too."""
    cluster.add(small_node("a", 9))
    cluster.scheduler.group_feed.group_changed(native(priority=10, is_uniform=True))
    cluster.add(changed(member("p0"), node_name="a", **differing), member("p1"), member("p2"))
    cluster.scheduler.group_feed.group_changed(native(priority=10, is_uniform=True, min_member=3))
    await settle(cluster)
    assert cluster.bound == {}
    outcome = present(gang_of(cluster, source=GroupSource.NATIVE).outcome)
    assert outcome.message == f"all pods in a single pod group should have the same {message}"


@table(
    "topology, cpus, quorum",
    ("two fit", None, {"a": 2}, "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"),
    ("none fits", None, {"a": 0}, "minCount (3) cannot be satisfied: 0 scheduled, 2 remaining"),
    (
        "domains",
        ZONE,
        {"a": 2, "b": 1},
        (
            "0/2 placements are available, first placement status: minCount (3) cannot be satisfied: 2 scheduled, "
            "0 remaining"
        ),
    ),
)
async def test_the_message_of_a_missed_quorum(
    cluster: Rig, topology: GroupTopology | None, cpus: dict[str, int], quorum: str
) -> None:
    """The outcome has kube-scheduler's message for the condition."""
    for zone, count in cpus.items():
        cluster.add(small_node(zone, count, zone=zone))
    await settle_gang(cluster, *pods(3), of=native(min_member=3, topology=topology))
    outcome = present(gang_of(cluster, source=GroupSource.NATIVE).outcome)
    preemption = "pod group preemption: No preemption victims found for incoming preemptor"
    assert outcome.quorum == f"{quorum}, {preemption}"


@table(
    "victims, wanted, status",
    ("a node for two", 1, 3, "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"),
    ("one not tried", 2, 4, "minCount (4) cannot be satisfied: 2 scheduled, 1 remaining"),
)
async def test_the_message_of_a_preemption_in_vain(cluster: Rig, victims: int, wanted: int, status: str) -> None:
    """The message has the number of members that a preemption of all pods of lower priority would have placed."""
    cluster.add(small_node("a", 2), *(running_pod(f"v{number}", "a") for number in range(victims)))
    await settle_gang(cluster, *pods(wanted), of=native(min_member=wanted))
    outcome = present(gang_of(cluster, source=GroupSource.NATIVE).outcome)
    assert outcome.quorum.partition(", pod group preemption: ")[2] == status


@table(
    "policy, message",
    ("victims", "PreemptLowerPriority", "found a placement for podgroup, preempting 2 victims"),
    ("policy", "Never", "not eligible due to preemptionPolicy=Never."),
)
async def test_the_message_of_the_preemption(cluster: Rig, policy: str, message: str) -> None:
    """kube-scheduler's message about the preemption follows the message of the missed quorum."""
    cluster.add(small_node("a", 2), running_pod("v0", "a"), running_pod("v1", "a"))
    await settle_gang(cluster, *pods(2), of=native(preemption_policy=policy))
    outcome = present(gang_of(cluster, source=GroupSource.NATIVE).outcome)
    assert outcome.quorum == (
        f"minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, pod group preemption: {message}"
    )


async def test_an_invalid_group(cluster: Rig) -> None:
    """Members of an invalid group are gated with the problem and the remedy, and bound when the group is valid."""
    cluster.add(small_node("a", 2), member("p0"), member("p1"))
    key, feed = native().key, cluster.scheduler.group_feed
    await settle(cluster)
    feed.group_refused(key, [Problem("spec.schedulingPolicy", "unknown")])
    await settle(cluster, after=2.0)
    assert cluster.bound == {}
    messages = {patch.condition.message for patch in cluster.writer.patches if patch.condition}
    assert (
        'waiting for pods\'s pod group "train" to appear in scheduling queue: PodGroup default/train of '
        "scheduling.k8s.io cannot be scheduled: spec.schedulingPolicy: unknown, or create the pod without "
        "spec.schedulingGroup"
    ) in messages
    gang = present(cluster.queue.gangs.get(key))
    assert gang.refusal == "spec.schedulingPolicy: unknown"
    feed.group_deleted(key)
    assert gang.refusal == ""
    assert "no valid PodGroup" in cluster.queue.gangs.obstacle(key)
    feed.group_changed(native())
    await settle(cluster)
    assert set(cluster.bound) == {"p0", "p1"}


async def test_gangs_of_equal_priority_are_ordered_by_their_first_member(cluster: Rig) -> None:
    """Gangs of equal priority are ordered by the first member, not by the age of the PodGroup."""
    created = cluster.clock.wall()
    cluster.add(small_node("a", 2))
    for name in ("first", "second"):
        cluster.scheduler.group_feed.group_changed(native(name, created=created))
    for name in ("second-0", "first-0", "first-1", "second-1"):
        cluster.clock.advance(0.01)
        cluster.add(member(name, name.partition("-")[0], created=created))
    await settle(cluster)
    assert set(cluster.bound) == {"second-0", "second-1"}


async def test_the_order_survives_a_restart(cluster: Rig) -> None:
    """Gangs are ordered by the creationTimestamp of their members, in whatever order pods are listed."""
    now = cluster.clock.wall()
    cluster.add(small_node("a", 2))
    for name, age in (("young", 30), ("old", 60)):
        created = now - timedelta(seconds=age)
        cluster.scheduler.group_feed.group_changed(native(name, created=now))
        cluster.add(*(member(f"{name}-{number}", name, created=created) for number in range(2)))
    await settle(cluster)
    assert set(cluster.bound) == {"old-0", "old-1"}


@table(
    "cpus, taken, expected",
    ("most-allocated", {"a": 4, "b": 6, "c": 6}, {"b": 2, "c": 1}, "b"),
    ("most-members", {"a": 2, "b": 4}, {}, "b"),
    ("smallest-that-fits", {"a": 6, "b": 4, "c": 5}, {"c": 4}, "b"),
)
async def test_the_domain_with_the_best_placement_score(
    cluster: Rig, cpus: dict[str, int], taken: dict[str, int], expected: str
) -> None:
    """The domain with the most feasible members is used, then the one with the largest allocated share."""
    for zone, count in cpus.items():
        cluster.add(small_node(zone, count, zone=zone))
        cluster.add(*(running_pod(f"v{zone}{number}", zone) for number in range(taken.get(zone, 0))))
    await settle_gang(
        cluster,
        *pods(3),
        of=native(topology=replace(ZONE, prefers_allocated=True)),
    )
    assert cluster.bound == dict.fromkeys(("p0", "p1", "p2"), expected)


@table("is_taken", ("free", False), ("preemption", True))
async def test_domains_are_compared_by_the_members_that_fit(cluster: Rig, is_taken: bool) -> None:
    """A domain whose nodes have capacity for all members but reject some loses to one where all are feasible."""
    taints = ["for=others:NoSchedule"]
    cluster.add(small_node("a1", 2, zone="a"), small_node("b", 5, zone="b"))
    cluster.add(node("a2", labels={"zone": "a"}, allocatable={"cpu": "2", "pods": "99"}, taints=taints))
    if is_taken:
        cluster.add(*(running_pod(f"v{name}", name, cpus=cpus) for name, cpus in (("a1", 2), ("a2", 2), ("b", 5))))
    await settle_gang(
        cluster,
        *pods(4),
        of=native(topology=replace(ZONE, prefers_allocated=True)),
    )
    if is_taken:
        assert evicted(cluster) == {"vb"}
        cluster.scheduler.feed.pod_deleted(running_pod("vb", "b", cpus=5))
        await settle(cluster, after=30.0)
    assert cluster.bound == dict.fromkeys((f"p{number}" for number in range(4)), "b")
