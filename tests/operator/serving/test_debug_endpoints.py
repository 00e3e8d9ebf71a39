"""Tests of the debug endpoints over a real socket."""

from __future__ import annotations

import json
import marshal
from collections.abc import AsyncIterator

import aiohttp
import pytest
from bayplan.introspection.status_model import CacheState, Status
from bayplan.introspection.status_rendering import read_status
from bayplan.kube.leader_election import LeaderEndpoint, LeaderState
from bayplan.page.report_documents import ReportDocuments
from bayplan.page.report_file import read_status_report
from bayplan.profiles.profile_status import ProfileReading
from bayplan.profiles.unserved_pods import profiles_not_live
from bayplan.serving import CACHE_PATH, INDEX_PATH, LEADER_PATH, PROFILE_PATH, STATUS_PATH, TASKS_PATH
from bayplan.serving.debug_endpoints import DebugEndpoints, DebugSources
from bayplan.serving.http_server import HealthServer

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.snapshot.cluster_cache import CacheDifference
from tests.support.http_servers import served
from tests.support.tables import table

LOOPBACK = "127.0.0.1"


class Source:
    """Source of the endpoints' data that records the requested limits."""

    def __init__(self) -> None:
        self.limits: list[int] = []
        self.is_server_unavailable = False
        self.namespaces: list[str] = []

    def status(self, limit: int, namespace: str) -> Status:
        self.namespaces.append(namespace)
        self.limits.append(limit)
        return Status("1", "", (), 1.0, 0, False, (), {}, {}, (), (), (), CacheState(0, 0), ())

    async def documents(self) -> ReportDocuments:
        return ReportDocuments({"gangs": {"total": 3}}, taken="now")

    def leader(self) -> LeaderState:
        return LeaderState(
            is_standby=True, lease="ns/bayplan", holder="other_1", endpoint=LeaderEndpoint("http://[::1]:9")
        )

    async def check_cache(self) -> list[CacheDifference]:
        """Return one difference."""
        if self.is_server_unavailable:
            raise ServerUnavailableError("connection refused")
        return [CacheDifference("Node", "a", "is not in the cache")]


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture(params=[True])
async def server(request: pytest.FixtureRequest, source: Source) -> AsyncIterator[HealthServer]:
    endpoints = DebugEndpoints(
        DebugSources(source.status, source.check_cache, source.leader, request.param, documents=source.documents)
    )
    async with served(endpoints.routes) as server:
        yield server


async def send(server: HealthServer, path: str) -> tuple[int, bytes]:
    """Send a GET request and return status and body."""
    url = f"http://{LOOPBACK}:{server.port}{path}"
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        return response.status, await response.read()


async def test_the_index_names_every_endpoint(server: HealthServer) -> None:
    """The index lists all paths."""
    status, body = await send(server, INDEX_PATH)
    assert status == 200
    for path in (STATUS_PATH, CACHE_PATH, TASKS_PATH, PROFILE_PATH, "/debug/explain"):
        assert path in body.decode()


async def test_the_status_has_a_limit(server: HealthServer, source: Source) -> None:
    """The status is limited to 20 objects of each kind by default, and the limit can be set."""
    status, body = await send(server, STATUS_PATH)
    assert status == 200
    assert read_status(body).version == "1"
    await send(server, f"{STATUS_PATH}?limit=0")
    assert source.limits == [20, 0]
    assert source.namespaces == ["", ""]


async def test_the_status_with_documents(server: HealthServer, source: Source) -> None:
    """The documents of the page are returned only on request."""
    report = read_status_report((await send(server, f"{STATUS_PATH}?limit=7&panels=true"))[1])
    assert (report.status.version, report.documents.panels, report.documents.taken) == (
        "1",
        {"gangs": {"total": 3}},
        "now",
    )
    with pytest.raises(ServerUnavailableError, match="documents of panels"):
        read_status_report((await send(server, f"{STATUS_PATH}?limit=7&panels=false"))[1])
    assert source.limits == [7, 7]


