"""CompositePodGroups: trees of gangs that are scheduled in one cycle, as their policies and topology require.

The cases follow kube-scheduler v1.37.1, ``test/integration/scheduler/podgroup/cpg_test.go``, and
``cpg_tas_test.go`` of the integration tests for topology-aware scheduling.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from scheduler_core.queueing.gang_members import Gang
from tests.support.affinities import anti_affinity_to
from tests.support.builders import node, pod
from tests.support.gang_preemption import evicted, running_pod, small_node
from tests.support.gangs import add_groups, composite_group, leaf_group, settle
from tests.support.presence import present
from tests.support.scheduling import Rig, configured, default_rig, plugin_set, rig
from tests.support.tables import table

ZONE, RACK = GroupTopology("zone", prefers_allocated=True), GroupTopology("rack", prefers_allocated=True)


@pytest.fixture
def cluster() -> Rig:
    return default_rig(groups=[GroupSource.NATIVE, GroupSource.COMPOSITE])


def members(of: str, *cpus: int, **fields: Any) -> list[Pod]:
    return [
        pod(f"{of}-{number}", requests={"cpu": str(cpu)}, group=of, **fields)
        for number, cpu in enumerate(cpus, start=1)
    ]


def gang(cluster: Rig, name: str) -> Gang:
    return present(cluster.queue.gangs.get(GroupKey(GroupSource.NATIVE, "default", name)))


def bound_groups(cluster: Rig) -> set[str]:
    """Return the names of the groups with bound members."""
    return {name.rpartition("-")[0] for name in cluster.bound}


async def after_backoff(cluster: Rig) -> None:
    await settle(cluster, after=30.0)


async def test_a_hierarchy_of_three_levels(cluster: Rig) -> None:
    """Infeasible groups do not prevent the binds of groups that meet the quorum of every group above them."""
    cluster.add(node("n", allocatable={"cpu": "20", "pods": "99"}))
    add_groups(
        cluster, composite_group("root", 2), composite_group("sub1", 2, "root"), composite_group("sub2", 1, "root")
    )
    add_groups(cluster, composite_group("sub3", 2, "root"))
    of = {"pg1": "sub1", "pg2": "sub1", "pg3": "sub1", "pg4": "sub2", "pg5": "sub2", "pg6": "sub3", "pg7": "sub3"}
    add_groups(cluster, *(leaf_group(name, parent, 1 if name == "pg4" else 3) for name, parent in of.items()))
    for name in of:
        cluster.add(*members(name, *(3 * [100 if name in ("pg3", "pg7") else 1])))
    await settle(cluster)
    await after_backoff(cluster)
    assert bound_groups(cluster) == {"pg1", "pg2", "pg4", "pg5"}
    assert len(cluster.bound) == 12
    assert {cluster.place_of(each) for each in members("pg6", 1, 1, 1)} == {"unschedulable"}


@pytest.mark.parametrize(("min_groups", "bound"), [(1, {"a", "b"}), (2, {"a", "b"}), (3, set())])
async def test_the_minimum_number_of_groups(cluster: Rig, min_groups: int, bound: set[str]) -> None:
    """No pod is bound unless the minimum number of groups fits; no member of an infeasible group is bound."""
    cluster.add(node("n", allocatable={"cpu": "20", "pods": "99"}))
    add_groups(cluster, composite_group("root", min_groups), *(leaf_group(name, "root", 3) for name in "abc"))
    await settle(cluster, *members("a", 1, 1, 1), *members("b", 1, 1, 1), *members("c", 100, 1, 1))
    assert bound_groups(cluster) == bound
    assert len(cluster.bound) == 3 * len(bound)
    if not bound:
        outcome = present(gang(cluster, "c").outcome)
        lack = "minCount (3) cannot be satisfied: 0 scheduled, 2 remaining"
        preemption = "pod group preemption: No preemption victims found for incoming preemptor"
        assert (outcome.reason, outcome.quorum) == ("Unschedulable", f"{lack}, {preemption}")
        why = cluster.condition.message
        assert why.startswith('composite pod group "root": minCount (3) cannot be satisfied: 2 scheduled, 0 remaining')


@pytest.mark.parametrize("missing", ["root", "middle"])
async def test_a_missing_parent(cluster: Rig, missing: str) -> None:
    """Members are gated, with the name of the missing group, until it is created and after it is deleted."""
    cluster.add(node("n", allocatable={"cpu": "20", "pods": "99"}))
    groups = {"root": composite_group("root"), "middle": composite_group("middle", 1, "root")}
    add_groups(cluster, *(group for name, group in groups.items() if name != missing), leaf_group("a", "middle", 2))
    first, *others = members("a", 1, 1)
    await settle(cluster, first, *others)
    assert (cluster.bound, cluster.place_of(first)) == ({}, "gated")
    obstacle = cluster.queue.gangs.obstacle(gang(cluster, "a").key)
    assert obstacle.startswith(f'waiting for composite pod group "{missing}" to appear in scheduling queue: ')
    add_groups(cluster, groups[missing])
    await settle(cluster)
    assert len(cluster.bound) == 2
    cluster.scheduler.group_feed.group_deleted(groups[missing].key)
    await settle(cluster, *members("a", 1, 1, 1)[2:])
    assert len(cluster.bound) == 2
    add_groups(cluster, groups[missing])
    await settle(cluster)
    assert len(cluster.bound) == 3


async def test_a_group_that_is_its_own_ancestor(cluster: Rig) -> None:
    """Members of a group that is its own ancestor are gated."""
    cluster.add(node("n"))
    add_groups(cluster, composite_group("x", 1, "y"), composite_group("y", 1, "x"), leaf_group("a", "x"))
    await settle(cluster, *members("a", 1))
    assert cluster.bound == {}
    assert "is its own ancestor" in cluster.queue.gangs.obstacle(gang(cluster, "a").key)


async def test_composite_groups_that_are_not_read(cluster: Rig) -> None:
    """Members below an unreadable CompositePodGroup are gated, and other gangs are scheduled."""
    cluster.add(node("n"))
    add_groups(cluster, composite_group("root"), leaf_group("a", "root"), leaf_group("b", ""))
    cluster.scheduler.group_feed.withhold(GroupSource.COMPOSITE, "it is refused")
    await settle(cluster, *members("a", 1), *members("b", 1))
    assert bound_groups(cluster) == {"b"}
    assert (
        cluster.queue.gangs.obstacle(gang(cluster, "a").key)
        == 'composite pod group "root" cannot be read: it is refused'
    )
    cluster.scheduler.group_feed.serve(GroupSource.COMPOSITE)
    await settle(cluster)
    assert bound_groups(cluster) == {"a", "b"}


async def test_groups_that_are_added_later(cluster: Rig) -> None:
    """A scheduled root accepts further groups; a group below a new CompositePodGroup waits for its quorum."""
    cluster.add(node("n", allocatable={"cpu": "20", "pods": "99"}))
    add_groups(cluster, composite_group("root"), leaf_group("a", "root"))
    await settle(cluster, *members("a", 1, 1))
    assert len(cluster.bound) == 2
    add_groups(cluster, leaf_group("b", "root"))
    await settle(cluster, *members("b", 1, 1))
    assert len(cluster.bound) == 4
    add_groups(cluster, composite_group("sub", 2, "root"), leaf_group("c", "sub"))
    waiting = members("c", 1, 1)
    await settle(cluster, *waiting)
    assert len(cluster.bound) == 4
    assert {cluster.place_of(each) for each in waiting} == {"unschedulable"}
    add_groups(cluster, leaf_group("d", "sub"))
    await settle(cluster, *members("d", 1, 1))
    await after_backoff(cluster)
    assert len(cluster.bound) == 8


async def test_a_quorum_that_is_lost(cluster: Rig) -> None:
    """After the pods of one group are deleted, new pods of the others wait until the root has its quorum again."""
    cluster.add(node("n", allocatable={"cpu": "20", "pods": "99"}))
    add_groups(cluster, composite_group("root", 2), leaf_group("a", "root"), leaf_group("b", "root"))
    (lost,) = members("b", 1)
    await settle(cluster, *members("a", 1), lost)
    assert len(cluster.bound) == 2
    spec = replace(lost.spec, node_name=cluster.bound["b-1"])
    cluster.scheduler.feed.pod_updated(lost, replace(lost, spec=spec))
    cluster.scheduler.feed.pod_deleted(replace(lost, spec=spec))
    await settle(cluster, *members("a", 1, 1)[1:])
    assert set(cluster.bound) == {"a-1", "b-1"}
    await settle(cluster, *members("b", 1, 1)[1:])
    assert set(cluster.bound) == {"a-1", "a-2", "b-1", "b-2"}


async def test_a_gated_member_holds_the_tree_back(cluster: Rig) -> None:
    """A member with a scheduling gate in one group holds the other groups back."""
    cluster.add(node("n"))
    add_groups(cluster, composite_group("root"), leaf_group("a", "root"), leaf_group("b", "root"))
    gated = pod("gated", requests={"cpu": "1"}, group="b", gates=["example.com/later"])
    await settle(cluster, *members("a", 1), gated)
    assert cluster.bound == {}
    assert gang(cluster, "a").why_held == "no member is scheduled while others are gated: gated"
    cluster.scheduler.feed.pod_deleted(gated)
    await settle(cluster)
    assert bound_groups(cluster) == {"a"}


@table("capacity", ("feasible", 4), ("infeasible", 3))
async def test_a_topology_domain_for_the_tree(cluster: Rig, capacity: int) -> None:
    """All groups below a root with a topology constraint share its domain, and each leaf has a domain within it."""
    for name, zone, rack in (("x1", "x", "r1"), ("x2", "x", "r2"), ("y1", "y", "r3"), ("y2", "y", "r4")):
        cpus = capacity - 2 if name == "y2" else 2 if zone == "y" else 1
        cluster.add(small_node(name, cpus, zone=zone, rack=rack))
    add_groups(cluster, composite_group("root", 2, topology=ZONE))
    add_groups(cluster, leaf_group("a", "root", 2, topology=RACK), leaf_group("b", "root", 2, topology=RACK))
    await settle(cluster, *members("a", 1, 1), *members("b", 1, 1))
    if capacity == 3:
        assert cluster.bound == {}
        return
    by_group = {name: {cluster.bound[f"{name}-1"], cluster.bound[f"{name}-2"]} for name in "ab"}
    assert sorted(map(sorted, by_group.values())) == [["y1"], ["y2"]]
    cluster.add(small_node("x3", 9, zone="x", rack="r1"), *members("a", 1, 1, 1)[2:])
    await after_backoff(cluster)
    assert len(cluster.bound) == 4


async def test_members_must_have_the_priority_of_the_root(cluster: Rig) -> None:
    """A member with another priority than the root's rejects the tree with an error."""
    cluster.add(node("n"))
    add_groups(cluster, composite_group("root", priority=7), leaf_group("a", "root"))
    await settle(cluster, *members("a", 1))
    assert cluster.bound == {}
    outcome = present(gang(cluster, "a").outcome)
    expected = "all pods in a single pod group should have the same priority as the pod group's priority, got 0 and 7"
    assert (outcome.reason, outcome.message) == ("SchedulerError", expected)


