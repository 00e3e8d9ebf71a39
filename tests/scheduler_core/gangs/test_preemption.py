"""Victims of a gang's preemption: pods are evicted for the whole quorum or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from scheduler_core.model.workloads import PodDisruptionBudget
from tests.support.builders import PodFields
from tests.support.cluster_state import cluster_state
from tests.support.gang_preemption import (
    DISRUPTED_AS_GROUP,
    DISRUPTED_BY_POD,
    add_gang,
    evicted,
    running_pod,
    small_node,
    terminating_pod,
    victim_member,
    with_pod_groups,
)
from tests.support.gangs import gang_of, group, members, previewed, settle
from tests.support.preemption import budget
from tests.support.presence import present
from tests.support.scheduling import Rig, rig


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler for gangs, without nodes."""
    return with_pod_groups(rig(defaults=default_plugins()))


@dataclass(frozen=True)
class Case:
    """A cluster, a gang of members with one CPU and priority 10, and the expected victims."""

    nodes: Iterable[Node]
    running: Iterable[Pod]
    victims: set[str]
    size: int = 2
    budgets: Iterable[PodDisruptionBudget] = ()
    groups: Iterable[PodGroup] = ()
    topology: GroupTopology | None = None
    member_fields: PodFields = field(default_factory=PodFields)
    priority: int | None = None


ZONE, PREFERRED_ZONE = GroupTopology("zone"), GroupTopology("zone", is_required=False)

CASES = {
    "all pods of lower priority": Case(
        [small_node("a")], [running_pod("v0", "a"), running_pod("v1", "a")], {"v0", "v1"}
    ),
    "no victims if the quorum stays infeasible": Case(
        [small_node("a")], [running_pod("v0", "a"), running_pod("v1", "a", 10)], set()
    ),
    "free capacity is used": Case([small_node("a")], [running_pod("v0", "a")], {"v0"}),
    "pods of equal priority are not evicted": Case(
        [small_node("a")], [running_pod("v0", "a", 10), running_pod("v1", "a", 10)], set()
    ),
    "lowest priorities on a node": Case(
        [small_node("a", 3)],
        [running_pod("v0", "a", 9), running_pod("v1", "a", 1), running_pod("v2", "a", 2)],
        {"v1", "v2"},
    ),
    "node with the lowest priority, for both members": Case(
        [small_node("a"), small_node("b"), small_node("c")],
        [running_pod("a0", "a", 5, 2), running_pod("b0", "b", 1, 2), running_pod("c0", "c", 3, 2)],
        {"b0"},
    ),
    "nodes with the lowest priorities": Case(
        [small_node("a", 1), small_node("b", 1), small_node("c", 1)],
        [running_pod("a0", "a", 5), running_pod("b0", "b", 1), running_pod("c0", "c", 3)],
        {"b0", "c0"},
    ),
    "a disruption budget outweighs priorities": Case(
        [small_node("a", 1), small_node("b", 1), small_node("c", 1)],
        [running_pod("a0", "a", 5), running_pod("b0", "b", 1, labels={"app": "db"}), running_pod("c0", "c", 3)],
        {"a0", "c0"},
        budgets=[budget("db", {"app": "db"}, 0)],
    ),
    "a disruption budget counts on all nodes": Case(
        [small_node("a", 1), small_node("b", 1), small_node("c", 1)],
        [
            running_pod("a0", "a", 1, labels={"app": "db"}),
            running_pod("b0", "b", 1, labels={"app": "db"}),
            running_pod("c0", "c", 3),
        ],
        {"a0", "c0"},
        budgets=[budget("db", {"app": "db"}, 1)],
    ),
    "a disruption budget is violated if nothing else helps": Case(
        [small_node("a", 1), small_node("b", 1)],
        [running_pod("a0", "a", labels={"app": "db"}), running_pod("b0", "b", labels={"app": "db"})],
        {"a0", "b0"},
        budgets=[budget("db", {"app": "db"}, 0)],
    ),
    "a gang that is disrupted as a whole is evicted as a whole": Case(
        [small_node("a", 1), small_node("b", 1), small_node("c", 1), small_node("d", 1)],
        [victim_member("g0", "a"), victim_member("g1", "b"), victim_member("g2", "c"), running_pod("d0", "d", 1)],
        {"g0", "g1", "g2"},
        groups=[DISRUPTED_AS_GROUP],
    ),
    "needed members of a gang that is disrupted one by one": Case(
        [small_node("a", 1), small_node("b", 1), small_node("c", 1)],
        [victim_member("g0", "a"), victim_member("g1", "b"), victim_member("g2", "c")],
        {"g0", "g1"},
        groups=[DISRUPTED_BY_POD],
    ),
    "members have the higher priority of their group": Case(
        [small_node("a", 1), small_node("b", 1), small_node("c", 1)],
        [victim_member("g0", "a"), victim_member("g1", "b"), running_pod("c0", "c")],
        set(),
        groups=[replace(DISRUPTED_BY_POD, priority=10)],
    ),
    "a whole gang with one member of high priority is not evicted": Case(
        [small_node("a", 1), small_node("b", 1), small_node("c", 1), small_node("d", 1)],
        [victim_member("g0", "a"), victim_member("g1", "d", 10), running_pod("b0", "b", 9), running_pod("c0", "c", 9)],
        {"b0", "c0"},
        groups=[DISRUPTED_AS_GROUP],
    ),
    "victims on other nodes free capacity for the next member": Case(
        [small_node("a", 1), small_node("b", 1), small_node("c", 1)],
        [victim_member("g0", "a"), victim_member("g1", "b"), running_pod("c0", "c")],
        {"g0", "g1"},
        groups=[DISRUPTED_AS_GROUP],
    ),
    "the domain with the least important victims": Case(
        [
            small_node("x0", 1, zone="x"),
            small_node("x1", 1, zone="x"),
            small_node("y0", 1, zone="y"),
            small_node("y1", 1, zone="y"),
        ],
        [running_pod("a", "x0", 1), running_pod("b", "x1", 8), running_pod("c", "y0", 2), running_pod("d", "y1", 3)],
        {"c", "d"},
        topology=ZONE,
    ),
    "required domain, infeasible": Case(
        [small_node("x0", 1, zone="x"), small_node("x1", 1, zone="x"), small_node("y0", 1, zone="y")],
        [running_pod("a", "x0", 1), running_pod("b", "x1", 10), running_pod("c", "y0", 2)],
        set(),
        topology=ZONE,
    ),
    "preferred domain, over several": Case(
        [small_node("x0", 1, zone="x"), small_node("x1", 1, zone="x"), small_node("y0", 1, zone="y")],
        [running_pod("a", "x0", 1), running_pod("b", "x1", 10), running_pod("c", "y0", 2)],
        {"a", "c"},
        topology=PREFERRED_ZONE,
    ),
    "a member that never preempts": Case(
        [small_node("a")],
        [running_pod("v0", "a"), running_pod("v1", "a")],
        set(),
        member_fields=PodFields(preemption_policy="Never"),
    ),
    "priority of the group below its members": Case(
        [small_node("a")], [running_pod("v0", "a"), running_pod("v1", "a")], set(), priority=0
    ),
    "priority of the group above its members": Case(
        [small_node("a")], [running_pod("v0", "a", 15), running_pod("v1", "a", 15)], {"v0", "v1"}, priority=20
    ),
    "terminating pods are not evicted": Case(
        [small_node("a")], [terminating_pod(running_pod("v0", "a")), running_pod("v1", "a")], {"v1"}
    ),
    "host ports": Case(
        [small_node("a"), small_node("b")],
        [running_pod("v0", "a", ports=[80]), running_pod("v1", "b", ports=[80])],
        {"v0", "v1"},
        member_fields=PodFields(ports=[80]),
    ),
    "the first member's victim frees capacity for the second": Case(
        [small_node("a", 3)], [running_pod("big", "a", 1, 2), running_pod("little", "a", 2, 1)], {"big"}
    ),
    "a victim is spared if a later one frees enough capacity": Case(
        [small_node("a", 4)], [running_pod("v0", "a", 1, 1), running_pod("v1", "a", 2, 3)], {"v1"}, size=3
    ),
}


