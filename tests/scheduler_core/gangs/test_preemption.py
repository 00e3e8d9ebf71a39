"""Preemption by a gang: victims, what is reported, how the gang waits for its victims, and how the preemption ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.plugin_set_types import PluginConfig, Plugins, PluginSet
from scheduler_core.dry_run_assembly import Explainers
from scheduler_core.errors import ClusterWriteError
from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from scheduler_core.model.workloads import PodDisruptionBudget
from scheduler_core.ports import ObjectReference
from tests.support.affinities import named, node_affinity
from tests.support.binding_gate import Gate
from tests.support.builders import PodFields, node, pod
from tests.support.cluster_state import cluster_state
from tests.support.gang_preemption import (
    DISRUPTED_AS_GROUP,
    DISRUPTED_BY_POD,
    add_gang,
    deferring_rig,
    evicted,
    running_pod,
    small_node,
    terminating_pod,
    victim_member,
    with_pod_groups,
)
from tests.support.gang_traffic import Traffic
from tests.support.gangs import gang_of, group, member, members, previewed, settle, settle_gang
from tests.support.preemption import budget
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig, gang_rig, plugin_set, profile, rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_rig
from tests.support.tables import table


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
        made.columns.disruption_budgets.assign(one)
    return members(case.size, **PodFields(priority=10, **case.member_fields))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_victims(cluster: Rig, case: Case) -> None:
    """Exactly the needed victims are evicted for the whole quorum, or none; a dry run returns them before.

    The dry run returns the reason if there are none, and changes nothing.
    """
    pods = staged(cluster, case)
    add_gang(cluster, *pods, of=group(min_member=case.size, topology=case.topology, priority=case.priority))
    before = cluster_state(cluster.context)
    preview = previewed(cluster)
    victims = () if preview.plan is None else preview.plan.victims
    assert {info.pod.metadata.name for info in victims} == case.victims
    assert bool(preview.reason) == (preview.plan is None)
    assert (cluster_state(cluster.context), evicted(cluster)) == (before, set())
    await settle(cluster)
    assert (evicted(cluster), cluster.bound) == (case.victims, {})
    assert {name for _, name in gang_of(cluster).victims} == case.victims
    outcome = present(gang_of(cluster).outcome)
    assert (outcome.reason == "Preempting") == bool(case.victims)


FULL = [running_pod("v0", "a", 1), running_pod("v1", "a")]


async def preempt(made: Rig) -> None:
    """Let a gang of two preempt both pods of the full node ``a``."""
    made.add(small_node("a"), *FULL)
    await settle_gang(made, *members(2, priority=10), of=group())


# -- reports ----------------------------------------------------------------------------------------------------


async def test_reports_of_a_preemption() -> None:
    """The group, its members and the victims get reports; the group's status has the victims before any is deleted."""
    made, writer = deferring_rig()
    await preempt(made)
    gang, outcome = gang_of(made), present(gang_of(made).outcome)
    assert outcome.message.startswith(
        "preempting: 2 pods would go on 1 node so that all 2 members that must be placed together fit; none of the "
    )
    assert gang.victims == (("default", "v0"), ("default", "v1"))
    assert [event for event in writer.events if event.reason == "Preempted"] == []
    patches = {patch.name: patch for patch in writer.patches}
    assert {name: patch.nominated_node_name for name, patch in patches.items()} == {"train-0": "a", "train-1": "a"}
    (message,) = {patch.condition.message for patch in patches.values() if patch.condition}
    assert outcome.message == f"{message} Nearest: a (needs 1 cpu, has 0); it would fit on a with 1 cpu more."
    (first,) = writer.deletions
    assert present(first.condition).message == "default-scheduler: preempting to accommodate a higher priority podgroup"
    writer.pending_deletions["v0"](None)
    (event,) = [event for event in writer.events if event.reason == "Preempted"]
    assert event.note == "Preempted by podgroup uid-of-group-default-train (default/train) on node a"
    assert event.related == ObjectReference(
        "PodGroup", "train", "default", "uid-of-group-default-train", "bayplan.dev/v1alpha1"
    )


