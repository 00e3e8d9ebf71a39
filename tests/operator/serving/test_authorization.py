"""Tests of authentication and authorization of requests, with a scripted reviewer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from bayplan.kube.readiness import Readiness
from bayplan.serving import authorization
from bayplan.serving.authorization import (
    COMMAND_AUDIENCE,
    Access,
    Permission,
    RequestAuthorization,
    User,
    for_this_host,
)
from bayplan.serving.deferred_server import Listener
from bayplan.serving.http_server import HealthServer, Protection
from prometheus_client import CollectorRegistry

from scheduler_core.errors import ServerUnavailableError
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

LOOPBACK = "127.0.0.1"


class Reviewer:
    """Reviewer of tokens and permissions that records its calls."""

    def __init__(self) -> None:
        self.users = {
            "of-prometheus": User("prometheus"),
            "of-intruder": User("intruder"),
            "of-master": User("admin", groups=("system:masters",)),
        }
        self.commands = {"of-replica": User("bayplan"), "of-monitor": User("monitor")}
        self.calls: list[str] = []
        self.is_unavailable = False
        self.may_respond = asyncio.Event()
        self._call = asyncio.Condition()
        self.may_respond.set()

    async def called(self, count: int) -> None:
        """Wait for a number of calls."""
        async with self._call:
            await self._call.wait_for(lambda: len(self.calls) >= count)

    async def user_of(self, token: str, audience: str = "") -> User | None:
        self.calls.append("token")
        async with self._call:
            self._call.notify_all()
        await self.may_respond.wait()
        if self.is_unavailable:
            raise ServerUnavailableError("connection refused")
        return {"": self.users, COMMAND_AUDIENCE: self.commands}[audience].get(token)

    async def access(self, user: User, verb: str, path: str) -> Access:
        """Allow Prometheus to get /metrics, and a replica to get the status."""
        self.calls.append(f"{user.username} {verb} {path}")
        if self.is_unavailable:
            raise ServerUnavailableError("connection refused")
        rights = {("prometheus", "get", "/metrics"), ("bayplan", "get", "/debug/status")}
        return Access((user.username, verb, path) in rights, "by no role")

    async def resource_access(self, user: User, verb: str, resource: str, namespace: str = "") -> Access:
        """Deny every request; only the page reviews access to resources."""
        self.calls.append(f"{user.username} {verb} {resource}")
        return Access(allowed=False)


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def untrusted(request: web.Request) -> bool:
    """Return False for every request, since tests send them to loopback."""
    return False


async def start_server(authorization: RequestAuthorization | None, listener: Listener | None = None) -> HealthServer:
    async def secret(_: web.Request) -> web.Response:
        return web.Response(text="pods of every namespace")

    routes = [web.get(path, for_this_host(secret)) for path in ("/debug/status", "/debug/tasks")]
    protection = Protection(authorization=authorization)
    listener = listener or Listener((LOOPBACK, 0))
    server = HealthServer(listener, Readiness(()), CollectorRegistry(), routes, protection)
    await server.start()
    return server


@pytest.fixture
async def server(reviewer: Reviewer, clock: VirtualClock) -> AsyncIterator[HealthServer]:
    server = await start_server(RequestAuthorization(reviewer, clock, untrusted, {"/debug/status"}))
    yield server
    await server.stop()


async def send(server: HealthServer, path: str, header: str = "", method: str = "GET") -> tuple[int, str]:
    headers = {"Authorization": header} if header else {}
    url = f"http://{LOOPBACK}:{server.port}{path}"
    async with aiohttp.ClientSession() as client, client.request(method, url, headers=headers) as response:
        return response.status, await response.text()


@table(
    "path, header, status, expected",
    ("permission to get the path", "/metrics", "Bearer of-prometheus", 200, ""),
    ("lower-case scheme and two spaces", "/metrics", "bearer  of-prometheus", 200, ""),
    ("system:masters has every permission", "/debug/tasks", "Bearer of-master", 200, "pods"),
    ("command of another replica", "/debug/status", "Bearer of-replica", 200, "pods"),
    ("command without permission", "/debug/status", "Bearer of-monitor", 403, '"monitor" cannot get'),
    ("token for the API server", "/debug/status", "Bearer of-master", 401, "for audience bayplan.dev"),
    ("token for commands on another path", "/metrics", "Bearer of-replica", 401, "is not valid"),
    ("no token", "/metrics", "", 401, "send a bearer token"),
    ("not a bearer token", "/metrics", "Basic of-prometheus", 401, "send a bearer token"),
    ("empty token", "/metrics", "Bearer ", 401, "send a bearer token"),
    ("unknown token", "/metrics", "Bearer of-unknown", 401, "the token is not valid"),
    ("no permission", "/metrics", "Bearer of-intruder", 403, '"intruder" cannot get path "/metrics": by no role'),
    ("another path", "/debug/tasks", "Bearer of-prometheus", 403, "/debug/tasks"),
    ("path that does not exist", "/nowhere", "", 401, "send a bearer token"),
    ("livez without a token", "/livez", "", 200, "ok"),
    ("healthz with an unknown token", "/healthz", "Bearer of-unknown", 200, "ok"),
    ("readyz without a token", "/readyz", "", 200, "ok"),
    ("path similar to a health path", "/livez/", "", 401, ""),
)
async def test_requests_are_authorized(
    server: HealthServer, path: str, header: str, status: int, expected: str
) -> None:
    """The API server authorizes the path and the verb; health paths need no authorization."""
    found, text = await send(server, path, header)
    assert found == status
    assert expected in (json.loads(text)["message"] if status in (401, 403) else text)


@table(
    "path, header, status",
    ("command of another replica", "/debug/status", "Bearer of-replica", 200),
    ("path that is not for commands", "/debug/tasks", "Bearer of-master", 403),
)
async def test_paths_of_pods_accept_only_commands_from_other_hosts(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch, path: str, header: str, status: int
) -> None:
    """From another host, paths that name pods accept only the tokens of commands and only on the paths of commands."""
    monkeypatch.setattr(authorization, "is_local", untrusted)
    assert (await send(server, path, header))[0] == status


async def test_other_hosts_are_rejected_without_authorization(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without authorization a server rejects requests from other hosts on paths that name pods."""
    monkeypatch.setattr(authorization, "is_local", untrusted)
    server = await start_server(None)
    try:
        assert (await send(server, "/debug/status", "Bearer of-replica"))[0] == 403
    finally:
        await server.stop()


