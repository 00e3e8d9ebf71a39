"""Explanations while nodes are reserved for a gang: they are complete, and no later decision depends on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bayplan.explanation.building import explain_gang, explain_pod
from bayplan.explanation.documents import Verdict

from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.gangs.held_room import HeldPod, HeldRoom, Holder, OwnPods, Terms
from scheduler_core.model.pod import Pod
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.gang_traffic import PATIENCE, Traffic
from tests.support.gangs import add_groups, group, member
from tests.support.scheduling import gang_rig


async def reserved() -> tuple[Traffic, list[Pod], Pod]:
    """Return a cluster with nodes reserved for a gang of two, the gang, and a pod that is too large for every node."""
    traffic = Traffic()
    traffic.nodes({"a": 8, "b": 8, "c": 8})
    for name, cpu in (("a", 4), ("b", 4), ("c", 5)):
        traffic.add_running(name, cpu)
    too_large = traffic.add_pending(100)
    await traffic.settle()
    gang = traffic.gang("strict", 2, 7)
    await traffic.reserve("strict")
    return traffic, gang, too_large


def explain_gangs(traffic: Traffic, gang: list[Pod], too_large: Pod) -> None:
    del gang, too_large
    explain_gang(traffic.rig.scheduler, traffic.gang_named("strict"))


def explain_member(traffic: Traffic, gang: list[Pod], too_large: Pod) -> None:
    del too_large
    explain_pod(traffic.rig.scheduler, gang[0])


def explain_other(traffic: Traffic, gang: list[Pod], too_large: Pod) -> None:
    """Explain the pod that is too large."""
    del gang
    explain_pod(traffic.rig.scheduler, too_large)


@pytest.mark.parametrize("explain", [explain_gangs, explain_member, explain_other])
async def test_the_end_of_a_reservation_activates_no_explained_pod(
    explain: Callable[[Traffic, list[Pod], Pod], None],
) -> None:
    """A pod that no reservation rejected in its attempt is not retried when one ends, although it was explained."""
    traffic, gang, too_large = await reserved()
    assert traffic.rig.place_of(too_large) == "unschedulable"
    explain(traffic, gang, too_large)
    traffic.rig.scheduler.group_feed.group_deleted(traffic.gang_named("strict").key)
    assert not traffic.rig.scheduler.reservations.by_gang
    assert traffic.rig.place_of(too_large) == "unschedulable"


async def test_a_member_of_a_gang_with_a_reservation() -> None:
    """A member is explained with the nodes that are reserved for its own gang."""
    traffic, gang, _ = await reserved()
    explanation = explain_pod(traffic.rig.scheduler, gang[0])
    assert explanation.verdict is Verdict.UNSCHEDULABLE
    assert explanation.gang is not None
    assert explanation.gang.reservation is not None
    assert all("reserved" not in reason.reason for entry in explanation.rejections for reason in entry.reasons)


async def test_a_feasible_member_of_a_gang_with_a_reservation() -> None:
    """A member that fits on a node reserved for its gang has that node, and the scores of the reserved nodes."""
    traffic, _, _ = await reserved()
    late = member("strict-late", "strict", requests={"cpu": "1"})
    traffic.rig.add(late)
    explanation = explain_pod(traffic.rig.scheduler, late)
    assert explanation.nodes.feasible == 3
    assert {score.node for score in explanation.scores} == {"a", "b", "c"}


def test_room_that_is_held_for_a_reservation() -> None:
    """A pod that it blocks is explained with the nodes, the NodeReservation and its end."""
    made = gang_rig(small_node("a"))
    nodes = made.context.cache.columns
    slots = [HeldPod(nodes.compile_pod(pod("held", requests={"cpu": "2"})), "", "a")]
    holder = Holder("NodeReservation", "ml", "train", "uid-of-train", OwnPods("ml", (("app", "train"),)))
    assert made.scheduler.reservations.hold(HeldRoom(holder, slots, nodes, Terms(until=made.clock.now() + 60)))
    other = pod("other", requests={"cpu": "1"})
    made.add(other)
    expected = "room on a is reserved for NodeReservation ml/train until 2026-01-01T00:01:00Z"
    assert expected in explain_pod(made.scheduler, other).notices


async def test_proposed_nodes_are_no_change_for_gangs() -> None:
    """Nodes that an explanation adds and removes again are no reason to plan a reservation again."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    traffic.add_running("a", 4)
    traffic.gang("strict", 2, 7)
    await traffic.settle()
    await traffic.step(PATIENCE + 1.0)
    gang, reservations = traffic.gang_named("strict"), traffic.rig.scheduler.reservations
    assert reservations.is_hopeless(gang)
    explanation = explain_pod(traffic.rig.scheduler, pod("other", requests={"cpu": "3"}))
    assert NODE_ADD.name in {event.event for event in explanation.unblocking}
    assert reservations.is_hopeless(gang)
    traffic.nodes({"b": 1})
    assert not reservations.is_hopeless(gang)


def test_room_that_is_held_for_a_lost_member() -> None:
    """A pod that it blocks is explained with the node, the lost member and the end of the hold."""
    made = gang_rig()
    add_groups(made, group(hold_seconds=60.0))
    made.add(*(small_node(name) for name in "ab"))
    first, second = (member(name, requests={"cpu": "2"}, node_name=node) for name, node in (("m-0", "a"), ("m-1", "b")))
    made.add(first, second)
    made.scheduler.feed.pod_deleted(first)
    other = pod("other", requests={"cpu": "1"})
    made.add(other)
    held = "room on a is held for default/m-0 until 2026-01-01T00:01:00Z"
    assert held in explain_pod(made.scheduler, other).notices
    replacement = member("m-0", requests={"cpu": "2"}, uid="uid-of-replacement")
    made.add(replacement)
    explanation = explain_pod(made.scheduler, replacement)
    assert explanation.node == "a"
    assert "room is held for the pod; no other node was evaluated" in explanation.notices
