"""Tests of authentication and authorization of requests, with a scripted reviewer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from aiohttp import web
from bayplan.kube.access_reviews import Access, User
from bayplan.kube.readiness import Readiness
from bayplan.serving import same_host_access
from bayplan.serving.authorization import COMMAND_AUDIENCE, RequestAuthorization
from bayplan.serving.deferred_server import Listener
from bayplan.serving.http_server import HealthServer, Protection
from bayplan.serving.same_host_access import for_this_host
from prometheus_client import CollectorRegistry

from scheduler_core.errors import ServerUnavailableError
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
        self.may_respond.set()

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """Return the user by token and audience."""
        self.calls.append("token")
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

    async def resource_access(self, user: User, verb: str, resource: str) -> Access:
        """Deny every request; only the page reviews access to resources."""
        self.calls.append(f"{user.username} {verb} {resource}")
        return Access(allowed=False)


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def untrusted(remote: str | None) -> bool:
    """Return False for every address, since tests send requests from loopback."""
    return False


async def start_server(authorization: RequestAuthorization | None) -> HealthServer:
    async def secret(_: web.Request) -> web.Response:
        return web.Response(text="pods of every namespace")

    routes = [web.get(path, for_this_host(secret)) for path in ("/debug/status", "/debug/tasks")]
    protection = Protection(authorization=authorization)
    server = HealthServer(Listener((LOOPBACK, 0)), Readiness(()), CollectorRegistry(), routes, protection)
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


@pytest.mark.parametrize(
    ("path", "header", "status", "expected"),
    [
        pytest.param("/metrics", "Bearer of-prometheus", 200, "", id="permission to get the path"),
        pytest.param("/metrics", "bearer  of-prometheus", 200, "", id="lower-case scheme and two spaces"),
        pytest.param("/debug/tasks", "Bearer of-master", 200, "pods", id="system:masters has every permission"),
        pytest.param("/debug/status", "Bearer of-replica", 200, "pods", id="command of another replica"),
        pytest.param(
            "/debug/status", "Bearer of-monitor", 403, '"monitor" cannot get', id="command without permission"
        ),
        pytest.param(
            "/debug/status", "Bearer of-master", 401, "for audience bayplan.dev", id="token for the API server"
        ),
        pytest.param("/metrics", "Bearer of-replica", 401, "is not valid", id="token for commands on another path"),
        pytest.param("/metrics", "", 401, "send a bearer token", id="no token"),
        pytest.param("/metrics", "Basic of-prometheus", 401, "send a bearer token", id="not a bearer token"),
        pytest.param("/metrics", "Bearer ", 401, "send a bearer token", id="empty token"),
        pytest.param("/metrics", "Bearer of-unknown", 401, "the token is not valid", id="unknown token"),
        pytest.param(
            "/metrics",
            "Bearer of-intruder",
            403,
            '"intruder" cannot get path "/metrics": by no role',
            id="no permission",
        ),
        pytest.param("/debug/tasks", "Bearer of-prometheus", 403, "/debug/tasks", id="another path"),
        pytest.param("/nowhere", "", 401, "send a bearer token", id="path that does not exist"),
        pytest.param("/livez", "", 200, "ok", id="livez without a token"),
        pytest.param("/healthz", "Bearer of-unknown", 200, "ok", id="healthz with an unknown token"),
        pytest.param("/readyz", "", 200, "ok", id="readyz without a token"),
        pytest.param("/livez/", "", 401, "", id="path similar to a health path"),
    ],
)
async def test_requests_are_authorized(
    server: HealthServer, path: str, header: str, status: int, expected: str
) -> None:
    """The API server authorizes the path and the verb; health paths need no authorization."""
    found, text = await send(server, path, header)
    assert found == status
    assert expected in (json.loads(text)["message"] if status in (401, 403) else text)


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        pytest.param("/debug/status", "Bearer of-replica", 200, id="command of another replica"),
        pytest.param("/debug/tasks", "Bearer of-master", 403, id="path that is not for commands"),
    ],
)
async def test_paths_of_pods_accept_only_commands_from_other_hosts(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch, path: str, header: str, status: int
) -> None:
    """From another host, paths that name pods accept only the tokens of commands and only on the paths of commands."""
    monkeypatch.setattr(same_host_access, "is_on_this_host", untrusted)
    assert (await send(server, path, header))[0] == status


async def test_other_hosts_are_rejected_without_authorization(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without authorization a server rejects requests from other hosts on paths that name pods."""
    monkeypatch.setattr(same_host_access, "is_on_this_host", untrusted)
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


async def test_loopback_needs_no_token(reviewer: Reviewer, clock: VirtualClock) -> None:
    """A request from loopback needs no token and no review, also when the API server is unavailable."""
    reviewer.is_unavailable = True
    server = await start_server(RequestAuthorization(reviewer, clock))
    try:
        assert await send(server, "/debug/status") == (200, "pods of every namespace")
        assert reviewer.calls == []
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("Bearer of-prometheus", ["token", "prometheus get /metrics"], id="allowed"),
        pytest.param("Bearer of-intruder", ["token", "intruder get /metrics"], id="denied"),
        pytest.param("Bearer of-unknown", ["token"], id="unknown"),
    ],
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


async def test_a_hanging_api_server_blocks_only_reviews(server: HealthServer, reviewer: Reviewer) -> None:
    """While reviews hang, probes are served, equal requests share one review, and excess reviews are rejected."""
    reviewer.may_respond.clear()
    equal = [asyncio.create_task(send(server, "/metrics", "Bearer of-prometheus")) for _ in range(5)]
    different = [asyncio.create_task(send(server, "/metrics", f"Bearer of-{number}")) for number in range(70)]
    rejected, _ = await asyncio.wait(different, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result()[0] for task in rejected} == {503}
    assert (await send(server, "/readyz"))[0] == 200
    reviewer.may_respond.set()
    assert {(await task)[0] for task in equal} == {200}
    assert {(await task)[0] for task in different} == {401, 503}
    assert len(reviewer.calls) <= 65


@pytest.mark.parametrize("change", [pytest.param(lambda user: User(user.username, groups=("ops",)), id="groups")])
async def test_reviews_are_cached_for_each_user(
    server: HealthServer, reviewer: Reviewer, change: Callable[[User], User]
) -> None:
    """Reviews are cached by user and groups: two tokens with one user name can have different permissions."""
    reviewer.users["other"] = change(reviewer.users["of-prometheus"])
    await send(server, "/metrics", "Bearer of-prometheus")
    await send(server, "/metrics", "Bearer other")
    assert reviewer.calls.count("prometheus get /metrics") == 2