@pytest.mark.parametrize("min_groups", [1, 2])
async def test_preemption(cluster: Rig, min_groups: int) -> None:
    """Pods are evicted for all feasible groups, as in kube-scheduler, and no further pods."""
    running = [running_pod(f"v{number}", "n", priority=-5) for number in range(5)]
    cluster.add(small_node("n", 5), *running)
    add_groups(cluster, composite_group("root", min_groups), leaf_group("a", "root", 2), leaf_group("b", "root", 2))
    await settle(cluster, *members("a", 1, 1), *members("b", 1, 1))
    assert len(evicted(cluster)) == 4
    for each in running:
        if each.metadata.name in evicted(cluster):
            cluster.scheduler.feed.pod_deleted(each)
    await after_backoff(cluster)
    assert len(cluster.bound) == 4


@pytest.mark.parametrize(("disrupts_whole", "victims"), [(True, {"a-1", "a-2", "b-1"}), (False, {"a-1"})])
async def test_a_tree_that_is_disrupted_whole(cluster: Rig, disrupts_whole: bool, victims: set[str]) -> None:
    """With disruption mode All, either every pod below the CompositePodGroup is evicted or none."""
    cluster.add(small_node("n", 3))
    add_groups(cluster, composite_group("root"), composite_group("sub", 1, "root", disrupts_whole=disrupts_whole))
    add_groups(cluster, leaf_group("a", "sub"), leaf_group("b", "sub"))
    await settle(cluster, *members("a", 1, 1), *members("b", 1))
    assert len(cluster.bound) == 3
    await settle(cluster, pod("high", requests={"cpu": "1"}, priority=100))
    assert len(evicted(cluster)) == len(victims)


