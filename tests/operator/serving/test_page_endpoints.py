"""Tests of the page's endpoints over a real socket: headers, files, authorization, and access."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import aiohttp.test_utils
import pytest
from aiohttp import web
from bayplan.kube.leader_election import LeaderEndpoint, LeaderState
from bayplan.kube.readiness import Readiness
from bayplan.page.page_documents import PageDocuments
from bayplan.serving import PAGE_PATH, served_page
from bayplan.serving.authorization import TOKEN_HEADER, Access, RequestAuthorization, User, is_local
from bayplan.serving.bayplan_metrics import page_metrics
from bayplan.serving.deferred_server import Listener
from bayplan.serving.http_server import HealthServer, Protection
from bayplan.serving.served_page import HEADERS, PageAccess, PageEndpoints, read_assets
from prometheus_client import CollectorRegistry

from scheduler_core.errors import ServerUnavailableError
from tests.support.builders import node, pod
from tests.support.page_world import PageWorld

LOOPBACK = "127.0.0.1"
SCRIPT = b"export const answer = 42;\n" * 20


class Reviewer:
    """Reviewer of two users: ``reader`` has every permission that the page needs, ``scraper`` only for paths."""

    def __init__(self) -> None:
        self.is_unavailable = False
        self.calls: list[str] = []

    async def user_of(self, token: str, audience: str = "") -> User | None:
        if self.is_unavailable:
            raise ServerUnavailableError("connection refused")
        return User(token.removeprefix("of-")) if token.startswith("of-") and not audience else None

    async def access(self, user: User, verb: str, path: str) -> Access:
        self.calls.append(f"{user.username} {verb} {path}")
        return Access(allowed=True)

    async def resource_access(self, user: User, verb: str, resource: str, namespace: str = "") -> Access:
        self.calls.append(f"{user.username} {verb} {resource}")
        return Access(user.username == "reader", "by no role")


class PageServer:
    """Server of the page.

    Attributes:
        is_local: Whether requests count as requests from this host.
    """

    def __init__(self, directory: Path) -> None:
        self.world = PageWorld()
        self.reviewer = Reviewer()
        self.readiness = Readiness(("profiles are being read",))
        self.readiness.fulfil("profiles are being read")
        self.is_local = True
        authorization = RequestAuthorization(
            self.reviewer, self.world.clock, self.is_trusted, own_paths=("/", PAGE_PATH)
        )
        self.documents = PageDocuments(self.world.sources, 1)
        page = PageEndpoints(
            documents=self.documents,
            assets=read_assets(directory),
            access=PageAccess(authorization, self.is_trusted),
            readiness=self.readiness,
            leader=lambda: LeaderState(
                True, "ns/bayplan", "other_1", LeaderEndpoint("https://10.0.0.1:10259", "0" * 64)
            ),
            is_suspended=lambda: False,
        )
        metrics = CollectorRegistry()
        metrics.register(page_metrics(self.documents.stream))
        self.server = HealthServer(
            Listener((LOOPBACK, 0)),
            self.readiness,
            metrics,
            page.routes,
            Protection(authorization=authorization),
            background=self.documents,
        )

    def is_trusted(self, request: web.Request) -> bool:
        return self.is_local and is_local(request)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, Mapping[str, str], bytes]:
        """Send a GET request without following redirects."""
        url = f"http://{LOOPBACK}:{self.server.port}{path}"
        async with (
            aiohttp.ClientSession(auto_decompress=False) as client,
            client.get(url, headers=headers, allow_redirects=False) as response,
        ):
            return response.status, response.headers, await response.read()

    async def error(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Send a GET request that is rejected; return the status and the error message."""
        status, _, body = await self.get(path, headers)
        return status, json.loads(body)["error"]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[PageServer]:
    (tmp_path / "panels").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "panels" / "pending.mjs").write_bytes(SCRIPT)
    (tmp_path.parent / "secret").write_text("secret")
    made = PageServer(tmp_path)
    await made.server.start()
    yield made
    await made.server.stop()


async def test_a_pasted_manifest_may_arrive_in_parts(served: PageServer) -> None:
    """The whole body is read, although the first read returns only its beginning."""
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "m"}]}}
    manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod}).encode()

    async def in_parts() -> AsyncIterator[bytes]:
        for part in (manifest[:30], manifest[30:60], manifest[60:]):
            yield part
            await asyncio.sleep(0.02)

    url = f"http://{LOOPBACK}:{served.server.port}/page/data/room"
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession() as client, client.post(url, data=in_parts(), headers=headers) as response:
        assert (response.status, (await response.json()).get("error")) == (200, None)


