"""Dry runs of a group scheduling cycle, which return the result of the next cycle and change nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest

from scheduler_core.dry_run_assembly import Explainers
from scheduler_core.explain.findings import PlaceFit
from scheduler_core.explain.gang_dry_run import GangExamination
from scheduler_core.framework.extension_points import NodeFilterPlugin
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import GroupTopology
from scheduler_core.placement.requests import PlacementRequest
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node
from tests.support.cluster_state import cluster_state
from tests.support.gang_preemption import add_gang, reserve_for_gang, running_pod, small_node, with_pod_groups
from tests.support.gangs import gang_of, group, members, settle
from tests.support.presence import present
from tests.support.scheduling import Rig, gang_rig, plugin_set, profile, rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_rig

ZONE, PREFERRED_ZONE = GroupTopology("zone"), GroupTopology("zone", is_required=False)


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler for gangs, without nodes."""
    return gang_rig()


def dry_run(made: Rig, name: str = "train", limit: int = 5) -> GangExamination:
    """Dry-run a gang twice, and assert that the second run changes nothing."""
    gang = gang_of(made, name)
    request = PlacementRequest.of(gang, present(made.context.profiles.get("default-scheduler")))
    examiner = Explainers(made.context, made.scheduler.cycles, made.scheduler.reservations).gangs
    found = examiner.examine(request, gang, limit)
    before = cluster_state(made.context)
    again = examiner.examine(request, gang, limit)
    assert (again.placement, feasible_members(again.places)) == (found.placement, feasible_members(found.places))
    assert cluster_state(made.context) == before
    return found


def feasible_members(places: Iterable[PlaceFit]) -> dict[str, int]:
    """Return the number of feasible members by domain."""
    return {place.domain or "": place.fitting for place in places}


def test_a_gang_that_fits(cluster: Rig) -> None:
    """The dry run of a feasible gang has the node of each member."""
    cluster.add(small_node("a"), small_node("b"))
    add_gang(cluster, *members(4), of=group(min_member=4))
    found = dry_run(cluster)
    assert sorted(present(found.placement).values()) == ["a", "a", "b", "b"]
    assert (found.needed, found.places, found.preemption) == (4, (), None)


def test_what_the_next_member_lacks(cluster: Rig) -> None:
    """The next member is filtered with the others assumed, and the deletion of other members is not proposed."""
    cluster.add(small_node("a", 3), running_pod("v", "a"))
    add_gang(cluster, *members(3), of=group(min_member=3))
    found = dry_run(cluster)
    assert found.placement is None
    (place,) = found.places
    assert (place.fitting, place.needed) == (2, 3)
    next_member = present(place.next_member)
    assert (next_member.name, next_member.message) == (
        "default/train-2",
        "0/1 nodes are available: 1 Insufficient cpu.",
    )
    ((shortage,),) = [[each for lack in miss.lacks for each in lack.amounts] for miss in next_member.nearest]
    assert (shortage.resource, shortage.needed, shortage.free) == ("cpu", 1000, 0)
    whats = [event.what for event in next_member.unblocking]
    assert "pod default/v deleted from node a" in whats
    assert not any("train" in what for what in whats)


def test_the_nearest_domains_are_first(cluster: Rig) -> None:
    """Domains are ordered by feasible members, include those that a cycle skips, and are limited in number."""
    cluster.add(small_node("a", 2, zone="a"), small_node("b", 1, zone="b"), small_node("c", 3, zone="c"))
    add_gang(cluster, *members(4), of=group(min_member=4, topology=ZONE))
    found = dry_run(cluster)
    assert feasible_members(found.places) == {"zone=c": 3, "zone=a": 2, "zone=b": 1}
    assert [place.domain for place in found.places] == ["zone=c", "zone=a", "zone=b"]
    assert [place.domain for place in dry_run(cluster, limit=1).places] == ["zone=c"]


def test_unblocking_events_are_limited_to_the_domain(cluster: Rig) -> None:
    """Unblocking events concern the domain only, and an added node must be in it."""
    cluster.add(
        small_node("c", 3, zone="c"),
        small_node("a", 2, zone="a"),
        running_pod("v", "c"),
        running_pod("w", "a"),
        small_node("d", 2),
    )
    add_gang(cluster, *members(3), of=group(min_member=3, topology=ZONE))
    place = dry_run(cluster).places[0]
    assert place.domain == "zone=c"
    next_member = present(place.next_member)
    assert [miss.node for miss in next_member.nearest] == ["c"]
    events = {event.what: event.fits_on for event in next_member.unblocking}
    assert events["pod default/v deleted from node c"] == "c"
    assert "pod default/w deleted from node a" not in events
    assert any(what.endswith(", in zone=c") for what in events)


def test_min_resources_that_are_not_free(cluster: Rig) -> None:
    """A group whose minResources are not free is rejected before any domain is evaluated."""
    cluster.add(small_node("a", 2))
    add_gang(cluster, *members(2), of=group(min_member=2, min_resources={"cpu": 5000}))
    found = dry_run(cluster)
    assert found.refusal == "the group's minResources are not free in the cluster: cpu 5 of which 2 are free"
    assert (found.places, found.tried) == ((), 0)


