"""Tests that resources that a plugin declares are listed and watched like the scheduler's own."""

from __future__ import annotations

import asyncio

from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.readiness import Readiness
from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS, ClusterInformers
from msgspec import Struct

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import NodeFilterPlugin
from scheduler_core.framework.object_reads import NodeView, ObjectKind, ObjectReads, annotations_of
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.pod_info import PodInfo
from tests.operator.kube.conftest import InstantClock
from tests.support.fake_api import FakeApi, Hang, Stream, listed
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock


class PodQuota(Struct, frozen=True):
    metadata: ObjectMeta
    spec: dict[str, int] = {}


# The plural is also that of a resource that the scheduler watches itself.
QUOTAS = ObjectKind("/apis/quota.example.com/v1/pods", PodQuota)


class Quota(NodeFilterPlugin):
    name = "Quota"
    reads = ObjectReads(node_annotations=True, kinds=(QUOTAS,))

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        return SUCCESS


async def test_a_declared_kind_is_part_of_readiness_and_reaches_its_store() -> None:
    """The start waits for the list of a declared resource, and plugins find its objects and node annotations."""
    registry = in_tree_registry()
    registry.register(Quota)
    scheduler = Scheduler(VirtualClock(), RecordingWriter(), registry=registry)
    meta = {"name": "x", "uid": "uid-x", "resourceVersion": "1"}
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        for path in ("/api/v1/pods", *WORKLOADS, *STORAGE):
            api.on("GET", path, Stream(*listed(), Hang()))
        api.on("GET", "/api/v1/nodes", Stream(*listed({"metadata": {**meta, "annotations": {"a": "b"}}}), Hang()))
        api.on(
            "GET",
            QUOTAS.path,
            Stream(*listed({"metadata": {**meta, "namespace": "team"}, "spec": {"pods": 3}}), Hang()),
        )
        readiness = Readiness(())
        informers = ClusterInformers(connection, scheduler, InstantClock(), readiness)
        assert f"{QUOTAS.path} are being listed" in readiness.missing
        tasks = [asyncio.create_task(informer.run()) for _, informer in informers]
        async with asyncio.timeout(60):
            await informers.synced.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    store = scheduler.context.services.declared[QUOTAS.path]
    assert [(each.metadata.namespace, each.spec) for each in store] == [("team", {"pods": 3})]
    (node,) = (node for node in scheduler.context.cache.columns.nodes if node is not None)
    assert annotations_of(node) == {"a": "b"}