async def test_a_token_is_reviewed_for_each_audience(server: HealthServer, reviewer: Reviewer) -> None:
    """A review for one audience is not used for another audience."""
    reviewer.users["of-both"] = User("prometheus")
    reviewer.commands["of-both"] = User("intruder")
    assert (await send(server, "/metrics", "Bearer of-both"))[0] == 200
    assert (await send(server, "/debug/status", "Bearer of-both"))[0] == 403


async def test_a_token_that_is_not_ascii_is_rejected(server: HealthServer, reviewer: Reviewer) -> None:
    """A token that is not ASCII is rejected without a review."""
    reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\xfe\r\nConnection: close\r\n\r\n")
    response = await reader.read()
    writer.close()
    assert response.startswith(b"HTTP/1.1 401 ")
    assert reviewer.calls == []


async def test_the_verb_is_the_method(server: HealthServer, reviewer: Reviewer) -> None:
    """The reviewed verb is the HTTP method: permission to get a path does not include head."""
    assert (await send(server, "/metrics", "Bearer of-prometheus", "HEAD"))[0] == 403
    assert reviewer.calls[-1] == "prometheus head /metrics"


async def test_a_rejection_is_a_status(server: HealthServer) -> None:
    """A rejection is a Status that Kubernetes clients can decode."""
    document = json.loads((await send(server, "/metrics", "Bearer of-intruder"))[1])
    assert (document["kind"], document["apiVersion"], document["status"]) == ("Status", "v1", "Failure")
    assert (document["reason"], document["code"]) == ("Forbidden", 403)


