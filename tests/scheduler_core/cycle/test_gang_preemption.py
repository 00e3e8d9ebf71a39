"""Gangs that make room: for the whole quorum, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Unpack

import msgspec
import pytest

from scheduler_core.config.plugins_config import Plugins
from scheduler_core.cycle.gang_preemption import preview_gang_preemption
from scheduler_core.errors import ClusterWriteError
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.disruption import PodDisruptionBudget
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.pod_group import GroupSource, GroupTopology, PodGroup
from scheduler_core.ports import ObjectReference
from scheduler_core.scheduler import Scheduler
from tests.support.builders import PodFields, node, pod
from tests.support.gangs import gang_of, group, key, member, members, settle
from tests.support.preemption import DeferringWriter, budget
from tests.support.scheduling import Rig, plugin_set, profile, rig
from tests.support.virtual_clock import VirtualClock

DELETED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def cluster() -> Rig:
    """A scheduler for gangs, without nodes."""
    return served(rig(defaults=default_plugins()))


def served(made: Rig) -> Rig:
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    return made


def deferring() -> tuple[Rig, DeferringWriter]:
    """A scheduler whose deletions are answered when the test says so."""
    clock, writer = VirtualClock(), DeferringWriter()
    made = Rig(Scheduler(clock, writer, None, None, default_plugins()), clock, writer)
    made.serve(profile())
    return served(made), writer


def small(name: str, cpus: int = 2, **labels: str) -> Node:
    """A node of so many CPUs."""
    return node(name, labels=labels, allocatable={"cpu": str(cpus), "pods": "99"})


def runs(name: str, node_name: str, priority: int = 0, cpus: int = 1, **fields: Unpack[PodFields]) -> Pod:
    """A pod that runs."""
    return pod(name, node_name=node_name, priority=priority, requests={"cpu": str(cpus)}, **fields)


def ending(each: Pod, *, by_preemption: bool = False) -> Pod:
    """The pod as it is being deleted."""
    conditions = (PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", ""),) if by_preemption else ()
    return msgspec.structs.replace(
        each,
        metadata=msgspec.structs.replace(each.metadata, deletion_timestamp=DELETED),
        status=msgspec.structs.replace(each.status, conditions=conditions),
    )


def evicted(made: Rig) -> set[str]:
    """Pods whose deletion was asked for."""
    return {deletion.name for deletion in made.writer.deletions}


def ask(made: Rig, *pods: Pod, of: PodGroup) -> None:
    """Let a gang come."""
    made.scheduler.group_feed.group_changed(of)
    made.add(*pods)


@dataclass(frozen=True)
class Case:
    """A cluster, a gang of members of one CPU and of priority 10, and who has to leave for it."""

    nodes: Iterable[Node]
    running: Iterable[Pod]
    gone: set[str]
    size: int = 2
    budgets: Iterable[PodDisruptionBudget] = ()
    groups: Iterable[PodGroup] = ()
    topology: GroupTopology | None = None
    member_fields: PodFields = field(default_factory=lambda: PodFields())
    priority: int | None = None


WHOLE = group("victim", min_member=1, disrupts_whole=True)
APART = group("victim", min_member=1)
ZONE, WISH = GroupTopology("zone"), GroupTopology("zone", is_required=False)


def of_gang(name: str, node_name: str, priority: int = 0) -> Pod:
    """A member of another gang that runs."""
    return member(name, "victim", node_name=node_name, priority=priority)


CASES = [
    pytest.param(
        Case([small("a")], [runs("v0", "a"), runs("v1", "a")], {"v0", "v1"}), id="all that is in the way leaves"
    ),
    pytest.param(
        Case([small("a")], [runs("v0", "a"), runs("v1", "a", 10)], set()), id="nobody leaves when not all would fit"
    ),
    pytest.param(Case([small("a")], [runs("v0", "a")], {"v0"}), id="what is free is used"),
    pytest.param(Case([small("a")], [runs("v0", "a", 10), runs("v1", "a", 10)], set()), id="equal priority stays"),
    pytest.param(
        Case([small("a", 3)], [runs("v0", "a", 9), runs("v1", "a", 1), runs("v2", "a", 2)], {"v1", "v2"}),
        id="the lowest on a node",
    ),
    pytest.param(
        Case(
            [small("a"), small("b"), small("c")],
            [runs("a0", "a", 5, 2), runs("b0", "b", 1, 2), runs("c0", "c", 3, 2)],
            {"b0"},
        ),
        id="the node of the lowest, once for both",
    ),
    pytest.param(
        Case([small("a", 1), small("b", 1), small("c", 1)], [runs(f"{n}0", n, p) for n, p in zip("abc", (5, 1, 3), strict=True)], {"b0", "c0"}),
        id="the nodes of the lowest",
    ),
    pytest.param(
        Case(
            [small("a", 1), small("b", 1), small("c", 1)],
            [runs("a0", "a", 5), runs("b0", "b", 1, labels={"app": "db"}), runs("c0", "c", 3)],
            {"a0", "c0"},
            budgets=[budget("db", {"app": "db"}, 0)],
        ),
        id="a budget is respected before priorities are",
    ),
    pytest.param(
        Case(
            [small("a", 1), small("b", 1), small("c", 1)],
            [runs("a0", "a", 1, labels={"app": "db"}), runs("b0", "b", 1, labels={"app": "db"}), runs("c0", "c", 3)],
            {"a0", "c0"},
            budgets=[budget("db", {"app": "db"}, 1)],
        ),
        id="a budget counts over all nodes",
    ),
    pytest.param(
        Case([small("a", 1), small("b", 1)], [runs(f"{n}0", n, labels={"app": "db"}) for n in "ab"], {"a0", "b0"}, budgets=[budget("db", {"app": "db"}, 0)]),
        id="a budget gives way where nothing else helps",
    ),
    pytest.param(
        Case(
            [small("a", 1), small("b", 1), small("c", 1), small("d", 1)],
            [of_gang("g0", "a"), of_gang("g1", "b"), of_gang("g2", "c"), runs("d0", "d", 1)],
            {"g0", "g1", "g2"},
            groups=[WHOLE],
        ),
        id="a gang that is disrupted as a whole leaves as a whole",
    ),
    pytest.param(
        Case(
            [small("a", 1), small("b", 1), small("c", 1)],
            [of_gang("g0", "a"), of_gang("g1", "b"), of_gang("g2", "c")],
            {"g0", "g1"},
            groups=[APART],
        ),
        id="another gang loses what is needed",
    ),
    pytest.param(
        Case(
            [small("a", 1), small("b", 1), small("c", 1), small("d", 1)],
            [of_gang("g0", "a"), of_gang("g1", "d", 10), runs("b0", "b", 9), runs("c0", "c", 9)],
            {"b0", "c0"},
            groups=[WHOLE],
        ),
        id="a whole gang with one member that is too important stays",
    ),
    pytest.param(
        Case(
            [small("a", 1), small("b", 1), small("c", 1)],
            [of_gang("g0", "a"), of_gang("g1", "b"), runs("c0", "c")],
            {"g0", "g1"},
            groups=[WHOLE],
        ),
        id="who leaves anyway makes room for the next member",
    ),
    pytest.param(
        Case(
            [small("x0", 1, zone="x"), small("x1", 1, zone="x"), small("y0", 1, zone="y"), small("y1", 1, zone="y")],
            [runs("a", "x0", 1), runs("b", "x1", 8), runs("c", "y0", 2), runs("d", "y1", 3)],
            {"c", "d"},
            topology=ZONE,
        ),
        id="the domain where the least harm is done",
    ),
    pytest.param(
        Case(
            [small("x0", 1, zone="x"), small("x1", 1, zone="x"), small("y0", 1, zone="y")],
            [runs("a", "x0", 1), runs("b", "x1", 10), runs("c", "y0", 2)],
            set(),
            topology=ZONE,
        ),
        id="required: no domain has room for all",
    ),
    pytest.param(
        Case(
            [small("x0", 1, zone="x"), small("x1", 1, zone="x"), small("y0", 1, zone="y")],
            [runs("a", "x0", 1), runs("b", "x1", 10), runs("c", "y0", 2)],
            {"a", "c"},
            topology=WISH,
        ),
        id="preferred: over several",
    ),
    pytest.param(
        Case(
            [small("a")],
            [runs("v0", "a"), runs("v1", "a")],
            set(),
            member_fields=PodFields(preemption_policy="Never"),
        ),
        id="a member that never preempts",
    ),
    pytest.param(
        Case([small("a")], [runs("v0", "a"), runs("v1", "a")], set(), priority=0), id="the group's own priority counts"
    ),
    pytest.param(
        Case([small("a")], [runs("v0", "a", 15), runs("v1", "a", 15)], {"v0", "v1"}, priority=20),
        id="a group above its members, which are none of its victims",
    ),
    pytest.param(
        Case([small("a")], [ending(runs("v0", "a")), runs("v1", "a")], {"v1"}), id="who ends anyway is not evicted"
    ),
    pytest.param(
        Case([small("a")], [runs("v0", "a", ports=[80]), runs("v1", "a", 1)], {"v0", "v1"}, member_fields=PodFields(ports=[80]), size=1) if False else Case([small("a", 2), small("b", 2)], [runs("v0", "a", ports=[80]), runs("v1", "b", ports=[80])], {"v0", "v1"}, member_fields=PodFields(ports=[80])),
        id="for the sake of ports",
    ),
    pytest.param(
        Case(
            [small("a", 3)],
            [runs("big", "a", 1, 2), runs("little", "a", 2, 1)],
            {"big"},
        ),
        id="the first member's victim makes room for the second",
    ),
    pytest.param(
        Case([small("a", 4)], [runs("v0", "a", 1, 1), runs("v1", "a", 2, 3)], {"v1"}, size=3),
        id="a victim comes back when a later one makes enough room",
    ),
]


def staged(made: Rig, case: Case) -> list[Pod]:
    """Put up the case; the gang's members, which have not come yet."""
    for each in case.groups:
        made.scheduler.group_feed.group_changed(each)
    made.add(*case.nodes, *case.running)
    for one in case.budgets:
        made.context.cache.columns.disruption_budgets.assign(one)
    return members(case.size, **PodFields(priority=10, **case.member_fields))


@pytest.mark.parametrize("case", CASES)
async def test_victims(cluster: Rig, case: Case) -> None:
    """Exactly those leave that must, for the whole quorum or not at all."""
    pods = staged(cluster, case)
    ask(cluster, *pods, of=group(min_member=case.size, topology=case.topology, priority=case.priority))
    await settle(cluster)
    assert (evicted(cluster), cluster.bound) == (case.gone, {})
    assert {name for _, name in gang_of(cluster).victims} == case.gone
    outcome = gang_of(cluster).outcome
    assert outcome is not None
    assert (outcome.reason == "Preempting") == bool(case.gone)