async def test_every_response_has_the_headers(served: PageServer) -> None:
    """Every response has headers that forbid scripts and frames of other origins."""
    paths = ("", "/", "/assets/panels/pending.mjs", "/assets/none", "/data/pending", "/data/none", "/data/room")
    for path in paths:
        _, headers, _ = await served.get(f"/page{path}")
        assert {name: headers[name] for name in HEADERS} == dict(HEADERS)
        assert "Set-Cookie" not in headers
    served.is_local = False
    _, headers, _ = await served.get("/page/data/pending")
    assert {name: headers[name] for name in HEADERS} == dict(HEADERS)


async def test_static_files(served: PageServer) -> None:
    """Static files need no token and are revalidated by their hash."""
    served.is_local = False
    for path in ("/", "/page"):
        status, headers, _ = await served.get(path)
        assert (status, headers["Location"]) == (308, "page/")
    assert (await served.get("/page/", {"Accept-Encoding": "identity"}))[2] == b"<!doctype html>"
    status, headers, body = await served.get("/page/assets/panels/pending.mjs", {"Accept-Encoding": "identity"})
    assert (status, body, headers["Cache-Control"]) == (200, SCRIPT, "no-cache")
    assert headers["Content-Type"].startswith("text/javascript")
    zipped = await served.get("/page/assets/panels/pending.mjs", {"Accept-Encoding": "gzip"})
    assert len(zipped[2]) < len(SCRIPT) / 2
    again = await served.get("/page/assets/panels/pending.mjs", {"If-None-Match": headers["ETag"]})
    assert again[0] == 304
    for path in ("../secret", "..%2fsecret", "%2e%2e/secret", "panels"):
        assert (await served.get(f"/page/assets/{path}"))[0] == 404


async def test_documents(served: PageServer) -> None:
    """Each panel has a document that is not cached."""
    served.world.rig.add(node("a"))
    for name in served.documents.stream.names:
        status, headers, body = await served.get(f"/page/data/{name}")
        assert (status, headers["Cache-Control"], headers["Content-Type"]) == (200, "no-store", "application/json")
        assert isinstance(json.loads(body), dict)
    assert (await served.error("/page/data/none"))[0] == 404