async def test_the_cache_check(server: HealthServer, source: Source) -> None:
    """The response lists the differences, or is an error if the API server is unavailable."""
    assert await send(server, CACHE_PATH) == (200, b'{"differences":["Node a: is not in the cache"]}')
    source.is_server_unavailable = True
    status, body = await send(server, CACHE_PATH)
    assert status == 503
    assert "nodes or pods cannot be listed: connection refused; retry" in json.loads(body)["error"]


async def test_the_leader_is_named(server: HealthServer) -> None:
    """The response has the leader and its endpoint."""
    status, body = await send(server, LEADER_PATH)
    assert (status, json.loads(body)) == (
        200,
        {
            "isStandby": True,
            "lease": "ns/bayplan",
            "holder": "other_1",
            "endpoint": {"url": "http://[::1]:9", "certificateSha256": ""},
        },
    )


async def test_tasks_are_listed_with_their_stacks(server: HealthServer) -> None:
    """Tasks are listed with their stacks, here that of this test."""
    status, body = await send(server, TASKS_PATH)
    assert status == 200
    assert "test_debug_endpoints.py" in body.decode()


async def test_a_profile_as_text_and_as_a_file(server: HealthServer) -> None:
    """A profile of the event loop is returned as text or as a pstats file."""
    status, body = await send(server, f"{PROFILE_PATH}?seconds=0.05")
    assert status == 200
    assert "function calls" in body.decode()
    status, body = await send(server, f"{PROFILE_PATH}?seconds=0.05&format=pstats")
    assert status == 200
    assert isinstance(marshal.loads(body), dict)  # noqa: S302 - our own response


@table(
    "path, status, text",
    ("limit", f"{STATUS_PATH}?limit=many", 400, "limit must be a number"),
    ("zero seconds", f"{PROFILE_PATH}?seconds=0", 400, "seconds must be above 0 and at most 60"),
    ("seconds not a number", f"{PROFILE_PATH}?seconds=nan", 400, "seconds must be above 0 and at most 60"),
    ("format", f"{PROFILE_PATH}?format=svg", 400, "format must be text or pstats"),
)
async def test_invalid_parameters_are_rejected(server: HealthServer, path: str, status: int, text: str) -> None:
    """The error message has the valid values."""
    got, body = await send(server, path)
    assert got == status
    assert text in json.loads(body)["error"]


@pytest.mark.parametrize("server", [False], indirect=True)
async def test_profiling_is_disabled_by_default(server: HealthServer) -> None:
    """While profiling is disabled, the error names the flag that enables it."""
    status, body = await send(server, PROFILE_PATH)
    assert status == 403
    assert "--enable-profiling" in json.loads(body)["error"]


INVALID = {"type": "Accepted", "status": "False", "message": 'there is no plugin "Foo"'}
READY = {"type": "Ready", "status": "True", "message": ""}


def reading(name: str, live: str = "", shadow_of: str = "", *conditions: dict[str, str]) -> ProfileReading:
    """Return what is known about a profile for scheduler name ``pack``."""
    return ProfileReading(name, "pack", live, shadow_of, conditions, ())


@table(
    "readings, expected",
    (
        "rejected",
        [reading("pack", "", "", INVALID, READY)],
        ['SchedulerProfile pack would serve it and is not live (Accepted is False): there is no plugin "Foo"'],
    ),
    ("no condition yet", [reading("new")], ["SchedulerProfile new would serve it and is not live"]),
    ("live", [reading("pack", "abc")], []),
    ("shadow", [reading("shadow", "", "pack")], []),
    ("none", [], []),
)
def test_profiles_that_are_not_live(readings: list[ProfileReading], expected: list[str]) -> None:
    """Only profiles that claim the scheduler name and are not live are named, with the failed condition."""
    assert list(profiles_not_live(readings, "pack")) == expected
    assert list(profiles_not_live(readings, "other")) == []
