"""Tests of DeviceInformers: when claims are withheld, and which objects reach the index."""

from __future__ import annotations

import pytest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import NOT_SERVED, OPTIONAL, REQUIRED, DeviceApi
from bayplan.kube.watches.cluster_informers import ClusterInformers, DeviceInformers
from bayplan.kube.writes.claim_writes import ClaimWrites

from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from tests.operator.kube.conftest import InstantClock
from tests.operator.kube.watches.test_cluster_informers import cluster_scoped, namespaced
from tests.support.background import running, until
from tests.support.fake_api import FakeApi, Hang, Response, Stream, error_response, listed
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

API, BETA = "/apis/resource.k8s.io/v1", "/apis/resource.k8s.io/v1beta2"
ALL = (*REQUIRED, *OPTIONAL)


class World:
    """API server, scheduler, and the informers of devices between them."""

    def __init__(self, api: FakeApi, connection: ApiConnection, clock: InstantClock) -> None:
        self.api = api
        self.scheduler = Scheduler(VirtualClock(), RecordingWriter())
        informers = ClusterInformers(connection, self.scheduler, clock, Readiness(()))
        device_api = DeviceApi()
        self.informers = DeviceInformers(connection, informers, self.scheduler.device_feed, clock, device_api)
        self.writes = ClaimWrites(connection, 5.0, device_api)
        self.api.on("GET", BETA, error_response(404, "not found"))
        for resource in ALL:
            for version in (API, BETA):
                self.api.on("GET", f"{version}/{resource}", Stream(*listed(), Hang()))

    @property
    def devices(self) -> DeviceIndex:
        """Return the scheduler's index of devices."""
        return self.scheduler.context.cache.columns.devices

    def serve(self, *responses: Response | tuple[str, ...], version: str = API) -> None:
        """Script the responses to lookups of the API: errors, or the resources that are served."""
        scripts = [
            each if isinstance(each, Response) else Response(body={"resources": [{"name": name} for name in each]})
            for each in responses
        ]
        self.api.on("GET", version, *scripts)


@pytest.fixture
async def world(api: FakeApi, connection: ApiConnection, clock: InstantClock) -> World:
    """Return a server with empty collections; each test sets which of them are served."""
    return World(api, connection, clock)


async def test_withheld_until_all_are_listed(world: World) -> None:
    """Claims are withheld from the start until all objects are in the index."""
    world.serve(ALL)
    objects = {
        "deviceclasses": cluster_scoped("gpu"),
        "resourceslices": cluster_scoped(
            "s", spec={"driver": "d", "pool": {"name": "p", "generation": 1}, "allNodes": True}
        ),
        "resourceclaims": namespaced("c"),
    }
    for resource, manifest in objects.items():
        world.api.on("GET", f"{API}/{resource}", Stream(*listed(manifest), Hang()))
    assert world.devices.withheld == "the resource claims and devices of the cluster are not listed yet"
    expected = [world.devices.are_lists_expected]
    async with running(world.informers.run()):
        await until(lambda: not world.devices.withheld)
        expected.append(world.devices.are_lists_expected)
        assert list(world.devices.classes) == ["gpu"]
        assert world.devices.claims.get("default/c") is not None
    assert expected == [True, False]


@table("lacking", ("no API", error_response(404, "not found")), ("not all resources", ("resourceclaims",)))
async def test_a_server_without_the_api(world: World, lacking: Response | tuple[str, ...]) -> None:
    """The reason for withholding is that the API is not served, and a later lookup finds the API."""
    world.serve(lacking)
    async with running(world.informers.run()):
        await until(lambda: world.devices.withheld == NOT_SERVED)
        assert not world.devices.are_lists_expected
        world.serve(ALL)
        await until(lambda: not world.devices.withheld)


async def test_a_server_with_an_older_version(world: World) -> None:
    """Claims are read and written in the older version if the server has only that."""
    world.serve(error_response(404, "not found"))
    world.serve(ALL, version=BETA)
    world.api.on("GET", f"{BETA}/resourceclaims", Stream(*listed(namespaced("c")), Hang()))
    async with running(world.informers.run()):
        await until(lambda: not world.devices.withheld)
    claim = present(world.devices.claims.get("default/c"))
    path = f"{BETA}/namespaces/default/resourceclaims/c"
    world.api.on("PATCH", path, Response(body=namespaced("c")))
    assert (await world.writes.write_finalizers(claim)).key == "default/c"
    assert [seen.path for seen in world.api.received if seen.method == "GET" and seen.path.startswith(f"{API}/")] == []


async def test_taint_rules_of_an_older_version(world: World) -> None:
    """Taint rules of the older version are read together with claims of the newer version."""
    world.serve(tuple(REQUIRED))
    world.serve(ALL, version=BETA)
    async with running(world.informers.run()):
        await until(lambda: not world.devices.withheld)
    read = {seen.path for seen in world.api.received if seen.path.count("/") > API.count("/")}
    assert read == {*(f"{API}/{name}" for name in REQUIRED), f"{BETA}/devicetaintrules"}


async def test_the_version_does_not_change(world: World) -> None:
    """A version that is served later is not used by a process that has read another version."""
    world.serve(error_response(404, "not found"), ALL)
    world.serve(ALL, version=BETA)
    async with running(world.informers.run()):
        await until(lambda: len(world.api.requests("GET", API)) >= 3)
    assert world.api.requests("GET", f"{API}/resourceclaims") == []


async def test_a_failed_lookup_is_repeated(world: World) -> None:
    """A failed lookup of the API is repeated and does not count as an absent API."""
    world.serve(error_response(500, "away"), Response(body=b"no JSON"), ALL)
    async with running(world.informers.run()):
        await until(lambda: not world.devices.withheld)
    assert len(world.api.requests("GET", API)) >= 3


async def test_a_forbidden_list_is_reported(world: World) -> None:
    """The reason for withholding names the resource that cannot be listed."""
    world.serve(ALL)
    world.api.on("GET", f"{API}/resourceslices", error_response(403, "resourceslices is forbidden"))
    async with running(world.informers.run()):
        await until(lambda: "the resourceslices of resource.k8s.io/v1 cannot be listed" in world.devices.withheld)
        assert "resourceslices is forbidden" in world.devices.withheld
        assert not world.devices.are_lists_expected
        world.api.on("GET", f"{API}/resourceslices", Stream(*listed(), Hang()))
        await until(lambda: not world.devices.withheld)
