"""Tests of the cluster in memory, of its volume controller and provisioners, and of its virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from bayplan.simulation.memory_cluster import MemoryCluster, MemoryStorage, SimulatedClock
from msgspec.structs import replace

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.pod import PodCondition
from scheduler_core.model.storage import SELECTED_NODE, StorageObject
from scheduler_core.plugins.volume_binding import bound_volume
from scheduler_core.ports import Binding, Event, ObjectReference, PodDeletion, PodStatusPatch
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.indexes.storage_index import StorageIndex
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.storage import claim, storage_class, volume
from tests.support.tables import table

UID = "uid-of-default-pod"
BINDING = Binding("default", "pod", UID, "node")


def cluster_with_scheduler() -> tuple[MemoryCluster, Scheduler]:
    """Return a cluster with one node and one pod, and a scheduler that watches it."""
    cluster = MemoryCluster()
    scheduler = Scheduler(SimulatedClock(), cluster)
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])
    cluster.watch(scheduler.feed)
    scheduler.feed.node_added(node())
    cluster.add_pod(pod())
    return cluster, scheduler


async def test_a_bind_is_reported_before_its_response() -> None:
    """When a bind returns, the pod has its node in the cluster and in the scheduler's cache."""
    cluster, scheduler = cluster_with_scheduler()
    await cluster.bind(BINDING)
    bound = await cluster.read_pod("default", "pod")
    assert bound is not None
    assert bound.spec.node_name == "node"
    assert [(each.type, each.status) for each in bound.status.conditions] == [("PodScheduled", "True")]
    assert scheduler.context.cache.get(UID) is not None


@table(
    "metadata, expected",
    ("read by a plugin", AnnotatedMeta, {"kept": "yes", "devices": "0"}),
    ("not read by a plugin", ObjectMeta, {}),
)
async def test_a_bind_annotates_the_pod(metadata: type[ObjectMeta], expected: dict[str, str]) -> None:
    """The annotations of a Binding are added to those of the pod, as by the API server."""
    cluster, _ = cluster_with_scheduler()
    fields = {"name": "annotated", "namespace": "default", "uid": "u", "annotations": {"kept": "yes"}}
    cluster.add_pod(msgspec.structs.replace(pod(), metadata=msgspec.convert(fields, metadata)))
    await cluster.bind(Binding("default", "annotated", "u", "node", (("devices", "0"),)))
    bound = await cluster.read_pod("default", "annotated")
    assert bound is not None
    assert annotations_of(bound) == expected


@table(
    "binding, error",
    ("missing pod", Binding("default", "gone", UID, "node"), NotFoundError),
    ("another pod of the name", Binding("default", "pod", "another", "node"), NotFoundError),
    ("already bound", BINDING, ConflictError),
)
async def test_invalid_binds_are_rejected(binding: Binding, error: type[Exception]) -> None:
    """A bind of a missing, recreated or bound pod fails."""
    cluster, _ = cluster_with_scheduler()
    await cluster.bind(BINDING)
    with pytest.raises(error):
        await cluster.bind(binding)


async def test_a_patch_is_reported_after_the_cycle() -> None:
    """A status written during a cycle is reported to the scheduler after the cycle."""
    cluster, scheduler = cluster_with_scheduler()
    patch = PodStatusPatch("default", "pod", UID, PodCondition("PodScheduled", "False"), nominated_node_name="node")
    cluster.patch_pod_status(patch)
    was_quiet = cluster.is_quiet
    await scheduler.context.clock.sleep(0)
    assert (was_quiet, cluster.is_quiet) == (False, True)
    assert scheduler.context.queue.nominator.node_of(UID) == "node"


async def test_a_patch_of_another_uid_changes_nothing() -> None:
    """A patch with another UID does not change the pod."""
    cluster, _ = cluster_with_scheduler()
    cluster.patch_pod_status(PodStatusPatch("default", "pod", "another", PodCondition("PodScheduled", "False")))
    current = present(cluster.pod("default", "pod"))
    assert (current.status.conditions, cluster.is_quiet) == ((), True)


async def test_a_condition_replaces_the_one_of_its_type() -> None:
    """A pod has one condition of each type."""
    cluster, _ = cluster_with_scheduler()
    for message in ("first", "second"):
        condition = PodCondition("PodScheduled", "False", message=message)
        cluster.patch_pod_status(PodStatusPatch("default", "pod", UID, condition))
    current = present(cluster.pod("default", "pod"))
    assert [condition.message for condition in current.status.conditions] == ["second"]


async def test_a_deletion_removes_the_pod() -> None:
    """A deleted pod is removed, and the caller is notified afterwards."""
    cluster, scheduler = cluster_with_scheduler()
    await cluster.bind(BINDING)
    ended: list[Exception | None] = []
    cluster.delete_pod(PodDeletion("default", "pod", UID), ended.append)
    assert (cluster.pod("default", "pod"), ended) == (None, [])
    await scheduler.context.clock.sleep(0)
    assert ended == [None]
    assert scheduler.context.cache.get(UID) is None
    cluster.delete_pod(PodDeletion("default", "pod", UID), ended.append)
    await scheduler.context.clock.sleep(0)
    assert isinstance(ended[1], NotFoundError)


