"""Dry runs of a group cycle: results as in the next cycle, and no change afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest

from scheduler_core.explain.gang_dry_run import ExaminedPlace, GangExamination
from scheduler_core.explain_assembly import Explainers
from scheduler_core.framework.extension_points import NodeFilterPlugin
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.gangs.placement_search import GroupCycle
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import GroupTopology
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node
from tests.support.cluster_state import cluster_state
from tests.support.gang_preemption import add_gang, running_pod, small_node, with_pod_groups
from tests.support.gangs import gang_of, group, members, settle
from tests.support.scheduling import Rig, plugin_set, profile, rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_rig

ZONE, WISH = GroupTopology("zone"), GroupTopology("zone", is_required=False)


@pytest.fixture
def cluster() -> Rig:
    """A scheduler for gangs, without nodes."""
    return with_pod_groups(rig(defaults=default_plugins()))


def examined(made: Rig, name: str = "train", limit: int = 5) -> GangExamination:
    """Dry-run a gang twice; only a free row of a hypothetical node may remain."""
    gang = gang_of(made, name)
    instance = made.context.profiles.get("default-scheduler")
    assert gang.entry is not None
    assert instance is not None
    cycle = GroupCycle(gang.entry, gang, instance)
    examiner = Explainers(made.context, made.scheduler.cycles, made.scheduler.reservations).gangs
    found = examiner.examine(cycle, limit)
    before = cluster_state(made.context)
    again = examiner.examine(cycle, limit)
    assert (again.chosen, reached(again.places)) == (found.chosen, reached(found.places))
    assert cluster_state(made.context) == before
    return found


def reached(places: Iterable[ExaminedPlace]) -> dict[str, int]:
    """Return the number of feasible members by domain."""
    return {place.name: len(place.nodes) for place in places}


def test_a_gang_that_fits(cluster: Rig) -> None:
    """The result contains the node of each member."""
    cluster.add(small_node("a"), small_node("b"))
    add_gang(cluster, *members(4), of=group(min_member=4))
    found = examined(cluster)
    assert found.chosen is not None
    assert sorted(found.chosen.nodes.values()) == ["a", "a", "b", "b"]
    assert (found.needed, found.waiting, found.places, found.preemption) == (4, 4, (), None)


def test_what_the_next_member_lacks(cluster: Rig) -> None:
    """It is filtered with the others assumed, and the deletion of its companions is not proposed."""
    cluster.add(small_node("a", 3), running_pod("v", "a"))
    add_gang(cluster, *members(3), of=group(min_member=3))
    found = examined(cluster)
    assert found.chosen is None
    (place,) = found.places
    assert (len(place.nodes), place.needed) == (2, 3)
    following = place.next_member
    assert following is not None
    assert (following.pod.key, following.message) == ("default/train-2", "0/1 nodes are available: 1 Insufficient cpu.")
    ((shortage,),) = [[each for lack in miss.lacks for each in lack.shortages] for miss in following.nearest]
    assert (shortage.resource, shortage.needed, shortage.free) == ("cpu", 1000, 0)
    whats = [event.what for event in following.unblocking]
    assert "pod default/v deleted from node a" in whats
    assert not any("train" in what for what in whats)


def test_domains_the_nearest_first(cluster: Rig) -> None:
    """Includes domains that a cycle does not try because of too little room; not more than requested."""
    cluster.add(small_node("a", 2, zone="a"), small_node("b", 1, zone="b"), small_node("c", 3, zone="c"))
    add_gang(cluster, *members(4), of=group(min_member=4, topology=ZONE))
    found = examined(cluster)
    assert reached(found.places) == {"zone=c": 3, "zone=a": 2, "zone=b": 1}
    assert [place.name for place in found.places] == ["zone=c", "zone=a", "zone=b"]
    assert [place.name for place in examined(cluster, limit=1).places] == ["zone=c"]


def test_what_helps_must_help_in_the_domain(cluster: Rig) -> None:
    """Room in other domains does not help, and an added node must be in the domain."""
    cluster.add(
        small_node("c", 3, zone="c"),
        small_node("a", 2, zone="a"),
        running_pod("v", "c"),
        running_pod("w", "a"),
        small_node("d", 2),
    )
    add_gang(cluster, *members(3), of=group(min_member=3, topology=ZONE))
    place = examined(cluster).places[0]
    assert place.name == "zone=c"
    following = place.next_member
    assert following is not None
    assert [miss.node_name for miss in following.nearest] == ["c"]
    events = {event.what: event.fits_on for event in following.unblocking}
    assert events["pod default/v deleted from node c"] == "c"
    assert "pod default/w deleted from node a" not in events
    assert any(what.endswith(", in zone=c") for what in events)


def test_a_wish_that_cannot_be_fulfilled(cluster: Rig) -> None:
    """The gang fits over several domains, and the result has the feasible members for each."""
    cluster.add(small_node("a", 2, zone="a"), small_node("b", 1, zone="b"))
    add_gang(cluster, *members(3), of=group(min_member=3, topology=WISH))
    found = examined(cluster)
    assert found.chosen is not None
    assert found.chosen.name == ""
    assert reached(found.places) == {"zone=a": 2}


def test_min_resources_that_are_not_free(cluster: Rig) -> None:
    """No domain is tried then, as in a cycle."""
    cluster.add(small_node("a", 2))
    add_gang(cluster, *members(2), of=group(min_member=2, min_resources={"cpu": 5000}))
    found = examined(cluster)
    assert found.refusal == "the group's minResources are not free in the cluster: cpu 5000m of which 2000m are free"
    assert (found.places, found.tried) == ((), 0)


def test_the_victims(cluster: Rig) -> None:
    """The result has the plan for the whole quorum; no pod is evicted."""
    cluster.add(small_node("a"), running_pod("v0", "a"), running_pod("v1", "a"))
    add_gang(cluster, *members(2, priority=10), of=group(min_member=2))
    found = examined(cluster)
    assert found.preemption is not None
    assert found.preemption.plan is not None
    assert {victim.key for victim in found.preemption.plan.victims} == {"default/v0", "default/v1"}
    assert cluster.writer.deletions == []


async def test_what_is_kept_for_another(cluster: Rig) -> None:
    """The result lists the nodes that are reserved for another gang."""
    cluster.add(small_node("a", 2), running_pod("v", "a"))
    add_gang(cluster, *members(2, "big"), of=group("big", 2, is_strict=True))
    async with cluster.running():
        await cluster.scheduler.until_idle()
        cluster.clock.advance(61.0)
        await cluster.scheduler.until_idle()
    assert gang_of(cluster, "big").reservation == "a"
    add_gang(cluster, *members(1, "late"), of=group("late", 1))
    found = examined(cluster, "late")
    assert [(str(kept.key), kept.node_names) for kept in found.reserved_for_others] == [("default/big", ("a",))]
    assert found.chosen is None
    following = found.places[0].next_member
    assert following is not None
    assert [lack.reasons for lack in following.nearest[0].lacks] == [("node(s) were reserved for gang default/big",)]


def test_extenders_are_not_asked() -> None:
    """A dry run does not await, so extenders are skipped."""
    client = ScriptedExtender()
    made = with_pod_groups(extender_rig((extender(), client), defaults=default_plugins()))
    made.add(small_node("a"))
    add_gang(made, *members(2), of=group(min_member=2))
    assert examined(made).chosen is not None
    assert client.calls == []


def test_a_percentage_of_nodes(cluster: Rig) -> None:
    """The start of the next partial search does not move."""
    cluster.serve(profile(plugins=default_plugins(), percentage=1))
    cluster.add(*(small_node(f"n{number}") for number in range(300)))
    add_gang(cluster, *members(4), of=group(min_member=4))
    assert examined(cluster).chosen is not None
    assert cluster.context.node_order.next_start == 0


class Faulty(NodeFilterPlugin):
    """Raises on the second member."""

    name = "Faulty"

    def filter_node(self, state: object, pod: PodInfo, node: object) -> Status:
        if pod.key.endswith("-1"):
            raise RuntimeError("out of luck")
        return SUCCESS


def test_an_error_of_a_plugin_is_reported() -> None:
    """It ends the dry run as it would end the attempt, and no member stays assumed."""
    plugins = default_plugins()
    made = with_pod_groups(rig((Faulty,), defaults=plugins, serve=False))
    made.serve(profile(plugins=plugins.model_copy(update={"filter": plugin_set("Faulty")})))
    made.add(small_node("a"))
    add_gang(made, *members(2), of=group(min_member=2))
    found = examined(made)
    assert (found.chosen, found.preemption) == (None, None)
    assert found.error.startswith('default/train-1: running "Faulty" filter plugin')


def drawn(seed: int) -> tuple[list[Node], list[Mapping[str, str]], int, GroupTopology | None]:
    """Draw a small cluster and a gang."""
    dice = random.Random(seed)
    nodes = [
        node(
            f"n{number}",
            labels={"zone": dice.choice("abc")},
            allocatable={"cpu": str(dice.randint(1, 4)), "memory": f"{dice.randint(1, 4)}Gi", "pods": "9"},
        )
        for number in range(dice.randint(1, 7))
    ]
    requests: list[Mapping[str, str]] = [
        {"cpu": str(dice.randint(1, 2)), "memory": f"{dice.randint(1, 2)}Gi"} for _ in range(dice.randint(1, 7))
    ]
    return nodes, requests, dice.randint(1, len(requests)), dice.choice([None, ZONE, WISH])


@pytest.mark.parametrize("seed", range(40))
async def test_it_is_what_the_cycle_does(cluster: Rig, seed: int) -> None:
    """Feasibility, nodes of the members, and the number of feasible members equal those of the cycle."""
    nodes, requests, needed, topology = drawn(seed)
    cluster.add(*nodes)
    pods = [members(len(requests), requests=wanted)[number] for number, wanted in enumerate(requests)]
    add_gang(cluster, *pods, of=group(min_member=needed, topology=topology))
    found = examined(cluster)
    await settle(cluster)
    outcome = gang_of(cluster).outcome
    assert outcome is not None
    if found.chosen is None:
        assert outcome.reason == "Unschedulable"
        assert outcome.fitting == max((len(place.nodes) for place in found.places if place.is_tried), default=0)
    else:
        assert (outcome.reason, outcome.domain) == ("Scheduled", found.chosen.name)
        # Members that the group cycle did not place are scheduled one by one after it.
        bound = {f"default/{name}": where for name, where in cluster.bound.items()}
        assert found.chosen.nodes.items() <= bound.items()
