"""Plans for a gang: the least work to wait for, and no change by planning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod_group import GroupTopology
from tests.support.builders import node
from tests.support.gang_traffic import PATIENCE, Traffic, full_traffic
from tests.support.gangs import group, member


@pytest.mark.parametrize(
    ("count", "topology", "expected"),
    [
        pytest.param(2, None, "n1, n2", id="two nodes"),
        pytest.param(5, None, "n1, n2, n3 and 2 more", id="five nodes"),
        pytest.param(3, GroupTopology("zone"), "zone=z", id="a domain"),
    ],
)
async def test_the_words(count: int, topology: GroupTopology | None, expected: str) -> None:
    """The status names the domain, or the first nodes and the number of others."""
    traffic = Traffic()
    for number in range(1, count + 1):
        traffic.nodes({f"n{number}": 2}, labels={"zone": "z"})
        traffic.runs(f"n{number}", 2)
    traffic.gang("big", count, 2, topology=topology)
    assert (await traffic.reserve("big")).reservation == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param({"a": [{"cpu": 1}] * 4, "b": [{"cpu": 4}]}, "b", id="fewest pods"),
        pytest.param({"a": [{"cpu": 2}], "b": [{"cpu": 4}]}, "a", id="room that is free already"),
        pytest.param(
            {"a": [{"cpu": 4, "restart_policy": "Always"}], "b": [{"cpu": 2}] * 2},
            "b",
            id="pods that end by themselves",
        ),
        pytest.param(
            {"a": [{"cpu": 4, "owners": [OwnerReference("DaemonSet", "d")]}], "b": [{"cpu": 1}] * 4},
            "b",
            id="pods of DaemonSets never end",
        ),
    ],
)
async def test_the_least_work_to_wait_for(pods: dict[str, list[dict[str, Any]]], expected: str) -> None:
    """Of the possible nodes those are reserved where the fewest pods must end."""
    traffic = Traffic()
    for name, running in pods.items():
        traffic.nodes({name: 4})
        for fields in running:
            traffic.runs(name, **fields)
    traffic.gang("big", 2, 2)
    gang = await traffic.reserve("big")
    assert gang.reservation == expected


def cordoned(traffic: Traffic) -> None:
    """The node is cordoned."""
    old = node("a", allocatable={"cpu": "4", "pods": "20"}, labels={"zone": "a"})
    new = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, unschedulable=True))
    traffic.rig.scheduler.feed.node_updated(old, new)


def shrunk(traffic: Traffic) -> None:
    """The node has less capacity than the gang needs."""
    old = node("a", allocatable={"cpu": "4", "pods": "20"}, labels={"zone": "a"})
    new = node("a", allocatable={"cpu": "3", "pods": "20"}, labels={"zone": "a"})
    traffic.rig.scheduler.feed.node_updated(old, new)


def relabelled(traffic: Traffic) -> None:
    """The node has another label."""
    old = node("a", allocatable={"cpu": "4", "pods": "20"}, labels={"zone": "a"})
    new = node("a", allocatable={"cpu": "4", "pods": "20"}, labels={"size": "s"})
    traffic.rig.scheduler.feed.node_updated(old, new)


def gone(traffic: Traffic) -> None:
    """The node does not exist."""
    traffic.rig.scheduler.feed.node_deleted(node("a"))


def grown(traffic: Traffic) -> None:
    """The node has more capacity."""
    old = node("a", allocatable={"cpu": "4", "pods": "20"}, labels={"zone": "a"})
    new = node("a", allocatable={"cpu": "4", "pods": "30"}, labels={"zone": "a"})
    traffic.rig.scheduler.feed.node_updated(old, new)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(cordoned, "b", id="cordoned"),
        pytest.param(shrunk, "b", id="shrunk"),
        pytest.param(relabelled, "b", id="relabelled"),
        pytest.param(gone, "b", id="gone"),
        pytest.param(grown, "a", id="what does not matter"),
    ],
)
async def test_a_plan_that_became_impossible(change: Callable[[Traffic], None], expected: str) -> None:
    """The plan is recomputed at once if it is infeasible, and kept otherwise."""
    traffic = Traffic()
    traffic.nodes({"a": 4}, labels={"zone": "a"})
    traffic.nodes({"b": 4}, labels={"zone": "b"})
    traffic.runs("a", 4)
    traffic.runs("b", 2)
    traffic.runs("b", 2)
    traffic.gang("big", 2, 2, topology=GroupTopology("zone"))
    assert (await traffic.reserve("big")).reservation == "zone=a"
    change(traffic)
    await traffic.settle()
    assert traffic.of("big").reservation == f"zone={expected}"


async def test_the_plan_is_carried_out() -> None:
    """Members that fit only as planned, not on their best nodes, are scheduled as planned."""
    traffic = Traffic()
    traffic.nodes({"a": 6, "b": 6})
    traffic.runs("a", 6, 100.0)
    traffic.runs("b", 6, 100.0)
    traffic.rig.scheduler.group_feed.group_changed(group("big", min_member=5, is_strict=True))
    for number, cpu in enumerate((2, 2, 2, 3, 3)):
        traffic.adopt(member(f"big-{number}", "big", requests={"cpu": str(cpu)}))
    await traffic.reserve("big")
    await traffic.step(100.0)
    assert traffic.is_placed("big")


async def test_members_that_were_replaced() -> None:
    """A new member uses the slot of a member of the same class."""
    traffic = await full_traffic()
    members = list(traffic.of("big").pods.values())
    fresh = msgspec.structs.replace(
        members[0], metadata=msgspec.structs.replace(members[0].metadata, name="big-9", uid="fresh")
    )
    traffic.adopt(fresh)
    traffic.rig.scheduler.feed.pod_deleted(members[0])
    assert traffic.of("big").reservation == "a, b"
    await traffic.step(200.0)
    assert traffic.is_placed("big")
    assert "big-9" in traffic.rig.bound


async def test_planning_leaves_no_trace() -> None:
    """The columns are as before."""
    traffic = Traffic()
    traffic.nodes({"a": 4, "b": 4})
    for name in ("a", "b"):
        for _ in range(3):
            traffic.runs(name, 1)
    traffic.gang("big", 4, 2)
    await traffic.settle()
    columns = traffic.rig.context.cache.columns
    before = (columns.requested.copy(), columns.pod_count.copy(), [list(pods) for pods in columns.pods])
    await traffic.step(PATIENCE)
    assert traffic.of("big").reservation == "a, b"
    assert (columns.requested == before[0]).all()
    assert (columns.pod_count == before[1]).all()
    assert [list(pods) for pods in columns.pods] == before[2]
    assert traffic.of("big").placed == set()


async def test_a_gang_that_never_fits() -> None:
    """No capacity is reserved for a gang that would not fit in an empty cluster."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    traffic.runs("a", 4)
    traffic.gang("big", 3, 2)
    await traffic.settle()
    await traffic.step(PATIENCE)
    outcome = traffic.of("big").outcome
    assert outcome is not None
    assert "it would not fit even if all pods had ended" in outcome.message
    assert not traffic.rig.scheduler.reservations