@pytest.mark.parametrize("remaining", [0, 1])
async def test_a_member_that_is_deleted_before_the_binds(cluster: Rig, remaining: int) -> None:
    """No member of any group is bound before all are ready; the barrier rejects all of them."""
    cluster.add(node("n"))
    add_groups(cluster, composite_group("root", 2), leaf_group("a", "root"), leaf_group("b", "root"))
    pods = [*members("a", 1), *members("b", 1)]
    cluster.add(*pods)
    entry = cluster.pop()
    assert isinstance(entry, QueuedGang)
    attempts = await cluster.scheduler.cycles.gangs.schedule(entry)
    assert len(attempts) == 2
    barrier = present(attempts[0].gang)
    assert barrier is attempts[1].gang
    cluster.scheduler.feed.pod_deleted(pods[1 - remaining])
    assert not (await barrier.ready(pods[remaining].metadata.uid)).is_success


async def test_a_profile_that_schedules_gangs_by_permit() -> None:
    """Permit counts the members of one gang only, so the members of a tree are gated in this profile."""
    made = rig(defaults=Plugins(), serve=False)
    plugins = Plugins(multi_point=plugin_set("NodeResourcesFit", "Coscheduling", "DefaultBinder"))
    made.serve(configured("default-scheduler", "Coscheduling", {}, plugins))
    made.scheduler.group_feed.serve(GroupSource.NATIVE)
    made.scheduler.group_feed.serve(GroupSource.COMPOSITE)
    made.add(node("n"))
    add_groups(made, composite_group("root", 2), leaf_group("a", "root"), leaf_group("b", ""))
    held, free = members("a", 1), members("b", 1)
    await settle(made, *held, *free)
    assert bound_groups(made) == {"b"}
    assert made.place_of(held[0]) == "gated"