async def test_a_gang_that_becomes_infeasible(cluster: Rig) -> None:
    """A preemption that no longer makes the gang feasible ends, without victims and nominations."""
    await preempt(cluster)
    cluster.scheduler.feed.node_deleted(small_node("a"))
    cluster.add(small_node("b", 1))
    await settle(cluster, after=20.0)
    outcome = present(gang_of(cluster).outcome)
    assert (outcome.reason, gang_of(cluster).victims) == ("Unschedulable", ())
    assert len(cluster.queue.nominator) == 0


# -- waiting for victims -----------------------------------------------------------------------------------------


async def test_the_gang_is_held_back_until_evictions_are_issued() -> None:
    """No event requeues the gang before all evictions are issued; then it is retried."""
    made, writer = deferring_rig()
    await preempt(made)
    made.add(small_node("b", 1))
    await settle(made, after=20.0)
    assert [deletion.name for deletion in writer.deletions] == ["v0"]
    assert {made.place_of(each) for each in gang_of(made).pods.values()} == {"gated"}
    writer.pending_deletions["v0"](None)
    made.scheduler.feed.pod_deleted(FULL[0])
    writer.pending_deletions["v1"](None)
    made.scheduler.feed.pod_deleted(FULL[1])
    await settle(made, after=20.0)
    assert set(made.bound) == {"train-0", "train-1"}
    assert (len(made.context.services.preemptions), gang_of(made).victims) == (0, ())


async def test_a_member_that_is_created_during_the_evictions() -> None:
    """A member that is created during the evictions waits with the others, and is scheduled with them."""
    made, writer = deferring_rig()
    made.add(small_node("a", 3), *FULL, running_pod("v2", "a"))
    await settle_gang(made, *members(2, priority=10), of=group())
    await settle(made, member("train-2", priority=11))
    while writer.pending_deletions:
        name, answer = writer.pending_deletions.popitem()
        answer(None)
        made.scheduler.feed.pod_deleted(running_pod(name, "a"))
    await settle(made, after=20.0)
    assert len(made.bound) == 2


async def test_the_gang_is_scheduled_while_a_new_member_is_held_back() -> None:
    """A member that was held back during an eviction is bound when the eviction is answered."""
    made, writer = deferring_rig()
    made.add(small_node("a", 4), running_pod("v0", "a", cpus=2))
    await settle_gang(made, *members(3, priority=10), of=group(min_member=3))
    made.add(member("late", priority=10))
    made.scheduler.feed.pod_deleted(running_pod("v0", "a", cpus=2))
    await settle(made, after=2.0)
    assert set(made.bound) == {"train-0", "train-1", "train-2"}
    writer.pending_deletions["v0"](None)
    await settle(made)
    assert "late" in made.bound


async def test_an_eviction_that_fails() -> None:
    """After a failed eviction the gang is retried at once, and preempts again."""
    made, writer = deferring_rig()
    await preempt(made)
    writer.pending_deletions.pop("v0")(ClusterWriteError("no answer"))
    await settle(made)
    assert [deletion.name for deletion in writer.deletions] == ["v0", "v0"]


async def test_no_further_victims_while_victims_terminate(cluster: Rig) -> None:
    """A gang that is retried while its victims terminate keeps its nominations and evicts no other pods."""
    await preempt(cluster)
    for each in FULL:
        cluster.scheduler.feed.pod_updated(each, terminating_pod(each, by_preemption=True))
    cluster.add(small_node("b", 1), running_pod("other", "b"))
    cluster.scheduler.group_feed.group_changed(group(generation=2))
    await settle(cluster, after=20.0)
    assert [deletion.name for deletion in cluster.writer.deletions] == ["v0", "v1"]
    gang, outcome = gang_of(cluster), present(gang_of(cluster).outcome)
    assert outcome.message.startswith("waiting for pods that were preempted to end; ")
    assert (outcome.reason, len(gang.victims)) == ("Preempting", 2)
    assert {cluster.queue.nominator.node_of(uid) for uid in gang.pods} == {"a"}
    assert present(gang.last_attempt) != gang.first_attempt


async def test_freed_capacity_goes_to_the_gang(cluster: Rig) -> None:
    """Pods of lower priority are rejected on the nominated nodes, and the members are bound there."""
    cluster.add(small_node("a"), small_node("b"), *FULL, *(running_pod(f"w{each}", "b", 5) for each in range(2)))
    await settle_gang(cluster, *members(2, priority=10), of=group())
    cluster.add(pod("late", priority=9, requests={"cpu": "1"}))
    for each in FULL:
        cluster.scheduler.feed.pod_deleted(each)
        await settle(cluster)
    await settle(cluster, after=20.0)
    assert cluster.bound == {"train-0": "a", "train-1": "a"}
    outcome = present(gang_of(cluster).outcome)
    assert (outcome.reason, gang_of(cluster).victims) == ("Scheduled", ())


