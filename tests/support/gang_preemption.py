"""Builders and shortcuts for tests of gang preemption: nodes, running pods, victims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.pod_group import GroupSource, PodGroup
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.gangs import group, member, members
from tests.support.preemption import DeferringWriter, started
from tests.support.scheduling import Rig, profile
from tests.support.virtual_clock import VirtualClock

DELETED = datetime(2026, 1, 1, tzinfo=UTC)
KEPT = {"app": "kept"}
DISRUPTED_AS_GROUP = group("victim", min_member=1, disrupts_whole=True)
DISRUPTED_BY_POD = group("victim", min_member=1)
"""Group ``victim``, disrupted as a whole or pod by pod; :func:`victim_member` returns its members."""


def with_pod_groups(made: Rig) -> Rig:
    """Serve Bayplan's PodGroups and return the scheduler."""
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    return made


def deferring_rig() -> tuple[Rig, DeferringWriter]:
    """Return a scheduler whose pod deletions complete when the test completes them."""
    clock, writer = VirtualClock(), DeferringWriter()
    made = Rig(Scheduler(clock, writer, None, None, default_plugins()), clock, writer)
    made.serve(profile())
    return with_pod_groups(made), writer


def small_node(name: str, cpus: int = 2, **labels: str) -> Node:
    """Return a node with few CPUs."""
    return node(name, labels=labels, allocatable={"cpu": str(cpus), "pods": "99"})


def running_pod(
    name: str,
    node_name: str,
    priority: int = 0,
    cpus: int = 1,
    *,
    labels: Mapping[str, str] | None = None,
    ports: Iterable[int] = (),
) -> Pod:
    """Return a running pod."""
    requests = {"cpu": str(cpus)}
    return pod(name, node_name=node_name, priority=priority, requests=requests, labels=labels or {}, ports=ports)


@dataclass(frozen=True)
class BudgetedPod:
    """A running pod: its node, its CPUs, its priority, and whether a budget for :data:`KEPT` selects it."""

    node: int
    cpus: int
    priority: int
    is_protected: bool

    def running(self, number: int) -> Pod:
        """Return the pod, with its number as name and in the order of starts."""
        labels = KEPT if self.is_protected else {}
        made = running_pod(str(number), f"n{self.node}", self.priority, self.cpus, labels=labels)
        return replace(made, status=replace(made.status, start_time=started(number)))


def terminating_pod(each: Pod, *, by_preemption: bool = False) -> Pod:
    """Return the pod with a deletion timestamp."""
    conditions = (PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", ""),) if by_preemption else ()
    return msgspec.structs.replace(
        each,
        metadata=msgspec.structs.replace(each.metadata, deletion_timestamp=DELETED),
        status=msgspec.structs.replace(each.status, conditions=conditions),
    )


def all_fit(free: Sequence[int], wants: Sequence[int]) -> bool:
    """Return whether all members fit into what the nodes have free of one resource; the last one is placed first."""
    if not wants:
        return True
    *others, largest = wants
    return any(
        amount >= largest and all_fit([*free[:index], amount - largest, *free[index + 1 :]], others)
        for index, amount in enumerate(free)
        if amount not in free[:index]
    )


def evicted(made: Rig) -> set[str]:
    """Return the names of the pods that the scheduler has deleted."""
    return {deletion.name for deletion in made.writer.deletions}


def add_gang(made: Rig, *pods: Pod, of: PodGroup) -> None:
    """Add a PodGroup and its pods."""
    made.scheduler.group_feed.group_changed(of)
    made.add(*pods)


def victim_member(name: str, node_name: str, priority: int = 0) -> Pod:
    """Return a running member of the group ``victim``."""
    return member(name, "victim", node_name=node_name, priority=priority)


async def reserve_for_gang(cluster: Rig) -> None:
    """Reserve node ``a`` for the Strict gang ``big`` of two members, which waits for the end of pod ``v``."""
    cluster.add(small_node("a", 2), running_pod("v", "a"))
    add_gang(cluster, *members(2, "big"), of=group("big", 2, is_strict=True))
    async with cluster.running():
        await cluster.scheduler.until_idle()
        cluster.clock.advance(61.0)
        await cluster.scheduler.until_idle()
