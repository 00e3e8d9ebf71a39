"""Tests of ClusterInformers: each resource from a scripted API server to the scheduler's indexes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.readiness import Readiness
from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS, ClusterInformers
from bayplan.kube.watches.informer import InformerOptions

from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.operator.kube.conftest import InstantClock
from tests.support.background import running, until
from tests.support.builders import pod
from tests.support.fake_api import FakeApi, Hang, Response, Stream, error_response, listed, watch_event
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

PATHS = ("/api/v1/nodes", "/api/v1/pods", *WORKLOADS, *STORAGE)
Manifest = dict[str, Any]


def namespaced(name: str = "x", version: int = 1, **more: Any) -> Manifest:
    """Return an object in namespace ``default``."""
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **more.pop("metadata", {})}
    return {"metadata": {"namespace": "default", **meta}, **more}


def cluster_scoped(name: str = "x", version: int = 1, **more: Any) -> Manifest:
    made = namespaced(name, version, **more)
    del made["metadata"]["namespace"]
    return made


class World:
    """API server, scheduler, and the informers between them."""

    def __init__(self, api: FakeApi, connection: ApiConnection) -> None:
        self.api = api
        self.scheduler = Scheduler(VirtualClock(), RecordingWriter())
        self.readiness = Readiness(())
        self.clock = InstantClock()
        self.connection = connection
        self.informers = ClusterInformers(connection, self.scheduler, self.clock, self.readiness)

    @property
    def columns(self) -> NodeColumns:
        """Return the scheduler's columns."""
        return self.scheduler.context.cache.columns

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run every informer inside the block."""
        async with running(*(informer.run() for _, informer in self.informers)):
            yield

    async def until_missing(self, *fragments: str) -> list[str]:
        """Wait until exactly these conditions are missing, one for each fragment of its text."""

        def are_missing() -> bool:
            missing = self.readiness.missing
            pairs = zip(fragments, missing, strict=False)
            return len(missing) == len(fragments) and all(fragment in text for fragment, text in pairs)

        await until(are_missing)
        return self.readiness.missing


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Return a server on which every collection exists and is empty."""
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        for path in PATHS:
            api.on("GET", path, Stream(*listed(), Hang()))
        yield World(api, connection)


def has_default_selector(columns: NodeColumns) -> bool:
    """Return whether a pod labelled ``app=web`` has a default selector."""
    return not columns.workloads.default_selector(pod(labels={"app": "web"})).is_everything