async def test_lower_nominations_are_withdrawn(cluster: Rig) -> None:
    """The nomination of a pod of lower priority to a node of the gang is removed when the gang evicts other pods."""
    cluster.add(small_node("a"), *FULL)
    await settle(cluster, pod("lower", priority=5, requests={"cpu": "1"}))
    assert list(cluster.queue.nominator.nodes()) == ["a"]
    await settle_gang(cluster, *members(2, priority=10), of=group())
    assert cluster.queue.nominator.node_of("uid-of-default-lower") == ""


async def test_terminating_pods_that_free_enough_capacity(cluster: Rig) -> None:
    """No pod is evicted if terminating pods free enough capacity; the members are nominated to their nodes."""
    cluster.add(small_node("a"), *(terminating_pod(each) for each in FULL))
    await settle_gang(cluster, *members(2, priority=10), of=group())
    outcome = present(gang_of(cluster).outcome)
    assert outcome.message.startswith(
        "waiting for 2 pods that end already, after which all 2 members that must be placed together fit; "
    )
    assert (evicted(cluster), list(cluster.queue.nominator.nodes())) == (set(), ["a"])


async def test_a_victim_that_waits_at_permit() -> None:
    """A victim that waits at Permit is rejected instead of deleted."""
    Gate.stop_at("permit")
    multi_point = default_plugins().multi_point
    gated = Plugins(multi_point=PluginSet(enabled=(PluginEntry(name="Gate"), *multi_point.enabled)))
    made = with_pod_groups(rig([Gate], defaults=gated))
    made.add(small_node("a"), pod("low", requests={"cpu": "2"}))
    async with made.running():
        await made.until(lambda: len(made.context.waiting) == 1)
        add_gang(made, *members(2, priority=10), of=group())
        await made.until(lambda: made.context.queue.find("uid-of-default-low") is not None and bool(made.writer.events))
        await made.until(lambda: len(made.context.waiting) == 2)
        Gate.open(made.context.waiting)
        await made.until(lambda: len(made.bound) == 2)
    assert evicted(made) == set()
    assert [event.note for event in made.writer.events if event.reason == "Preempted"] == [
        "Preempted by podgroup uid-of-group-default-train (default/train) on node a (in kube-scheduler memory)."
    ]


async def test_capacity_in_a_domain_that_was_not_tried(cluster: Rig) -> None:
    """Capacity in another domain requeues a waiting gang, whatever rejected it in the nearest domain."""
    blocking = running_pod("other", "b", 50, cpus=2)
    cluster.add(
        small_node("a", zone="a"), small_node("b", zone="b"), running_pod("port", "a", 50, cpus=0, ports=[80]), blocking
    )
    pods = [member("train-0", priority=10, ports=[80]), member("train-1", priority=10)]
    await settle_gang(cluster, *pods, of=group(topology=GroupTopology("zone")))
    cluster.scheduler.feed.pod_deleted(blocking)
    await settle(cluster, after=20.0)
    assert set(cluster.bound.values()) == {"b"}


# -- eligibility -------------------------------------------------------------------------------------------------


@table(
    "make, reason",
    (
        "without DefaultPreemption",
        lambda: rig(defaults=default_plugins().model_copy(update={"post_filter": plugin_set(disabled=["*"])})),
        "the profile enables no plugin that preempts for gangs",
    ),
    (
        "with extenders that filter nodes",
        lambda: extender_rig((extender(), ScriptedExtender()), defaults=default_plugins()),
        "extenders of the profile filter nodes or preempt, and cannot take part in the choice of victims",
    ),
)
async def test_a_profile_that_does_not_preempt(make: Callable[[], Rig], reason: str) -> None:
    """No pod is evicted, and a dry run reports the reason."""
    made = with_pod_groups(make())
    await preempt(made)
    preview = previewed(made)
    assert (evicted(made), preview.plan, preview.reason) == (set(), None, reason)


