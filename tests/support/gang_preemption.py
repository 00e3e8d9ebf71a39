"""Gangs that preempt, in a test's scheduler.

Owns the short forms of what is in their way and of what became of it. It must not know what is tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.pod_group import GroupSource, PodGroup
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.gangs import group, member
from tests.support.preemption import DeferringWriter
from tests.support.scheduling import Rig, profile
from tests.support.virtual_clock import VirtualClock

DELETED = datetime(2026, 1, 1, tzinfo=UTC)
DISRUPTED_AS_GROUP = group("victim", min_member=1, disrupts_whole=True)
DISRUPTED_BY_POD = group("victim", min_member=1)
"""A group that is disrupted as a whole or one by one; its members are made by :func:`victim_member`."""


def with_pod_groups(made: Rig) -> Rig:
    """The same, with PodGroups."""
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    return made


def deferring_rig() -> tuple[Rig, DeferringWriter]:
    """A scheduler whose deletions are answered when the test says so."""
    clock, writer = VirtualClock(), DeferringWriter()
    made = Rig(Scheduler(clock, writer, None, None, default_plugins()), clock, writer)
    made.serve(profile())
    return with_pod_groups(made), writer


def small_node(name: str, cpus: int = 2, **labels: str) -> Node:
    """A node of so many CPUs."""
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
    """A pod that runs."""
    wants = {"cpu": str(cpus)}
    return pod(name, node_name=node_name, priority=priority, requests=wants, labels=labels or {}, ports=ports)


def terminating_pod(each: Pod, *, by_preemption: bool = False) -> Pod:
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


def add_gang(made: Rig, *pods: Pod, of: PodGroup) -> None:
    """Let a gang come."""
    made.scheduler.group_feed.group_changed(of)
    made.add(*pods)


def victim_member(name: str, node_name: str, priority: int = 0) -> Pod:
    """A member of another gang that runs."""
    return member(name, "victim", node_name=node_name, priority=priority)