def resource_rows() -> Iterator[Any]:
    """Yield each resource with an object and a check that the scheduler stores it."""
    owner = namespaced(spec={"selector": {"matchLabels": {"app": "web"}}})
    yield "nodes", cluster_scoped(status={"allocatable": {"cpu": "1"}}), lambda known: known.row_of("x") >= 0
    yield (
        "namespaces",
        cluster_scoped(metadata={"labels": {"a": "b"}}),
        lambda known: known.namespaces.get("x") == {"a": "b"},
    )
    yield "services", namespaced(spec={"selector": {"app": "web"}}), has_default_selector
    for resource in ("replicasets", "statefulsets"):
        yield resource, owner, lambda known: known.workloads.version == 1
    plain = namespaced(spec={"selector": {"app": "web"}})
    yield "replicationcontrollers", plain, lambda known: known.workloads.version == 1
    yield "poddisruptionbudgets", owner, lambda known: len(known.disruption_budgets) == 1
    yield "persistentvolumes", cluster_scoped(), lambda known: known.storage.volumes.get("x") is not None
    yield "persistentvolumeclaims", namespaced(), lambda known: known.storage.claims.get("default/x") is not None
    yield "storageclasses", cluster_scoped(provisioner="p"), lambda known: known.storage.classes.get("x") is not None
    yield "csinodes", cluster_scoped(spec={"drivers": []}), lambda known: known.storage.csi_nodes.get("x") is not None
    yield "csidrivers", cluster_scoped(), lambda known: known.storage.drivers.get("x") is not None
    capacity = namespaced(storageClassName="fast", capacity="1Gi")
    yield "csistoragecapacities", capacity, lambda known: known.storage.capacities.get("default/x") is not None
    attachment = cluster_scoped(spec={"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}})
    yield "volumeattachments", attachment, lambda known: known.storage.attachments.get("x") is not None


ROWS = [pytest.param(*row, id=row[0]) for row in resource_rows()]
_PATH_OF = {path.rpartition("/")[2]: path for path in PATHS}


def test_every_resource_has_its_row() -> None:
    """The table of resources below leaves out only pods, which another test covers."""
    assert {row.id for row in ROWS} == set(_PATH_OF) - {"pods"}


@pytest.mark.parametrize(("resource", "manifest", "is_stored"), ROWS)
async def test_listed_objects_are_stored_and_deleted_ones_removed(
    world: World, resource: str, manifest: Manifest, is_stored: Any
) -> None:
    """Each resource is decoded as its struct and stored in the index that its plugins read."""
    deleted = asyncio.Event()
    gone = watch_event("DELETED", {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "10"}})
    world.api.on("GET", _PATH_OF[resource], Stream(*listed(manifest), deleted, gone, Hang()))
    informer = world.informers.by_resource[resource]
    async with world.running():
        await world.until_missing()
        assert is_stored(world.columns)
        deleted.set()
        await until(lambda: not informer.known)
        assert not is_stored(world.columns)


@table(
    "status, expected",
    (
        "forbidden",
        403,
        (
            "csinodes are being listed: WATCH /apis/storage.k8s.io/v1/csinodes: HTTP 403: no; grant this process's "
            'account the verbs list and watch on resource "csinodes" of API group "storage.k8s.io" in a ClusterRole'
        ),
    ),
    (
        "not served",
        404,
        (
            "csinodes are being listed: WATCH /apis/storage.k8s.io/v1/csinodes: HTTP 404: no; the API server does "
            "not serve csinodes of version v1: upgrade it, or enable the API (--runtime-config)"
        ),
    ),
    (
        "unauthorized",
        401,
        (
            "csinodes are being listed: WATCH /apis/storage.k8s.io/v1/csinodes: HTTP 401: no; the API server "
            "rejects the credentials of this process: renew its token or kubeconfig"
        ),
    ),
    ("server error", 500, "csinodes are being listed: WATCH /apis/storage.k8s.io/v1/csinodes: HTTP 500: no"),
)
async def test_a_failed_list_is_reported_with_its_remedy(
    world: World, caplog: pytest.LogCaptureFixture, status: int, expected: str
) -> None:
    """A failed list is logged and reported by /readyz with its cause and remedy; the start continues after it."""
    path = "/apis/storage.k8s.io/v1/csinodes"
    world.api.on("GET", path, error_response(status, "no"))
    async with world.running():
        assert await world.until_missing("HTTP") == [expected]
        assert [record.getMessage() for record in caplog.records] == [
            f"Watch of {path} failed, retrying: {expected.partition(': ')[2]}"
        ]
        assert not world.informers.synced.is_set()
        world.api.on("GET", path, Stream(*listed(), Hang()))
        await world.until_missing()
        assert world.informers.synced.is_set()


@table(
    "outage, reason",
    ("401", error_response(401, "no"), "rejects the credentials of this process: renew its token"),
    ("403", error_response(403, "no"), "grant this process's account the verbs list and watch"),
    ("500", error_response(500, "no"), "WATCH /api/v1/services: HTTP 500: no"),
    ("streams without an event", Stream(), "the API server sends none"),
)
async def test_a_watch_that_fails_too_long_makes_the_data_stale(
    world: World, outage: Response | Stream, reason: str
) -> None:
    """Readiness fails, with the reason, while a watch has delivered nothing for longer than the bound."""
    path = "/api/v1/services"
    world.api.on("GET", path, Stream(*listed()), outage)
    async with world.running():
        await world.until_missing()

        def failures() -> list[str]:
            return [each for each in world.readiness.failures if each.startswith("services are stale: ")]

        await until(lambda: bool(failures()))
        silence = present(re.search(r": no event or bookmark for (\d+) s: ", failures()[0]))
        assert int(silence[1]) >= 300
        assert reason in failures()[0]
        world.api.on("GET", path, Stream(*listed(), Hang()))
        await until(lambda: not failures())


async def test_a_short_outage_does_not_end_readiness(world: World) -> None:
    """A watch that fails for less than the bound, and a resource that is not listed yet, are not stale."""
    world.api.on("GET", "/api/v1/services", Stream(*listed()), error_response(500, "no"))
    async with world.running():
        await world.until_missing()
        await until(lambda: world.informers.by_resource["services"].restarts > 5)
        assert world.informers.by_resource["services"].staleness == ""
        world.clock.pass_by(10_000)
        assert len(world.informers.stale()) == len(PATHS)
    assert [each for _, each in World(world.api, world.connection).informers if each.staleness] == []


async def test_staleness_can_be_disabled(world: World) -> None:
    """With the bound 0 no silence is too long."""
    world.informers = ClusterInformers(
        world.connection, world.scheduler, world.clock, world.readiness, options=InformerOptions(stale_seconds=0.0)
    )
    async with world.running():
        await until(world.informers.synced.is_set)
        world.clock.pass_by(10_000)
        assert world.readiness.failures == []