async def test_documents_with_parameters(served: PageServer) -> None:
    """Requests with parameters are validated and return a document."""
    served.world.rig.add(node("a", allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    served.world.add(pod("one", requests={"cpu": "9"}))
    found = json.loads((await served.get("/page/data/work?namespace=default&pod=one"))[2])
    assert (found["kind"], found["explanation"]["verdict"]) == ("pod", "Unschedulable")
    assert json.loads((await served.get("/page/data/room?requests=cpu%3D1"))[2])["fits"] == 4
    assert await served.error("/page/data/work?namespace=default&pod=none") == (
        404,
        "pod default/none not found; check the namespace and the name",
    )
    assert (await served.error("/page/data/work?namespace=default"))[0] == 400
    assert (await served.error("/page/data/work?namespace=a&podgroup=b&api=c"))[0] == 400
    assert (await served.error("/page/data/room?requests=cpu%3Dx"))[0] == 400
    assert (await served.error("/page/events?panels=none"))[0] == 400


@pytest.mark.parametrize(
    "path", ["data/overview", "data/work?namespace=a&pod=b", "data/room?requests=cpu%3D1", "events"]
)
async def test_callers_from_other_hosts_need_permission(served: PageServer, path: str) -> None:
    """A caller from another host needs a token whose user may list what the page shows."""
    served.is_local = False
    status, text = await served.error(f"/page/{path}")
    assert (status, "kubectl create token" in text) == (401, True)
    assert (await served.error(f"/page/{path}", {"Authorization": "Bearer other"}))[0] == 401
    status, text = await served.error(f"/page/{path}", {"Authorization": "Bearer of-scraper"})
    assert status == 403
    assert text.startswith('forbidden: User "scraper" cannot list pods in all namespaces: by no role; ')
    served.reviewer.is_unavailable = True
    assert (await served.error(f"/page/{path}", {"Authorization": "Bearer of-new-user"}))[0] == 503


@pytest.mark.parametrize("header", [{"Authorization": "Bearer of-reader"}, {TOKEN_HEADER: "of-reader"}])
async def test_a_token_in_either_header_is_accepted(served: PageServer, header: Mapping[str, str]) -> None:
    """The token may be in another header, because the API server's proxy strips Authorization."""
    served.is_local = False
    assert (await served.get("/page/data/overview", header))[0] == 200
    assert served.reviewer.calls == ["reader get /page/data", "reader list pods", "reader list nodes"]


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:10259", 200), ("rebound.example:10259", 401), ("", 401)],
)
async def test_the_host_header_of_a_local_caller(served: PageServer, host: str, status: int) -> None:
    """A local request is rejected if its Host header is a name that another site can resolve to loopback."""
    assert (await served.get("/page/data/overview", {"Host": host}))[0] == status


async def test_without_authorization_other_hosts_are_rejected() -> None:
    """Without authorization a request from another host is rejected with a message that has the remedy."""
    access = PageAccess(None, lambda _: False)
    request = aiohttp.test_utils.make_mocked_request("GET", "/page/data/overview")
    denial = await access.denial(request)
    assert denial is not None
    assert (denial.code, "kubectl port-forward" in denial.message) == (403, True)


async def test_a_standby_names_the_leader(served: PageServer) -> None:
    """A standby rejects requests for documents and names the leader; it serves static files."""
    served.readiness.stand_by(lambda: "standby, other_1 leads")
    status, _, body = await served.get("/page/data/overview")
    found = json.loads(body)
    assert status == 503
    assert found.pop("error").startswith("this replica is a standby: other_1 leads")
    assert found == {
        "standby": True,
        "lease": "ns/bayplan",
        "holder": "other_1",
        "url": "https://10.0.0.1:10259",
        "localPort": served.server.port,
    }
    assert (await served.get("/page/events"))[0] == 503
    assert (await served.get("/page/"))[0] == 200


async def test_requests_for_documents_are_rejected_until_ready(served: PageServer) -> None:
    """Until the process is ready, the response names the missing conditions."""
    served.readiness.require("pods are being listed", lambda: "")
    status, _, body = await served.get("/page/data/overview")
    assert (status, json.loads(body)["notReady"]) == (503, ["pods are being listed"])


async def test_viewers_are_limited(served: PageServer) -> None:
    """The event stream begins with the documents, and a viewer beyond the limit is rejected until another leaves."""
    served.world.rig.add(node("a"))
    url = f"http://{LOOPBACK}:{served.server.port}/page/events?panels=nodes"
    async with aiohttp.ClientSession() as client:
        async with client.get(url) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            assert await response.content.readline() == b"event: nodes\n"
            assert (await response.content.readline()).startswith(b"id: ")
            data = (await response.content.readline()).removeprefix(b"data: ")
            assert json.loads(data)["names"] == ["a"]
            status, _, body = await served.get("/page/events")
            assert (status, json.loads(body)["viewers"]) == (503, 1)
        for _ in range(100):
            status = await status_of(served)
            if status == 200:
                break
            await asyncio.sleep(0.1)
        assert status == 200


async def test_metrics(served: PageServer) -> None:
    """The metrics count viewers, rejected viewers, documents by panel, their time, and sent bytes."""
    assert await sample(served, "bayplan_page_viewers") == 0
    url = f"http://{LOOPBACK}:{served.server.port}/page/events?panels=gangs"
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        event = await response.content.readuntil(b"\n\n")
        assert (await served.get("/page/events"))[0] == 503
        assert await sample(served, "bayplan_page_viewers") == 1
    error_bytes = await sample(served, "bayplan_page_sent_bytes_total") - len(event)
    assert error_bytes > 0
    body = (await served.get("/page/data/pending"))[2]
    assert await sample(served, "bayplan_page_sent_bytes_total") == len(event) + error_bytes + len(body)
    assert await sample(served, "bayplan_page_viewers_refused_total") == 1
    assert await sample(served, 'bayplan_page_documents_total{panel="pending"}') == 1
    assert await sample(served, 'bayplan_page_documents_total{panel="rates"}') == 0
    served.documents.stream.turns.spent = 1.5
    assert await sample(served, "bayplan_page_seconds_total") == 1.5


async def sample(served: PageServer, name: str) -> float:
    lines = (await served.get("/metrics"))[2].decode().splitlines()
    (value,) = (line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == name)
    return float(value)


async def status_of(served: PageServer) -> int:
    """Open the event stream and return the status, which is 503 until the previous viewer has left."""
    url = f"http://{LOOPBACK}:{served.server.port}/page/events?panels=rates"
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        if response.status == 200:
            await response.content.readline()
        return response.status


async def test_explanations_for_viewers_use_a_tenth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer who requests one long explanation after another gets a tenth of the process's time."""
    now = [0.0]
    monkeypatch.setattr(served_page, "monotonic", lambda: now[0])
    page = PageServer(tmp_path)

    def explain(*_: object, **__: object) -> None:
        now[0] += 0.5

    monkeypatch.setattr(page.documents, "read_work", explain)
    await page.server.start()
    try:
        statuses, waits = [], []
        for _ in range(100):
            status, headers, _ = await page.get("/page/data/work?namespace=a&pod=b")
            statuses.append(status)
            if status == 503:
                waits.append(int(headers["Retry-After"]))
                now[0] += 0.5
    finally:
        await page.server.stop()
    assert set(statuses) == {404, 503}
    assert 0.5 * statuses.count(404) <= 0.1 * now[0] + 0.5
    assert max(waits) <= 10