def leaf(name: str, parent: str, min_member: int = 1, topology: GroupTopology | None = None) -> PodGroup:
    return leaf_group(name, parent, min_member, topology=topology, is_uniform=True)


def members_of(of: str, count: int, first: int = 1) -> list[Pod]:
    return [pod(f"{of}-{number}", requests={"cpu": "1"}, group=of) for number in range(first, first + count)]


def nodes_of(cluster: Rig, group: str) -> set[str]:
    return {place for name, place in cluster.bound.items() if name.startswith(f"{group}-")}


async def delete_victims(cluster: Rig, running: list[Pod]) -> set[str]:
    """Delete the evicted pods, run the scheduler, and return the names of the evicted pods."""
    victims = evicted(cluster)
    for each in running:
        if each.metadata.name in victims:
            cluster.scheduler.feed.pod_deleted(each)
    await settle(cluster, after=30.0)
    assert evicted(cluster) == victims
    return set(victims)


@pytest.mark.parametrize("level", ["root", "leaf"])
async def test_the_domain_with_the_most_members(cluster: Rig, level: str) -> None:
    """Domains are compared by feasible members, not by free resources alone: a tainted node counts for none."""
    cluster.add(
        small_node("a1", 1, rack="a"),
        node("a2", labels={"rack": "a"}, allocatable={"cpu": "1", "pods": "9"}, taints=["broken:NoSchedule"]),
    )
    cluster.add(small_node("b1", 1, rack="b"), small_node("b2", 1, rack="b"))
    add_groups(cluster, composite_group("root", topology=RACK if level == "root" else None))
    add_groups(cluster, leaf("x", "root", 1, RACK if level == "leaf" else None))
    await settle(cluster, *members_of("x", 2))
    assert nodes_of(cluster, "x") == {"b1", "b2"}


