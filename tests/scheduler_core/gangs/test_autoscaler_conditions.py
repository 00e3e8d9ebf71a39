"""Conditions of waiting pods that autoscalers read: Unschedulable if new nodes could help, another reason otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.gangs.gated_member_reports import LOOK_SECONDS, REPORT_AFTER_SECONDS
from scheduler_core.model.affinity import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.pod import ClaimVolumeSource, Pod, Volume
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from tests.support.builders import node, pod
from tests.support.gangs import group, member, members, settle
from tests.support.queue_world import NameGate
from tests.support.scheduling import BARE, Rig, default_rig, plugin_set, rig
from tests.support.tables import table

DATA = Volume(claim=ClaimVolumeSource("data"))
NO_QUORUM = "waiting for minCount pods from a gang to appear in scheduling queue"


def written(made: Rig) -> dict[str, tuple[str, str]]:
    """Return reason and message of the last condition PodScheduled of each pod."""
    patches = [(patch.name, patch.condition) for patch in made.writer.patches]
    return {name: (each.reason, each.message) for name, each in patches if each is not None}


def reasons(made: Rig) -> dict[str, str]:
    return {name: reason for name, (reason, _) in written(made).items()}


def look(made: Rig, times: int = 2) -> None:
    """Advance the clock until gangs without a quorum have been checked, and what is reported then."""
    for _ in range(times):
        made.clock.advance(LOOK_SECONDS)
    made.clock.advance(REPORT_AFTER_SECONDS)


@pytest.fixture
def cluster(cluster: Rig) -> Rig:
    cluster.add(node("a", allocatable={"cpu": "2", "pods": "10"}))
    return cluster


async def test_a_gang_without_a_quorum(cluster: Rig) -> None:
    """Its members are reported once, by a condition with a reason that autoscalers ignore and an event."""
    cluster.scheduler.group_feed.group_changed(group(min_member=3))
    cluster.add(*members(2))
    await settle(cluster)
    assert written(cluster) == {}
    look(cluster)
    assert written(cluster) == {f"train-{number}": ("SchedulingGated", NO_QUORUM) for number in range(2)}
    count = len(cluster.writer.patches)
    look(cluster, 10)
    assert len(cluster.writer.patches) == count
    events = [(event.regarding.name, event.reason, event.note) for event in cluster.writer.events]
    assert events == [(f"train-{number}", "FailedScheduling", NO_QUORUM) for number in range(2)]


async def test_a_growing_gang_is_not_reported(cluster: Rig) -> None:
    """No condition is written while members arrive, for about a minute."""
    cluster.scheduler.group_feed.group_changed(group(min_member=100))
    for number in range(6):
        cluster.add(member(f"train-{number}"))
        cluster.clock.advance(LOOK_SECONDS)
    assert written(cluster) == {}
    for number in range(6, 9):
        cluster.add(member(f"train-{number}"))
        cluster.clock.advance(LOOK_SECONDS)
    assert written(cluster)


async def test_a_member_that_joins_later(cluster: Rig) -> None:
    """A member that joins a reported gang is reported, too; the quorum ends all reports."""
    cluster.scheduler.group_feed.group_changed(group(min_member=3))
    cluster.add(member("train-0"))
    look(cluster)
    cluster.add(member("train-1"))
    look(cluster)
    assert reasons(cluster) == dict.fromkeys(("train-0", "train-1"), "SchedulingGated")
    cluster.add(member("train-2"))
    await settle(cluster)
    # There is room for two: a node helps all members.
    assert reasons(cluster) == dict.fromkeys(("train-0", "train-1", "train-2"), "Unschedulable")
    look(cluster, 5)
    assert set(reasons(cluster).values()) == {"Unschedulable"}


async def test_a_gated_sibling() -> None:
    """Members of a native group that wait for a gated one are reported with its name."""
    made = default_rig(groups=[GroupSource.NATIVE])
    key = GroupKey(GroupSource.NATIVE, "default", "train")
    made.scheduler.group_feed.group_changed(PodGroup(key, "uid-of-train", 2, waits_for_gated=True))
    made.add(node("a"), *(pod(f"p{number}", group="train") for number in range(2)))
    made.add(pod("gated", group="train", gates=["example.com/later"]))
    look(made)
    why = "no member is scheduled while others are gated: gated"
    assert written(made) == dict.fromkeys(("p0", "p1"), ("SchedulingGated", why))


async def test_the_gate_of_a_plugin() -> None:
    """A pod that a PreEnqueue plugin gates is reported; one that was unschedulable only if the gate lasts."""
    NameGate.closed = {"first"}
    made = rig([NameGate], defaults=Plugins(multi_point=plugin_set("NameGate", "NodeResourcesFit", *BARE)))
    first, later = pod("first"), pod("later", requests={"cpu": "9"})
    made.add(node("a"), first, later)
    made.clock.advance(REPORT_AFTER_SECONDS)
    assert reasons(made) == {"first": "SchedulingGated"}
    made.decide()
    assert reasons(made)["later"] == "Unschedulable"
    NameGate.closed = {"first", "later"}
    made.queue.activate([later.metadata.uid])
    made.clock.advance(LOOK_SECONDS)
    assert reasons(made)["later"] == "Unschedulable"
    look(made, 3)
    assert reasons(made)["later"] == "SchedulingGated"
    NameGate.closed = set()
    made.queue.close()


async def test_a_gate_that_opens_in_time() -> None:
    """Nothing is written for a pod whose gate opens before the report."""
    NameGate.closed = {"first"}
    made = rig([NameGate])
    first = pod("first")
    made.add(node("a"), first)
    NameGate.closed = set()
    made.queue.activate([first.metadata.uid])
    look(made)
    assert reasons(made) == {}
    made.queue.close()


MISSING_CLAIM = 'train-0: persistentvolumeclaim "data" not found'


@table("min_member, reason", ("in the quorum", 3, "NoNodeHelps"), ("beyond the quorum", 2, "Unschedulable"))
async def test_a_missing_volume_claim(cluster: Rig, min_member: int, reason: str) -> None:
    """If the quorum needs a member without its claim, no member is Unschedulable, also if others lack room first."""
    cluster.scheduler.group_feed.group_changed(group(min_member=min_member))
    last = member("train-0", volumes=[DATA], priority=-1)
    cluster.add(*(member(f"train-{number}", requests={"cpu": "2"}) for number in (1, 2)), last)
    await settle(cluster)
    assert set(reasons(cluster).values()) == {reason}
    is_named = all(f"new nodes do not help: default/{MISSING_CLAIM}" in text for _, text in written(cluster).values())
    assert is_named is (reason == "NoNodeHelps")


async def test_a_claim_that_comes(cluster: Rig) -> None:
    """A plain pod without its claim is reported as by kube-scheduler."""
    cluster.add(pod("plain", volumes=[DATA]))
    await settle(cluster)
    assert reasons(cluster) == {"plain": "Unschedulable"}


def _pinned(key: str, *values: str) -> Affinity:
    term = NodeSelectorTerm(match_expressions=(Requirement(key, "In", values),))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector((term,))))


@table(
    "fields, reason",
    ("selector", {"node_selector": {"kubernetes.io/hostname": "a"}}, "NoNodeHelps"),
    ("affinity", {"affinity": _pinned("kubernetes.io/hostname", "a", "b")}, "NoNodeHelps"),
    ("a zone", {"affinity": _pinned("zone", "a")}, "Unschedulable"),
    ("any node", {}, "Unschedulable"),
)
async def test_members_of_certain_nodes(cluster: Rig, fields: dict[str, object], reason: str) -> None:
    """Members that may only use nodes of certain names are not Unschedulable; nodes of a zone can be added."""
    cluster.scheduler.group_feed.group_changed(group(min_member=3))
    made = [member(f"train-{number}", **fields) for number in range(3)]  # type: ignore[arg-type] # fields of a pod
    cluster.add(*made)
    await settle(cluster)
    assert set(reasons(cluster).values()) == {reason}


HOSTNAME = "kubernetes.io/hostname"
ON_B = {"node_selector": {HOSTNAME: "b"}}
IN_ZONE = GroupTopology("zone")


@table(
    "topology, running, members_on_b, reason",
    ("room if others use new nodes", None, 0, 1, "Unschedulable"),
    ("room for one of two", None, 1, 2, "NoNodeHelps"),
    ("full node", None, 2, 1, "NoNodeHelps"),
    ("one zone, room if others use new nodes", IN_ZONE, 0, 1, "Unschedulable"),
    ("one zone, room for one of two", IN_ZONE, 1, 2, "NoNodeHelps"),
    ("one zone, full node", IN_ZONE, 2, 1, "NoNodeHelps"),
    ("preferred zone, full node", GroupTopology("zone", is_required=False), 2, 1, "NoNodeHelps"),
    ("one zone, no such member", IN_ZONE, 2, 0, "Unschedulable"),
)
async def test_members_of_a_full_node(
    cluster: Rig, topology: GroupTopology | None, running: int, members_on_b: int, reason: str
) -> None:
    """New nodes help if the members that name a node have room there when the others use new nodes."""
    b = node("b", allocatable={"cpu": "2", "pods": "10"}, labels={HOSTNAME: "b", "zone": "z"})
    cluster.add(b, *(pod(f"old-{number}", node_name="b", requests={"cpu": "1"}) for number in range(running)))
    cluster.scheduler.group_feed.group_changed(group(min_member=5, topology=topology))
    cluster.add(*(member(f"train-{number}", **(ON_B if number >= 5 - members_on_b else {})) for number in range(5)))  # type: ignore[arg-type] # fields of a pod
    await settle(cluster)
    assert set(reasons(cluster).values()) == {reason}


async def test_members_of_several_classes_on_one_node(cluster: Rig) -> None:
    """Members that have room on their node one by one, and not together, are not helped by new nodes."""
    cluster.add(node("b", allocatable={"cpu": "2", "pods": "10"}, labels={HOSTNAME: "b"}))
    cluster.scheduler.group_feed.group_changed(group(min_member=3))
    requests = ({"cpu": "1"}, {"cpu": "1"}, {"cpu": "1", "memory": "1Gi"})
    cluster.add(
        *(member(f"train-{at}", requests=each, node_selector={HOSTNAME: "b"}) for at, each in enumerate(requests))
    )
    await settle(cluster)
    assert set(reasons(cluster).values()) == {"NoNodeHelps"}


@table("key, reason", ("one node", "kubernetes.io/hostname", "NoNodeHelps"), ("a zone", "zone", "Unschedulable"))
async def test_the_domain_of_scheduled_members(cluster: Rig, key: str, reason: str) -> None:
    """New nodes cannot join a domain of one node; those of a zone can."""
    cluster.add(node("b", allocatable={"cpu": "3", "pods": "10"}, labels={"kubernetes.io/hostname": "b", "zone": "z"}))
    cluster.scheduler.group_feed.group_changed(group(min_member=4, topology=GroupTopology(key)))
    running: Sequence[Pod] = [member(f"old-{number}", node_name="b") for number in range(2)]
    cluster.add(*running, *members(2))
    await settle(cluster)
    assert set(reasons(cluster).values()) == {reason}


async def test_members_of_another_scheduler(cluster: Rig) -> None:
    """A gang whose quorum would need pods of another scheduler is not helped by nodes."""
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(member("train-0"), member("train-1", scheduler_name="other"))
    await settle(cluster)
    look(cluster)
    assert set(reasons(cluster).values()) <= {"NoNodeHelps", "SchedulingGated"}
    assert "train-0" in reasons(cluster)