def staged(made: Rig, case: Case) -> list[Pod]:
    """Set up the cluster of a case; return the gang's members, which are not added yet."""
    for each in case.groups:
        made.scheduler.group_feed.group_changed(each)
    made.add(*case.nodes, *case.running)
    for one in case.budgets:
        made.context.cache.columns.disruption_budgets.assign(one)
    return members(case.size, **PodFields(priority=10, **case.member_fields))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_victims(cluster: Rig, case: Case) -> None:
    """Exactly the needed victims are evicted for the whole quorum, or none."""
    pods = staged(cluster, case)
    add_gang(cluster, *pods, of=group(min_member=case.size, topology=case.topology, priority=case.priority))
    await settle(cluster)
    assert (evicted(cluster), cluster.bound) == (case.victims, {})
    assert {name for _, name in gang_of(cluster).victims} == case.victims
    outcome = present(gang_of(cluster).outcome)
    assert (outcome.reason == "Preempting") == bool(case.victims)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_dry_runs(cluster: Rig, case: Case) -> None:
    """A dry run returns the same victims, or the reason for none, and changes nothing."""
    pods = staged(cluster, case)
    add_gang(cluster, *pods, of=group(min_member=case.size, topology=case.topology, priority=case.priority))
    before = cluster_state(cluster.context)
    preview = previewed(cluster)
    victims = () if preview.plan is None else preview.plan.victims
    assert {info.pod.metadata.name for info in victims} == case.victims
    assert bool(preview.reason) == (preview.plan is None)
    assert (cluster_state(cluster.context), evicted(cluster)) == (before, set())
