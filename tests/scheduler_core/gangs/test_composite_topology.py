"""CompositePodGroups with topology constraints: the domain that scores best, and preemption in nested domains.

The cases follow kube-scheduler v1.37.1, ``cpg_tas_test.go`` of the integration tests for topology-aware scheduling.
"""

from __future__ import annotations

import pytest

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from tests.support.affinities import anti_affinity_to
from tests.support.builders import node, pod
from tests.support.gang_preemption import evicted, running_pod, small_node
from tests.support.gangs import add_groups, composite_group, leaf_group, settle
from tests.support.presence import present
from tests.support.scheduling import Rig, rig

ZONE, RACK = GroupTopology("zone", prefers_allocated=True), GroupTopology("rack", prefers_allocated=True)


@pytest.fixture
def cluster() -> Rig:
    return rig(defaults=default_plugins(), groups=[GroupSource.NATIVE, GroupSource.COMPOSITE])


def leaf(name: str, parent: str, min_member: int = 1, topology: GroupTopology | None = None) -> PodGroup:
    return leaf_group(name, parent, min_member, topology=topology, is_uniform=True)


def members(of: str, count: int, first: int = 1) -> list[Pod]:
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
    await settle(cluster, *members("x", 2))
    assert nodes_of(cluster, "x") == {"b1", "b2"}


async def test_the_most_allocated_domain(cluster: Rig) -> None:
    """Among domains with as many feasible members, each group gets the one with the largest allocated share."""
    cluster.add(small_node("a", 8, rack="a"), small_node("b", 4, rack="b"), small_node("c", 6, rack="c"))
    add_groups(cluster, composite_group("root", 2), leaf("x", "root", 2, RACK), leaf("y", "root", 4, RACK))
    await settle(cluster, *members("x", 2), *members("y", 4))
    assert (nodes_of(cluster, "x"), nodes_of(cluster, "y")) == ({"b"}, {"c"})


async def test_a_group_that_fails_in_the_domain_that_is_used(cluster: Rig) -> None:
    """A group that fits only in another domain of its parent is not scheduled."""
    cluster.add(small_node("a1", 3, zone="a", rack="1"), small_node("a2", 3, zone="a", rack="2"))
    cluster.add(small_node("b1", 2, zone="b", rack="3"), small_node("b2", 3, zone="b", rack="4"))
    add_groups(
        cluster, composite_group("root", 1, topology=ZONE), leaf("x", "root", 3, RACK), leaf("y", "root", 3, RACK)
    )
    add_groups(cluster, leaf("z", "root", 7, RACK))
    await settle(cluster, *members("x", 3), *members("y", 3), *members("z", 7))
    assert sorted(map(sorted, (nodes_of(cluster, "x"), nodes_of(cluster, "y")))) == [["a1"], ["a2"]]
    assert nodes_of(cluster, "z") == set()


@pytest.mark.parametrize("parent", ["root", ""])
async def test_scheduled_members_in_two_domains(cluster: Rig, parent: str) -> None:
    """No further member is scheduled, because no domain contains them all."""
    cluster.add(small_node("a", 4, zone="a"), small_node("b", 4, zone="b"))
    add_groups(cluster, composite_group("root", topology=ZONE), leaf("x", parent, 3, None if parent else ZONE))
    cluster.add(*(pod(f"x-{number}", group="x", node_name=name) for number, name in enumerate("ab", start=1)))
    (waiting,) = members("x", 1, first=3)
    await settle(cluster, waiting)
    assert cluster.bound == {}
    gang = present(cluster.queue.gangs.get(GroupKey(GroupSource.NATIVE, "default", "x")))
    assert gang.outcome is not None
    assert gang.outcome.reason == "SchedulerError"
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
    await settle(cluster, full, pod("y-1", node_name="b", group="y", phase="Succeeded"), *members("x", 1))
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
    await settle(cluster, *members("x", 2), *members("y", 2))
    assert await delete_victims(cluster, running) == {"v-a1", "v-a2"}
    assert sorted(map(sorted, (nodes_of(cluster, "x"), nodes_of(cluster, "y")))) == [["a1"], ["a2"]]


async def test_the_domain_that_scores_best(cluster: Rig) -> None:
    """A gang gets the rack that scores best without its victims, although pods elsewhere have a lower priority."""
    cluster.add(small_node("a", 4, rack="a"), small_node("b", 2, rack="b"), small_node("c", 3, rack="c"))
    running = [running_pod("v-a", "a", -9, 4), running_pod("v-b", "b", -1, 2), running_pod("v-c", "c", -5, 3)]
    cluster.add(*running)
    add_groups(cluster, composite_group("root"), leaf("x", "root", 2, RACK))
    await settle(cluster, *members("x", 2))
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
    await settle(cluster, pod("x-1", requests={"cpu": "100"}, group="x"), *members("y", 2), *members("z", 4))
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
    await settle(cluster, *members("x", 2))
    assert nodes_of(cluster, "x") == {"a1"}
    add_groups(cluster, leaf("y", "root", 3, RACK))
    await settle(cluster, *members("y", 3))
    assert set(evicted(cluster)) == set()
    add_groups(cluster, leaf("z", "root", 2, RACK))
    await settle(cluster, *members("z", 2))
    assert await delete_victims(cluster, running) == {"v-a2"}
    assert nodes_of(cluster, "z") == {"a2"}