def test_events_are_stored() -> None:
    """Events are stored in order and count as writes."""
    cluster = MemoryCluster()
    event = Event(ObjectReference("Pod", "pod"), "Normal", "Scheduled", "Binding", "done")
    cluster.record(event)
    assert (cluster.events, cluster.writes) == ([event], 1)


CSI_CLASS = storage_class("fast", "csi.example.com")


def storage_with_index(*objects: StorageObject) -> tuple[MemoryStorage, StorageIndex]:
    """Return storage, and the storage index of a scheduler that watches it."""
    scheduler = Scheduler(SimulatedClock(), MemoryCluster())
    storage = MemoryStorage()
    storage.serve(objects, scheduler.storage_feed)
    return storage, scheduler.context.cache.columns.storage


def with_metadata(original: Any, **fields: str) -> Any:
    """Return the object with other metadata."""
    return replace(original, metadata=replace(original.metadata, **fields))


async def test_binding_a_volume_binds_its_claim() -> None:
    """When a volume is bound, its claim is bound, and both are reported before the write returns."""
    free, waiting = volume("v", version="41"), claim("c", version="40")
    storage, index = storage_with_index(storage_class(), free, waiting)
    written = await storage.bind_volume(bound_volume(free, waiting))
    assert index.volumes.get("v") is written
    assert int(written.metadata.resource_version) > 41
    bound = present(index.claims.get("default/c"))
    assert (bound.is_fully_bound, bound.spec.volume_name, bound.status.phase) == (True, "v", "Bound")


async def test_selecting_a_node_creates_a_volume() -> None:
    """A selected node causes a new volume of the requested size that is bound to the claim."""
    waiting = claim("c", storage_class="fast", size="7Gi")
    storage, index = storage_with_index(CSI_CLASS, waiting)
    annotations = {SELECTED_NODE: "n"}
    await storage.select_node(replace(waiting, metadata=replace(waiting.metadata, annotations=annotations)))
    bound = present(index.claims.get("default/c"))
    assert bound.is_fully_bound
    assert bound.metadata.annotations[SELECTED_NODE] == "n"
    made = present(index.volumes.get(bound.spec.volume_name))
    assert made.is_reserved_for(bound)
    assert (made.spec.capacity, made.spec.storage_class_name) == ({"storage": "7Gi"}, "fast")
    assert made.spec.csi is not None
    assert made.spec.csi.driver == "csi.example.com"


@table(
    "fields, error",
    ("gone", {"name": "gone"}, NotFoundError),
    ("another object of the name", {"uid": "another"}, NotFoundError),
    ("changed", {"resource_version": "0"}, ConflictError),
)
async def test_stale_writes_of_storage_are_rejected(fields: dict[str, str], error: type[Exception]) -> None:
    """A write to a recreated or changed object fails and changes nothing."""
    free, waiting = volume("v"), claim("c", storage_class="fast")
    storage, index = storage_with_index(CSI_CLASS, free, waiting)
    with pytest.raises(error):
        await storage.bind_volume(with_metadata(free, **fields))
    with pytest.raises(error):
        await storage.select_node(with_metadata(waiting, **fields))
    assert (index.volumes.get("v"), index.claims.get("default/c")) == (free, waiting)


def test_timers_run_in_order() -> None:
    """The clock advances from timer to timer, and timers of equal times run in the order of their creation."""
    clock, ran = SimulatedClock(), list[tuple[str, float]]()
    for name, seconds in (("late", 5.0), ("early", 1.0), ("early too", 1.0)):
        clock.call_later(seconds, lambda name=name: ran.append((name, clock.now())))  # type: ignore[misc]  # a default binds the name
    while clock.advance(10.0):
        pass
    assert ran == [("early", 1.0), ("early too", 1.0), ("late", 5.0)]


def test_the_clock_does_not_exceed_the_limit() -> None:
    """A timer beyond the limit does not run, and the time does not change."""
    clock, ran = SimulatedClock(), list[int]()
    clock.call_later(5.0, lambda: ran.append(1))
    assert not clock.advance(4.9)
    assert (ran, clock.now()) == ([], 0.0)


def test_cancelled_timers_are_skipped() -> None:
    """A cancelled timer neither runs nor advances the time."""
    clock, ran = SimulatedClock(), list[int]()
    clock.call_later(1.0, lambda: ran.append(1)).cancel()
    assert not clock.advance(10.0)
    assert (ran, clock.now()) == ([], 0.0)


async def test_sleep_waits_for_virtual_time() -> None:
    """A sleeping task waits for virtual time, and the date advances with it."""
    clock = SimulatedClock()
    before = clock.wall()
    sleeper = asyncio.create_task(clock.sleep(60.0))
    await clock.sleep(0)
    assert not sleeper.done()
    assert clock.advance(60.0)
    await sleeper
    assert clock.wall() - before == timedelta(seconds=60)
