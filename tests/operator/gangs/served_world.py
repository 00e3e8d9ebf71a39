"""A scripted API server, the scheduler, and the sources of PodGroups between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bayplan.gangs.group_sources import PRIORITY_CLASSES, GroupSources
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.readiness import Readiness
from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS, ClusterInformers

from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.scheduler import Scheduler
from tests.operator.gangs.group_recording import RecordingObserver
from tests.operator.kube.conftest import InstantClock
from tests.support.background import running, until
from tests.support.fake_api import FakeApi, Hang, Stream, error_response, listed
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

Manifest = dict[str, Any]
ALWAYS = ("/api/v1/nodes", "/api/v1/pods", PRIORITY_CLASSES, *WORKLOADS, *STORAGE)
PLUGINS = "/apis/scheduling.x-k8s.io/v1alpha1"
NATIVE, OLDER = "/apis/scheduling.k8s.io/v1beta1", "/apis/scheduling.k8s.io/v1alpha2"
PLUGINS_KEY = GroupKey(GroupSource.SCHEDULER_PLUGINS, "ml", "train")
NATIVE_KEY = GroupKey(GroupSource.NATIVE, "ml", "train")


def group(version: int = 1, spec: Manifest | None = None, **more: Any) -> Manifest:
    metadata = {"name": "train", "namespace": "ml", "uid": "u", "generation": 1, "resourceVersion": str(version)}
    return {"metadata": {**metadata, **more.pop("metadata", {})}, "spec": spec or {"minMember": 3}, **more}


def member(phase: str = "Pending", **labels: str) -> Manifest:
    metadata = {"name": "p", "namespace": "ml", "uid": "uid-p", "resourceVersion": "1", "labels": labels}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "c"}], "nodeName": "n" if phase == "Succeeded" else ""},
        "status": {"phase": phase},
    }


class World:
    """API server, scheduler, and the sources of PodGroups between them."""

    def __init__(self, api: FakeApi, connection: ApiConnection) -> None:
        self.api = api
        self.connection = connection
        self.clock = VirtualClock()
        self.scheduler = Scheduler(self.clock, RecordingWriter())
        self.readiness = Readiness(())
        self.informers = ClusterInformers(connection, self.scheduler, InstantClock(), self.readiness)
        self.observer = RecordingObserver()
        self.sources = GroupSources(self.scheduler, self.informers, connection, self.clock, observer=self.observer)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all informers and sources inside the block."""
        runs = [informer.run() for _, informer in self.informers]
        async with running(*runs, *self.sources.watches().values()):
            yield

    async def ready(self) -> None:
        """Wait until the first cycle may start and every source is settled."""
        await until(lambda: not self.readiness.missing)
        assert self.informers.synced.is_set()
        async with asyncio.timeout(60):
            await self.sources.settle()
        assert all(groups.settled.is_set() for groups in self.sources.served)

    def group_of(self, key: GroupKey) -> PodGroup | None:
        """Return the group in the scheduler."""
        gang = self.scheduler.context.queue.gangs.get(key)
        return None if gang is None else gang.group

    def unread(self, source: GroupSource) -> str | None:
        """Return why the scheduler does not have the groups of an API, or None if it has them."""
        return self.scheduler.context.queue.gangs.unread(source)

    def has_been_looked_up_since(self, before: int) -> bool:
        """Return whether the API was looked up again."""
        return self.lookups() > before

    def lookups(self) -> int:
        """Return the number of lookups of scheduler-plugins' API."""
        return len(self.api.requests("GET", PLUGINS))


async def served_world() -> AsyncIterator[World]:
    """Yield a world whose server serves neither API and has only empty collections; the body of a fixture."""
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        for path in ALWAYS:
            api.on("GET", path, Stream(*listed(), Hang()))
        for path in (PLUGINS, NATIVE, OLDER):
            api.on("GET", path, error_response(404, "the server could not find the requested resource"))
        yield World(api, connection)
