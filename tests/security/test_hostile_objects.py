"""Hostile pods, nodes and PodGroups: they never stop the scheduler nor keep others from being bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
import pytest
from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.kube.watches.watch_stream import ObjectDecoder, WatchEvent
from bayplan.resources.pod_group import PodGroup

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.security.control_pods import Controls
from tests.security.hostility import Document, Hostility

T = TypeVar("T", Pod, Node)

_BATCH = 50


def controls() -> Controls:
    """A scheduler with one profile."""
    made = Controls("batch")
    made.scheduler.activate([made.scheduler.build(ProfileConfig(scheduler_name="batch"))])
    return made


def decoded(document: Document, kind: type[T]) -> T | None:
    """What an informer makes of a document; None where it skips it."""
    event = ObjectDecoder(kind).listed(msgspec.Raw(msgspec.json.encode(document)))
    return event.object if isinstance(event, WatchEvent) else None


async def come_and_go(
    made: Controls, objects: Iterable[T | None], add: Callable[[T], None], delete: Callable[[T], None]
) -> int:
    """Let objects come, and go again in batches while control pods are bound; how many were not skipped."""
    taken: list[T] = []
    count = 0
    for number, read in enumerate(objects):
        if read is not None:
            add(read)
            taken.append(read)
            count += 1
        if number % _BATCH == 0:
            await made.bind_a_pod()
            for gone in taken:
                delete(gone)
            taken.clear()
    await made.bind_a_pod()
    return count


@pytest.mark.parametrize("seed", range(2))
async def test_pods(seed: int) -> None:
    """A hostile pod is skipped, parked or bound; it can go again, and others are bound meanwhile."""
    made, hostility = controls(), Hostility(200 + seed)
    feed = made.scheduler.feed
    pods = (decoded(hostility.pod(f"pod-{number}", "batch"), Pod) for number in range(1350))
    assert await come_and_go(made, pods, feed.pod_added, feed.pod_deleted) > 400


@pytest.mark.parametrize("seed", range(2))
async def test_nodes(seed: int) -> None:
    """A hostile node is skipped or taken; it can go again, and pods are bound meanwhile."""
    made, hostility = controls(), Hostility(300 + seed)
    feed = made.scheduler.feed
    nodes = (decoded(hostility.node(f"node-{number}"), Node) for number in range(300))
    assert await come_and_go(made, nodes, feed.node_added, feed.node_deleted) > 100


@pytest.mark.parametrize("seed", range(2))
async def test_pod_groups(seed: int) -> None:
    """A hostile form of a PodGroup is in force as a whole, or refused with a path while the last good one holds."""
    made, hostility = controls(), Hostility(400 + seed)
    groups = BayplanGroups(made.scheduler.group_feed)
    groups.listed(PodGroup, [], "0")
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
            await made.bind_a_pod()
    assert min(outcomes.values()) > 50, outcomes
