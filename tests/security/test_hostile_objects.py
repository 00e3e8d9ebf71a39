"""Hostile pods, nodes and PodGroups never stop the scheduler or prevent other pods from being bound."""

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
from tests.security.hostile_manifests import Document, HostileManifests

T = TypeVar("T", Pod, Node)
_BATCH = 50


def with_profile() -> Controls:
    """Return a scheduler with one profile."""
    controls = Controls("batch")
    controls.scheduler.activate([controls.scheduler.build(ProfileConfig(scheduler_name="batch"))])
    return controls


def decoded(document: Document, kind: type[T]) -> T | None:
    """Decode a document as an informer does; return None if the informer skips it."""
    event = ObjectDecoder(kind).listed(msgspec.Raw(msgspec.json.encode(document)))
    return event.object if isinstance(event, WatchEvent) else None


async def add_and_delete(
    controls: Controls, objects: Iterable[T | None], add: Callable[[T], None], delete: Callable[[T], None]
) -> int:
    """Add objects and delete them in batches while control pods are bound; return how many were not skipped."""
    added: list[T] = []
    count = 0
    for number, read in enumerate(objects):
        if read is not None:
            add(read)
            added.append(read)
            count += 1
        if number % _BATCH == 0:
            await controls.bind_a_pod()
            for each in added:
                delete(each)
            added.clear()
    await controls.bind_a_pod()
    return count


@pytest.mark.parametrize("seed", range(2))
async def test_pods(seed: int) -> None:
    """A hostile pod is skipped, parked or bound, and can be deleted; control pods are bound meanwhile."""
    controls, hostile = with_profile(), HostileManifests(200 + seed)
    feed = controls.scheduler.feed
    pods = (decoded(hostile.pod(f"pod-{number}", "batch"), Pod) for number in range(1350))
    assert await add_and_delete(controls, pods, feed.pod_added, feed.pod_deleted) > 400


@pytest.mark.parametrize("seed", range(2))
async def test_nodes(seed: int) -> None:
    """A hostile node is skipped or added, and can be deleted; control pods are bound meanwhile."""
    controls, hostile = with_profile(), HostileManifests(300 + seed)
    feed = controls.scheduler.feed
    nodes = (decoded(hostile.node(f"node-{number}"), Node) for number in range(300))
    assert await add_and_delete(controls, nodes, feed.node_added, feed.node_deleted) > 100


@pytest.mark.parametrize("seed", range(2))
async def test_pod_groups(seed: int) -> None:
    """A hostile PodGroup is read as a whole, or rejected with a path and the last good one stays."""
    controls, hostile = with_profile(), HostileManifests(400 + seed)
    groups = BayplanGroups(controls.scheduler.group_feed)
    groups.listed(PodGroup, [], "0")
    outcomes = {"accepted": 0, "rejected": 0}
    for number in range(1, 351):
        metadata = {"name": "gang", "namespace": "hostile", "uid": "u", "generation": number}
        body = {"metadata": metadata | {"resourceVersion": str(number)}, "spec": hostile.pod_group_spec()}
        groups.seen(PodGroup, body)
        (problems,) = groups.problems.values() if groups.problems else ((),)
        outcomes["rejected" if problems else "accepted"] += 1
        assert all(problem.path.startswith("spec") for problem in problems)
        assert len(problems) <= 1001
        if number % (2 * _BATCH) == 0:
            await controls.bind_a_pod()
    assert min(outcomes.values()) > 50, outcomes