async def test_the_most_allocated_domain(cluster: Rig) -> None:
    """Among domains with as many feasible members, each group gets the one with the largest allocated share."""
    cluster.add(small_node("a", 8, rack="a"), small_node("b", 4, rack="b"), small_node("c", 6, rack="c"))
    add_groups(cluster, composite_group("root", 2), leaf("x", "root", 2, RACK), leaf("y", "root", 4, RACK))
    await settle(cluster, *members_of("x", 2), *members_of("y", 4))
    assert (nodes_of(cluster, "x"), nodes_of(cluster, "y")) == ({"b"}, {"c"})


async def test_a_group_that_fails_in_the_domain_that_is_used(cluster: Rig) -> None:
    """A group that fits only in another domain of its parent is not scheduled."""
    cluster.add(small_node("a1", 3, zone="a", rack="1"), small_node("a2", 3, zone="a", rack="2"))
    cluster.add(small_node("b1", 2, zone="b", rack="3"), small_node("b2", 3, zone="b", rack="4"))
    add_groups(
        cluster, composite_group("root", 1, topology=ZONE), leaf("x", "root", 3, RACK), leaf("y", "root", 3, RACK)
    )
    add_groups(cluster, leaf("z", "root", 7, RACK))
    await settle(cluster, *members_of("x", 3), *members_of("y", 3), *members_of("z", 7))
    assert sorted(map(sorted, (nodes_of(cluster, "x"), nodes_of(cluster, "y")))) == [["a1"], ["a2"]]
    assert nodes_of(cluster, "z") == set()


@pytest.mark.parametrize("parent", ["root", ""])
async def test_scheduled_members_in_two_domains(cluster: Rig, parent: str) -> None:
    """No further member is scheduled, because no domain contains them all."""
    cluster.add(small_node("a", 4, zone="a"), small_node("b", 4, zone="b"))
    add_groups(cluster, composite_group("root", topology=ZONE), leaf("x", parent, 3, None if parent else ZONE))
    cluster.add(*(pod(f"x-{number}", group="x", node_name=name) for number, name in enumerate("ab", start=1)))
    (waiting,) = members_of("x", 1, first=3)
    await settle(cluster, waiting)
    assert cluster.bound == {}
    assert present(gang(cluster, "x").outcome).reason == "SchedulerError"
    problem = "cannot determine domain for already scheduled pods: more than 1 domain found for pod group: a, b"
    assert problem in cluster.condition.message


async def test_capacity_is_freed_in_a_domain_while_another_domain_needs_no_member(cluster: Rig) -> None:
    """Freed capacity requeues the tree.

    The ended member of the other group meets the quorum, so every domain suffices without a further member.
    """
    cluster.add(
        small_node("a", 1, zone="a"),
        node("b", labels={"zone": "b"}, allocatable={"cpu": "9", "pods": "9"}, taints=["broken:NoSchedule"]),
    )
    full = running_pod("full", "a", priority=9)
    add_groups(cluster, composite_group("root", topology=ZONE), leaf("x", "root"), leaf("y", "root"))
    await settle(cluster, full, pod("y-1", node_name="b", group="y", phase="Succeeded"), *members_of("x", 1))
    assert cluster.bound == {}
    cluster.scheduler.feed.pod_deleted(full)
    await settle(cluster, after=20.0)
    assert nodes_of(cluster, "x") == {"a"}


async def test_capacity_is_freed_in_a_domain_that_separates_two_groups(cluster: Rig) -> None:
    """Freed capacity requeues the tree: the first group moves to the better domain and no longer rejects the second."""
    cluster.add(small_node("a", 4, zone="a"), small_node("b", 1, zone="b"))
    full = running_pod("full", "b", priority=9)
    add_groups(cluster, composite_group("root", 2), leaf("x", "root", topology=ZONE), leaf("y", "root"))
    x = pod("x-1", requests={"cpu": "1"}, group="x", labels={"app": "x"})
    await settle(cluster, full, x, pod("y-1", group="y", node_selector={"zone": "a"}, affinity=anti_affinity_to("x")))
    assert cluster.bound == {}
    cluster.scheduler.feed.pod_deleted(full)
    await settle(cluster, after=20.0)
    assert cluster.bound == {"x-1": "b", "y-1": "a"}


