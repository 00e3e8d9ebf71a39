"""Hostile pods, nodes and PodGroups: they never stop the scheduler nor keep others from being bound."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest
from bayplan.gangs.bayplan_groups import BayplanGroups
from bayplan.kube.watch_stream import ObjectDecoder, WatchEvent
from bayplan.resources.pod_group import PodGroup

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler
from tests.security.hostility import Document, Hostility
from tests.support.builders import node, pod
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

_BATCH = 50


class Cluster:
    """A scheduler with one profile, a control node with room for all, and what is bound."""

    def __init__(self) -> None:
        self.writer = RecordingWriter()
        self.scheduler = Scheduler(VirtualClock(), self.writer)
        self.scheduler.activate([self.scheduler.build(ProfileConfig(scheduler_name="batch"))])
        self.scheduler.feed.node_added(node("control", allocatable={"cpu": "1000", "memory": "1Ti", "pods": "100000"}))
        self._controls = 0

    async def settle(self) -> None:
        """Try every pod that waits."""
        running = asyncio.create_task(self.scheduler.run())
        await self.scheduler.until_idle()
        assert not running.done(), "the loop has ended"
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    async def bind_a_control_pod(self) -> None:
        """A plain pod is bound as if there were no other one."""
        name = f"control-{self._controls}"
        self._controls += 1
        self.scheduler.feed.pod_added(pod(name, scheduler_name="batch", requests={"cpu": "10m"}))
        await self.settle()
        assert name in {binding.name for binding in self.writer.bindings}


def decoded(document: Document, kind: type[Pod | Node]) -> Pod | Node | None:
    """What an informer makes of a document; None where it skips it."""
    event = ObjectDecoder(kind).listed(msgspec.Raw(msgspec.json.encode(document)))
    return event.object if isinstance(event, WatchEvent) else None


@pytest.mark.parametrize("seed", range(2))
async def test_pods(seed: int) -> None:
    """A hostile pod is skipped, parked or bound; it can go again, and others are bound meanwhile."""
    cluster, hostility = Cluster(), Hostility(200 + seed)
    taken: list[Pod] = []
    count = 0
    for number in range(1350):
        read = decoded(hostility.pod(f"pod-{number}", "batch"), Pod)
        if isinstance(read, Pod):
            cluster.scheduler.feed.pod_added(read)
            taken.append(read)
            count += 1
        if number % _BATCH == 0:
            await cluster.bind_a_control_pod()
            for gone in taken:
                cluster.scheduler.feed.pod_deleted(gone)
            taken.clear()
    await cluster.bind_a_control_pod()
    assert count > 400


@pytest.mark.parametrize("seed", range(2))
async def test_nodes(seed: int) -> None:
    """A hostile node is skipped or taken; it can go again, and pods are bound meanwhile."""
    cluster, hostility = Cluster(), Hostility(300 + seed)
    taken: list[Node] = []
    count = 0
    for number in range(300):
        read = decoded(hostility.node(f"node-{number}"), Node)
        if isinstance(read, Node):
            cluster.scheduler.feed.node_added(read)
            taken.append(read)
            count += 1
        if number % _BATCH == 0:
            await cluster.bind_a_control_pod()
            for gone in taken:
                cluster.scheduler.feed.node_deleted(gone)
            taken.clear()
    await cluster.bind_a_control_pod()
    assert count > 100


@pytest.mark.parametrize("seed", range(2))
async def test_pod_groups(seed: int) -> None:
    """A hostile form of a PodGroup is in force as a whole, or refused with a path while the last good one holds."""
    cluster, hostility = Cluster(), Hostility(400 + seed)
    groups = BayplanGroups(cluster.scheduler.group_feed)
    groups.serve()
    outcomes = {"taken": 0, "refused": 0}
    for number in range(1, 351):
        metadata = {"name": "gang", "namespace": "hostile", "uid": "u", "generation": number}
        body = {"metadata": metadata | {"resourceVersion": str(number)}, "spec": hostility.pod_group_spec()}
        groups.seen(PodGroup, body)
        (problems,) = groups.problems.values() if groups.problems else ((),)
        outcomes["refused" if problems else "taken"] += 1
        assert all(problem.path.startswith("spec") for problem in problems)
        assert len(problems) <= 1001
        if number % (2 * _BATCH) == 0:
            await cluster.bind_a_control_pod()
    assert min(outcomes.values()) > 50, outcomes