@table(
    "cpu_milli, victims",
    ("beside-an-overcommitted-node", 2000, {"v0", "v1"}),
    ("capacity-freed-on-an-overcommitted-node", 2001, set()),
)
async def test_min_resources_and_an_overcommitted_node(cluster: Rig, cpu_milli: int, victims: set[str]) -> None:
    """A node's overcommitment is not subtracted from other nodes, and pods that terminate there free nothing."""
    cluster.add(small_node("a"), *FULL, small_node("b", 1), terminating_pod(running_pod("old", "b")))
    cluster.add(pod("big", node_name="b", requests={"cpu": "9"}, priority=20))
    await settle_gang(cluster, *members(2, priority=10), of=group(min_resources={"cpu": cpu_milli}))
    assert evicted(cluster) == victims


async def test_a_pod_evicts_a_whole_gang(cluster: Rig) -> None:
    """A single pod evicts all members of a gang that is disrupted as a whole."""
    cluster.scheduler.group_feed.group_changed(DISRUPTED_AS_GROUP)
    cluster.add(small_node("a", 1), small_node("b", 1), victim_member("g0", "a"), victim_member("g1", "b"))
    await settle(cluster, pod("high", priority=10, requests={"cpu": "1"}))
    assert evicted(cluster) == {"g0", "g1"}
    notes = {event.note for event in cluster.writer.events if event.reason == "Preempted"}
    assert notes == {f"Preempted by pod uid-of-default-high on node {name}" for name in "ab"}


async def test_a_pod_prefers_one_victim_to_a_whole_gang(cluster: Rig) -> None:
    """Members on other nodes count as victims of the candidate node."""
    cluster.scheduler.group_feed.group_changed(DISRUPTED_AS_GROUP)
    cluster.add(small_node("a", 1), small_node("b", 1), small_node("c", 1))
    cluster.add(victim_member("g0", "a"), victim_member("g1", "b"), running_pod("alone", "c"))
    await settle(cluster, pod("high", priority=10, requests={"cpu": "1"}))
    assert evicted(cluster) == {"alone"}


PORT = 80


async def test_a_gang_preempts_on_a_node_whose_port_becomes_free() -> None:
    """A gang does not preempt on a node where a pod of higher priority uses the same port as the victim.

    kube-scheduler's dry run regards that port as free. With one candidate, such a node would hide the one that helps.
    """
    args = {"minCandidateNodesAbsolute": 1, "minCandidateNodesPercentage": 0}
    config = profile().model_copy(update={"plugin_config": (PluginConfig(name="DefaultPreemption", args=args),)})
    made = gang_rig(serve=False)
    made.serve(config)
    made.add(small_node("helps"), running_pod("victim", "helps", ports=[PORT]))
    for number in range(20):
        name = f"shared-{number}"
        made.add(small_node(name), running_pod(f"low-{number}", name, ports=[PORT]))
        made.add(running_pod(f"high-{number}", name, 50, ports=[PORT]))
    await settle_gang(made, *members(1, priority=10, ports=[PORT]), of=group(min_member=1))
    assert evicted(made) == {"victim"}


def test_a_node_that_is_added_again_has_its_pods() -> None:
    """A pod that is bound to a deleted node uses its host port there when the node is added again."""
    made = default_rig(node("other"), pod("bound", node_name="back", ports=[PORT]))
    wants = pod(ports=[PORT], affinity=node_affinity(named("back")))
    made.add(wants)
    (instance,) = made.context.profiles
    found = made.scheduler.cycles.examiner.examine(instance, made.columns.compile_pod(wants))
    misses = near_misses(made.columns, instance, found, 3)
    unblocking = Explainers(made.context, made.scheduler.cycles, made.scheduler.reservations).unblocking
    added = [each for each in unblocking.find(instance, found, misses) if each.event == NODE_ADD.name]
    assert [each.fits_on for each in added] == [None]


async def test_an_empty_node_has_room_for_one_member_with_a_host_port() -> None:
    """Capacity is reserved in the zone with one node for each member, not in zones with one large node."""
    traffic = Traffic()
    for zone in "abcde":
        traffic.nodes({zone: 8}, labels={"zone": zone})
    for name in ("x", "y"):
        traffic.nodes({name: 2}, labels={"zone": "last"})
        traffic.add_running(name, 2)
    traffic.gang("big", 2, 2, topology=GroupTopology("zone"), member={"ports": [PORT]})
    assert (await traffic.reserve("big")).reservation == "zone=last"