def test_the_victims(cluster: Rig) -> None:
    """The dry run has the victims for the whole quorum, and evicts no pod."""
    cluster.add(small_node("a"), running_pod("v0", "a"), running_pod("v1", "a"))
    add_gang(cluster, *members(2, priority=10), of=group(min_member=2))
    found = dry_run(cluster)
    assert {victim.key for victim in present(present(found.preemption).plan).victims} == {"default/v0", "default/v1"}
    assert cluster.writer.deletions == []


async def test_nodes_that_are_reserved_for_another_gang(cluster: Rig) -> None:
    """The dry run lists the nodes that are reserved for another gang."""
    await reserve_for_gang(cluster)
    assert gang_of(cluster, "big").reservation == "a"
    add_gang(cluster, *members(1, "late"), of=group("late", 1))
    found = dry_run(cluster, "late")
    assert [(other.gang, other.nodes) for other in found.reserved_for_others] == [("default/big", ("a",))]
    assert found.placement is None
    next_member = present(found.places[0].next_member)
    assert [lack.reasons for lack in next_member.nearest[0].lacks] == [("node(s) were reserved for gang default/big",)]


def test_extenders_are_not_called() -> None:
    """A dry run is synchronous, so it calls no extenders."""
    client = ScriptedExtender()
    made = with_pod_groups(extender_rig((extender(), client), defaults=default_plugins()))
    made.add(small_node("a"))
    add_gang(made, *members(2), of=group(min_member=2))
    assert dry_run(made).placement is not None
    assert client.calls == []


def test_a_percentage_of_nodes(cluster: Rig) -> None:
    """A dry run in a profile with partial search does not move the start of the next search."""
    cluster.serve(profile(plugins=default_plugins(), percentage=1))
    cluster.add(*(small_node(f"n{number}") for number in range(300)))
    add_gang(cluster, *members(4), of=group(min_member=4))
    assert dry_run(cluster).placement is not None
    assert cluster.context.node_order.next_start == 0


class Faulty(NodeFilterPlugin):
    """Filter plugin that raises for the second member."""

    name = "Faulty"

    def filter_node(self, state: object, pod: PodInfo, node: object) -> Status:
        if pod.key.endswith("-1"):
            raise RuntimeError("broken")
        return SUCCESS


def test_an_error_of_a_plugin_is_reported() -> None:
    """An error of a plugin ends the dry run as it ends an attempt, and no member stays assumed."""
    plugins = default_plugins()
    made = with_pod_groups(rig((Faulty,), defaults=plugins, serve=False))
    made.serve(profile(plugins=plugins.model_copy(update={"filter": plugin_set("Faulty")})))
    made.add(small_node("a"))
    add_gang(made, *members(2), of=group(min_member=2))
    found = dry_run(made)
    assert (found.placement, found.preemption) == (None, None)
    assert found.error.startswith('default/train-1: running "Faulty" filter plugin')


def random_gang(seed: int) -> tuple[list[Node], list[Mapping[str, str]], int, GroupTopology | None]:
    """Return random nodes, the requests of a gang's members, its quorum and its topology."""
    generator = random.Random(seed)
    nodes = [
        node(
            f"n{number}",
            labels={"zone": generator.choice("abc")},
            allocatable={"cpu": str(generator.randint(1, 4)), "memory": f"{generator.randint(1, 4)}Gi", "pods": "9"},
        )
        for number in range(generator.randint(1, 7))
    ]
    requests: list[Mapping[str, str]] = [
        {"cpu": str(generator.randint(1, 2)), "memory": f"{generator.randint(1, 2)}Gi"}
        for _ in range(generator.randint(1, 7))
    ]
    return nodes, requests, generator.randint(1, len(requests)), generator.choice([None, ZONE, PREFERRED_ZONE])


@pytest.mark.parametrize("seed", range(40))
async def test_the_dry_run_equals_the_cycle(cluster: Rig, seed: int) -> None:
    """Feasibility, the members' nodes and the number of feasible members equal the results of the cycle."""
    nodes, requests, needed, topology = random_gang(seed)
    cluster.add(*nodes)
    pods = [members(len(requests), requests=wanted)[number] for number, wanted in enumerate(requests)]
    add_gang(cluster, *pods, of=group(min_member=needed, topology=topology))
    found = dry_run(cluster)
    await settle(cluster)
    outcome = present(gang_of(cluster).outcome)
    if found.placement is None:
        assert outcome.reason == "Unschedulable"
        assert outcome.fitting == max((place.fitting for place in found.places if place.is_tried), default=0)
    else:
        assert (outcome.reason, outcome.domain) == ("Scheduled", found.domain)
        # Members that the group cycle did not place are scheduled one by one after it.
        bound = {f"default/{name}": node_name for name, node_name in cluster.bound.items()}
        assert found.placement.items() <= bound.items()