async def test_preemption_in_nested_domains(cluster: Rig) -> None:
    """Each gang gets a rack, all in one zone, and no pod is evicted elsewhere."""
    cluster.add(*(small_node(f"{zone}{rack}", 2, zone=zone, rack=f"{zone}{rack}") for zone in "ab" for rack in "12"))
    running = [running_pod(f"v-{name}", name, priority=-5, cpus=2) for name in ("a1", "a2", "b1")]
    cluster.add(*running, running_pod("high-b2", "b2", priority=9))
    add_groups(cluster, composite_group("root", 2, topology=ZONE), composite_group("sub", 1, "root"))
    add_groups(cluster, leaf("x", "sub", 2, RACK), leaf("y", "root", 2, RACK))
    await settle(cluster, *members_of("x", 2), *members_of("y", 2))
    assert await delete_victims(cluster, running) == {"v-a1", "v-a2"}
    assert sorted(map(sorted, (nodes_of(cluster, "x"), nodes_of(cluster, "y")))) == [["a1"], ["a2"]]


async def test_the_domain_that_scores_best(cluster: Rig) -> None:
    """A gang gets the rack that scores best without its victims, although pods elsewhere have a lower priority."""
    cluster.add(small_node("a", 4, rack="a"), small_node("b", 2, rack="b"), small_node("c", 3, rack="c"))
    running = [running_pod("v-a", "a", -9, 4), running_pod("v-b", "b", -1, 2), running_pod("v-c", "c", -5, 3)]
    cluster.add(*running)
    add_groups(cluster, composite_group("root"), leaf("x", "root", 2, RACK))
    await settle(cluster, *members_of("x", 2))
    assert await delete_victims(cluster, running) == {"v-b"}
    assert nodes_of(cluster, "x") == {"b"}


async def test_groups_beyond_the_quorum_evict(cluster: Rig) -> None:
    """All feasible groups are scheduled, whether or not another group is infeasible."""
    cluster.add(small_node("a", 2, rack="a"), small_node("b", 4, rack="b"))
    running = [running_pod("v-a", "a", -5, 2), running_pod("v-b", "b", -5, 4)]
    cluster.add(*running)
    add_groups(
        cluster,
        composite_group("root"),
        leaf("x", "root", 1, RACK),
        leaf("y", "root", 2, RACK),
        leaf("z", "root", 4, RACK),
    )
    await settle(cluster, pod("x-1", requests={"cpu": "100"}, group="x"), *members_of("y", 2), *members_of("z", 4))
    assert await delete_victims(cluster, running) == {"v-a", "v-b"}
    assert (nodes_of(cluster, "y"), nodes_of(cluster, "z")) == ({"a"}, {"b"})


async def test_a_group_below_a_root_that_has_its_quorum(cluster: Rig) -> None:
    """Pods are evicted in the domain of the root, and only if that makes the whole further gang feasible."""
    cluster.add(
        small_node("a1", 2, zone="a", rack="1"),
        small_node("a2", 2, zone="a", rack="2"),
        small_node("b1", 2, zone="b", rack="3"),
    )
    running = [running_pod("v-a2", "a2", -5, 2), running_pod("v-b1", "b1", -9, 2)]
    cluster.add(*running)
    add_groups(cluster, composite_group("root", topology=ZONE), leaf("x", "root", 2, RACK))
    await settle(cluster, *members_of("x", 2))
    assert nodes_of(cluster, "x") == {"a1"}
    add_groups(cluster, leaf("y", "root", 3, RACK))
    await settle(cluster, *members_of("y", 3))
    assert set(evicted(cluster)) == set()
    add_groups(cluster, leaf("z", "root", 2, RACK))
    await settle(cluster, *members_of("z", 2))
    assert await delete_victims(cluster, running) == {"v-a2"}
    assert nodes_of(cluster, "z") == {"a2"}
