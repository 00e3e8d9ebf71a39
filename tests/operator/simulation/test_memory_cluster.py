"""Tests of the cluster in memory."""

import msgspec
import pytest
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.pod import PodCondition
from scheduler_core.ports import Binding, Event, ObjectReference, PodDeletion, PodStatusPatch
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.presence import present
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