async def test_local_requests_need_no_token(reviewer: Reviewer, clock: VirtualClock) -> None:
    """A request to a listener on loopback needs no token and no review, also when the API server is unavailable."""
    reviewer.is_unavailable = True
    server = await start_server(RequestAuthorization(reviewer, clock))
    try:
        assert await send(server, "/debug/status") == (200, "pods of every namespace")
        assert reviewer.calls == []
    finally:
        await server.stop()


@table(
    "headers",
    ("name that another site resolves to loopback", {"Host": "rebound.example:10259"}),
    ("address of the pod", {"Host": "10.0.0.7:10259"}),
    ("no host", {"Host": ""}),
    ("proxy that adds X-Forwarded-For", {"X-Forwarded-For": "10.0.0.7"}),
    ("proxy that adds X-Forwarded-Proto", {"X-Forwarded-Proto": "http"}),
    ("proxy that adds Forwarded", {"Forwarded": "for=10.0.0.7"}),
    ("proxy that adds Via", {"Via": "1.1 proxy"}),
)
@pytest.mark.parametrize(("is_authorized", "code"), [(True, 401), (False, 403)])
async def test_indirect_requests_are_not_local(
    reviewer: Reviewer, clock: VirtualClock, headers: dict[str, str], *, is_authorized: bool, code: int
) -> None:
    """A request through a proxy or by another site's name needs a token on every path but those of health."""
    server = await start_server(RequestAuthorization(reviewer, clock) if is_authorized else None)
    try:
        for path, expected in (("/debug/status", code), ("/debug/tasks", code), ("/metrics", code), ("/livez", 200)):
            url = f"http://{LOOPBACK}:{server.port}{path}"
            async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as response:
                assert (path, response.status) == (path, expected)
    finally:
        await server.stop()


async def test_only_the_listener_on_loopback_is_trusted(reviewer: Reviewer, clock: VirtualClock) -> None:
    """A request from loopback to a listener for other hosts needs a token, as one of a sidecar proxy does."""
    listener = Listener(("0.0.0.0", 0), (LOOPBACK, 0))  # noqa: S104 - the listener for other hosts
    local_port = listener.sockets[-1].getsockname()[1]
    server = await start_server(RequestAuthorization(reviewer, clock), listener)
    try:
        assert (await send(server, "/debug/status"))[0] == 401
        assert (await send(server, "/metrics"))[0] == 401
        server.port = local_port
        assert (await send(server, "/debug/status"))[0] == 200
        assert (await send(server, "/metrics"))[0] == 200
    finally:
        await server.stop()


@table(
    "header, expected",
    ("allowed", "Bearer of-prometheus", ["token", "prometheus get /metrics"]),
    ("denied", "Bearer of-intruder", ["token", "intruder get /metrics"]),
    ("unknown", "Bearer of-unknown", ["token"]),
)
async def test_reviews_are_cached_for_ten_seconds(
    server: HealthServer, reviewer: Reviewer, clock: VirtualClock, header: str, expected: list[str]
) -> None:
    """A review is cached for ten seconds, whether it allows or denies."""
    for _ in range(2):
        await send(server, "/metrics", header)
    assert reviewer.calls == expected
    clock.advance(9.9)
    await send(server, "/metrics", header)
    assert reviewer.calls == expected
    clock.advance(0.2)
    await send(server, "/metrics", header)
    assert reviewer.calls == expected * 2


async def test_an_unavailable_api_server_rejects_requests(server: HealthServer, reviewer: Reviewer) -> None:
    """Without the API server, requests are rejected, errors are not cached, and health paths are served."""
    reviewer.is_unavailable = True
    status, text = await send(server, "/metrics", "Bearer of-prometheus")
    assert status == 503
    assert "the API server cannot authorize the request: connection refused; retry" in text
    assert (await send(server, "/livez"))[0] == 200
    reviewer.is_unavailable = False
    assert (await send(server, "/metrics", "Bearer of-prometheus"))[0] == 200


