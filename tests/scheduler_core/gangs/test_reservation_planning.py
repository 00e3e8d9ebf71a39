"""Reservation plans of gangs: the nodes with the fewest pods to wait for. Planning changes no state."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.node import Node, NodeSpec
from scheduler_core.model.pod_group import GroupTopology
from tests.support.builders import node
from tests.support.gang_traffic import PATIENCE, Traffic, full_traffic
from tests.support.gangs import group, member
from tests.support.presence import present
from tests.support.tables import table


@table(
    "count, topology, expected",
    ("two nodes", 2, None, "n1, n2"),
    ("five nodes", 5, None, "n1, n2, n3 and 2 more"),
    ("a domain", 3, GroupTopology("zone"), "zone=z"),
)
async def test_the_reservation_in_the_status(count: int, topology: GroupTopology | None, expected: str) -> None:
    """The status names the domain, or the first nodes and the number of others."""
    traffic = Traffic()
    for number in range(1, count + 1):
        traffic.nodes({f"n{number}": 2}, labels={"zone": "z"})
        traffic.add_running(f"n{number}", 2)
    traffic.gang("big", count, 2, topology=topology)
    assert (await traffic.reserve("big")).reservation == expected


@table(
    "pods, expected",
    ("fewest pods", {"a": [{"cpu": 1}] * 4, "b": [{"cpu": 4}]}, "b"),
    ("free capacity", {"a": [{"cpu": 2}], "b": [{"cpu": 4}]}, "a"),
    ("pods that run to completion", {"a": [{"cpu": 4, "restart_policy": "Always"}], "b": [{"cpu": 2}] * 2}, "b"),
    (
        "DaemonSet pods never end",
        {"a": [{"cpu": 4, "owners": [OwnerReference("DaemonSet", "d")]}], "b": [{"cpu": 1}] * 4},
        "b",
    ),
)
async def test_the_reserved_node(pods: dict[str, list[dict[str, Any]]], expected: str) -> None:
    """The nodes on which the fewest pods must end are reserved."""
    traffic = Traffic()
    for name, running in pods.items():
        traffic.nodes({name: 4})
        for fields in running:
            traffic.add_running(name, **fields)
    traffic.gang("big", 2, 2)
    gang = await traffic.reserve("big")
    assert gang.reservation == expected


NODE_A = node("a", allocatable={"cpu": "4", "pods": "20"}, labels={"zone": "a"})


@table(
    "newer, expected",
    ("cordoned", msgspec.structs.replace(NODE_A, spec=NodeSpec(unschedulable=True)), "b"),
    ("too small", node("a", allocatable={"cpu": "3", "pods": "20"}, labels={"zone": "a"}), "b"),
    ("relabelled", node("a", allocatable={"cpu": "4", "pods": "20"}, labels={"size": "s"}), "b"),
    ("deleted", None, "b"),
    ("irrelevant change", node("a", allocatable={"cpu": "4", "pods": "30"}, labels={"zone": "a"}), "a"),
)
async def test_a_plan_that_became_impossible(newer: Node | None, expected: str) -> None:
    """A plan is recomputed at once when it becomes infeasible, and only then."""
    traffic = Traffic()
    traffic.nodes({"a": 4}, labels={"zone": "a"})
    traffic.nodes({"b": 4}, labels={"zone": "b"})
    traffic.add_running("a", 4)
    traffic.add_running("b", 2)
    traffic.add_running("b", 2)
    traffic.gang("big", 2, 2, topology=GroupTopology("zone"))
    assert (await traffic.reserve("big")).reservation == "zone=a"
    if newer is None:
        traffic.rig.scheduler.feed.node_deleted(NODE_A)
    else:
        traffic.rig.scheduler.feed.node_updated(NODE_A, newer)
    await traffic.settle()
    assert traffic.gang_named("big").reservation == f"zone={expected}"


async def test_members_are_scheduled_as_planned() -> None:
    """Members that do not fit on their best nodes are scheduled on the planned nodes."""
    traffic = Traffic()
    traffic.nodes({"a": 6, "b": 6})
    traffic.add_running("a", 6, 100.0)
    traffic.add_running("b", 6, 100.0)
    traffic.rig.scheduler.group_feed.group_changed(group("big", min_member=5, is_strict=True))
    for number, cpu in enumerate((2, 2, 2, 3, 3)):
        traffic.add(member(f"big-{number}", "big", requests={"cpu": str(cpu)}))
    await traffic.reserve("big")
    await traffic.step(100.0)
    assert traffic.is_scheduled("big")


async def test_members_that_were_replaced() -> None:
    """A replacement member uses the slot of a deleted member of the same pod class."""
    traffic = await full_traffic()
    members = list(traffic.gang_named("big").pods.values())
    fresh = msgspec.structs.replace(
        members[0], metadata=msgspec.structs.replace(members[0].metadata, name="big-9", uid="fresh")
    )
    traffic.add(fresh)
    traffic.rig.scheduler.feed.pod_deleted(members[0])
    assert traffic.gang_named("big").reservation == "a, b"
    await traffic.step(200.0)
    assert traffic.is_scheduled("big")
    assert "big-9" in traffic.rig.bound


async def test_planning_does_not_change_the_columns() -> None:
    """Planning leaves requests, pod counts and pods of the columns unchanged."""
    traffic = Traffic()
    traffic.nodes({"a": 4, "b": 4})
    for name in ("a", "b"):
        for _ in range(3):
            traffic.add_running(name, 1)
    traffic.gang("big", 4, 2)
    await traffic.settle()
    columns = traffic.rig.columns
    before = (columns.requested.copy(), columns.pod_count.copy(), [list(pods) for pods in columns.pods])
    await traffic.step(PATIENCE)
    assert traffic.gang_named("big").reservation == "a, b"
    assert (columns.requested == before[0]).all()
    assert (columns.pod_count == before[1]).all()
    assert [list(pods) for pods in columns.pods] == before[2]
    assert traffic.gang_named("big").placed == set()


async def test_a_gang_that_never_fits() -> None:
    """No capacity is reserved for a gang that would not fit in an empty cluster."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    traffic.add_running("a", 4)
    traffic.gang("big", 3, 2)
    await traffic.settle()
    await traffic.step(PATIENCE)
    outcome = present(traffic.gang_named("big").outcome)
    assert "it would not fit even if all pods had ended" in outcome.message
    assert not traffic.rig.scheduler.reservations.by_gang