async def test_a_hanging_api_server_blocks_only_reviews(
    server: HealthServer, reviewer: Reviewer, clock: VirtualClock
) -> None:
    """While reviews hang, probes are served, equal requests share one review, and others wait a bounded time."""
    reviewer.may_respond.clear()
    equal = [asyncio.create_task(send(server, "/metrics", "Bearer of-prometheus")) for _ in range(5)]
    different = [asyncio.create_task(send(server, "/metrics", f"Bearer of-{number}")) for number in range(70)]
    await reviewer.called(4)
    assert (await send(server, "/readyz"))[0] == 200
    while sum(not task.done() for task in different) > 4:
        clock.advance(7)
        await asyncio.sleep(0.01)
    reviewer.may_respond.set()
    assert {(await task)[0] for task in equal} == {200}
    assert {(await task)[0] for task in different} == {401, 503}
    assert len(reviewer.calls) <= 8


class BogusTokens:
    """Callers that send unknown tokens without a pause, each a new one."""

    def __init__(self, authorization: RequestAuthorization, origins: list[str], clock: VirtualClock) -> None:
        self._authorization = authorization
        self._clock = clock
        self._tasks = [asyncio.create_task(self._send(f"{number}", each)) for number, each in enumerate(origins)]

    async def _send(self, name: str, origin: str) -> None:
        count = 0
        while True:
            count += 1
            token = f"bogus-{name}-{count}"
            await self._authorization.denial(token, (Permission("get", "/metrics"),), origin=origin)
            await self._clock.sleep(0.05)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@table(
    "origins, own",
    ("one other address", ["10.0.0.6"] * 64, "10.0.0.7"),
    ("64 other addresses", [f"10.0.1.{number}" for number in range(64)], "10.0.0.7"),
    ("more than may wait", ["10.0.0.6"] * 270, "10.0.0.7"),
    ("its own address", ["10.0.0.7"] * 64, "10.0.0.7"),
    ("unknown addresses", [""] * 64, ""),
)
async def test_bogus_tokens_do_not_keep_out_a_valid_one(
    reviewer: Reviewer, clock: VirtualClock, origins: list[str], own: str
) -> None:
    """A caller with a valid token is served while others send bogus ones; their reviews have a rate."""
    authorization = RequestAuthorization(reviewer, clock)
    attack = BogusTokens(authorization, origins, clock)
    outcomes: list[object] = []

    async def scrape() -> None:
        for _ in range(15):
            outcomes.append(await authorization.denial("of-prometheus", (Permission("get", "/metrics"),), origin=own))
            await clock.sleep(1)

    began = clock.now()
    scraping = asyncio.create_task(scrape())
    while not scraping.done():
        clock.advance(0.1)
        for _ in range(8):
            await asyncio.sleep(0)
    await attack.stop()
    assert outcomes == [None] * 15
    assert len(reviewer.calls) <= 80 + 30 + 20 * (clock.now() - began + 1)


async def test_a_rejected_user_does_not_keep_out_others(reviewer: Reviewer, clock: VirtualClock) -> None:
    """A known user who requests ever new paths takes turns with other users."""
    authorization = RequestAuthorization(reviewer, clock)
    paths = (authorization.denial("of-intruder", (Permission("get", f"/{number}"),)) for number in range(300))
    intruder = [asyncio.create_task(each) for each in paths]
    scrape = asyncio.create_task(authorization.denial("of-prometheus", (Permission("get", "/metrics"),)))
    for _ in range(40):
        clock.advance(0.05)
        for _ in range(20):
            await asyncio.sleep(0)
    assert scrape.done()
    assert scrape.result() is None
    for task in intruder:
        task.cancel()
    await asyncio.gather(*intruder, return_exceptions=True)


async def test_reviews_are_cached_for_each_user(server: HealthServer, reviewer: Reviewer) -> None:
    """Reviews are cached by user and groups: two tokens with one user name can have different permissions."""
    reviewer.users["other"] = User("prometheus", groups=("ops",))
    await send(server, "/metrics", "Bearer of-prometheus")
    await send(server, "/metrics", "Bearer other")
    assert reviewer.calls.count("prometheus get /metrics") == 2
