"""Authentication and authorization of requests, with a scripted API server."""

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
from bayplan.serving.http_server import HealthServer
from bayplan.serving.same_host_access import for_this_host
from bayplan.serving.server_protection import Protection
from prometheus_client import CollectorRegistry

from scheduler_core.errors import ServerUnavailableError
from tests.support.virtual_clock import VirtualClock

LOOPBACK = "127.0.0.1"


class Reviewer:
    """Reviewer of tokens and permissions that records its calls."""

    def __init__(self) -> None:
        self.users = {
            "of-prometheus": User("prometheus"),
            "of-stranger": User("stranger"),
            "of-master": User("admin", groups=("system:masters",)),
        }
        self.commands = {"of-replica": User("bayplan"), "of-monitor": User("monitor")}
        self.calls: list[str] = []
        self.is_unavailable = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """Return the user by token and audience."""
        self.calls.append("token")
        await self.may_answer.wait()
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
        """Allow nobody; only the page reviews resources."""
        self.calls.append(f"{user.username} {verb} {resource}")
        return Access(allowed=False)


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def untrusted(remote: str | None) -> bool:
    """Trust no address, since tests send requests from loopback."""
    return False


async def served(authorization: RequestAuthorization | None) -> HealthServer:
    async def secret(_: web.Request) -> web.Response:
        return web.Response(text="pods of every namespace")

    routes = [web.get(path, for_this_host(secret)) for path in ("/debug/status", "/debug/tasks")]
    protection = Protection(authorization=authorization)
    server = HealthServer(Listener((LOOPBACK, 0)), Readiness(()), CollectorRegistry(), routes, protection)
    await server.start()
    return server


@pytest.fixture
async def server(reviewer: Reviewer, clock: VirtualClock) -> AsyncIterator[HealthServer]:
    server = await served(RequestAuthorization(reviewer, clock, untrusted, {"/debug/status"}))
    yield server
    await server.stop()


async def ask(server: HealthServer, path: str, header: str = "", method: str = "GET") -> tuple[int, str]:
    headers = {"Authorization": header} if header else {}
    url = f"http://{LOOPBACK}:{server.port}{path}"
    async with aiohttp.ClientSession() as client, client.request(method, url, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("path", "header", "status", "expected"),
    [
        pytest.param("/metrics", "Bearer of-prometheus", 200, "", id="the right to get it"),
        pytest.param("/metrics", "bearer  of-prometheus", 200, "", id="another way to write it"),
        pytest.param("/debug/tasks", "Bearer of-master", 200, "pods", id="system:masters may do everything"),
        pytest.param("/debug/status", "Bearer of-replica", 200, "pods", id="a command of another replica"),
        pytest.param(
            "/debug/status", "Bearer of-monitor", 403, '"monitor" cannot get', id="a command without the right"
        ),
        pytest.param(
            "/debug/status", "Bearer of-master", 401, "for audience bayplan.dev", id="a token for the API server"
        ),
        pytest.param("/metrics", "Bearer of-replica", 401, "is not valid", id="a token for commands on another path"),
        pytest.param("/metrics", "", 401, "send a bearer token", id="no token"),
        pytest.param("/metrics", "Basic of-prometheus", 401, "send a bearer token", id="no bearer token"),
        pytest.param("/metrics", "Bearer ", 401, "send a bearer token", id="an empty token"),
        pytest.param("/metrics", "Bearer of-unknown", 401, "the token is not valid", id="an unknown token"),
        pytest.param(
            "/metrics", "Bearer of-stranger", 403, '"stranger" cannot get path "/metrics": by no role', id="403"
        ),
        pytest.param("/debug/tasks", "Bearer of-prometheus", 403, "/debug/tasks", id="another path"),
        pytest.param("/nowhere", "", 401, "send a bearer token", id="a path that does not exist"),
        pytest.param("/livez", "", 200, "ok", id="livez is for all"),
        pytest.param("/healthz", "Bearer of-unknown", 200, "ok", id="healthz is for all"),
        pytest.param("/readyz", "", 200, "ok", id="readyz is for all"),
        pytest.param("/livez/", "", 401, "", id="a path similar to health"),
    ],
)
async def test_who_is_accepted(server: HealthServer, path: str, header: str, status: int, expected: str) -> None:
    """The API server authorizes the path and the verb; health is open to all."""
    found, text = await ask(server, path, header)
    assert found == status
    assert expected in (json.loads(text)["message"] if status in (401, 403) else text)


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        pytest.param("/debug/status", "Bearer of-replica", 200, id="a command of another replica"),
        pytest.param("/debug/tasks", "Bearer of-master", 403, id="a path that is not for commands"),
    ],
)
async def test_who_is_accepted_from_another_host(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch, path: str, header: str, status: int
) -> None:
    """Only accepted commands may get paths that name pods, and only those of commands, whatever their permissions."""
    monkeypatch.setattr(same_host_access, "is_on_this_host", untrusted)
    assert (await ask(server, path, header))[0] == status


async def test_other_hosts_are_rejected_without_authorization(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without authorization there are no accepted commands."""
    monkeypatch.setattr(same_host_access, "is_on_this_host", untrusted)
    server = await served(None)
    try:
        assert (await ask(server, "/debug/status", "Bearer of-replica"))[0] == 403
    finally:
        await server.stop()


async def test_a_token_is_reviewed_for_each_audience(server: HealthServer, reviewer: Reviewer) -> None:
    """A review for one audience is not used for another."""
    reviewer.users["of-both"] = User("prometheus")
    reviewer.commands["of-both"] = User("stranger")
    assert (await ask(server, "/metrics", "Bearer of-both"))[0] == 200
    assert (await ask(server, "/debug/status", "Bearer of-both"))[0] == 403


async def test_a_token_that_is_not_ascii(server: HealthServer, reviewer: Reviewer) -> None:
    """It is rejected without a review."""
    reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\xfe\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert reviewer.calls == []


async def test_the_verb_is_the_method(server: HealthServer, reviewer: Reviewer) -> None:
    """Permission to get a path does not include other verbs."""
    assert (await ask(server, "/metrics", "Bearer of-prometheus", "HEAD"))[0] == 403
    assert reviewer.calls[-1] == "prometheus head /metrics"


async def test_a_rejection_is_a_status(server: HealthServer) -> None:
    """Kubernetes clients can decode it like one of the API server's."""
    document = json.loads((await ask(server, "/metrics", "Bearer of-stranger"))[1])
    assert (document["kind"], document["apiVersion"], document["status"]) == ("Status", "v1", "Failure")
    assert (document["reason"], document["code"]) == ("Forbidden", 403)


async def test_loopback_needs_no_token(reviewer: Reviewer, clock: VirtualClock) -> None:
    """The API server has authorized the exec or port-forward, and may be unavailable by now."""
    reviewer.is_unavailable = True
    server = await served(RequestAuthorization(reviewer, clock))
    try:
        assert await ask(server, "/debug/status") == (200, "pods of every namespace")
        assert reviewer.calls == []
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("Bearer of-prometheus", ["token", "prometheus get /metrics"], id="allowed"),
        pytest.param("Bearer of-stranger", ["token", "stranger get /metrics"], id="denied"),
        pytest.param("Bearer of-unknown", ["token"], id="unknown"),
    ],
)
async def test_reviews_are_cached_for_ten_seconds(
    server: HealthServer, reviewer: Reviewer, clock: VirtualClock, header: str, expected: list[str]
) -> None:
    """There is no review for each scrape, and a revoked permission ends soon."""
    for _ in range(2):
        await ask(server, "/metrics", header)
    assert reviewer.calls == expected
    clock.advance(9.9)
    await ask(server, "/metrics", header)
    assert reviewer.calls == expected
    clock.advance(0.2)
    await ask(server, "/metrics", header)
    assert reviewer.calls == expected * 2


async def test_an_unavailable_api_server(server: HealthServer, reviewer: Reviewer) -> None:
    """Requests from other hosts are rejected, errors are not cached, and health is still served."""
    reviewer.is_unavailable = True
    status, text = await ask(server, "/metrics", "Bearer of-prometheus")
    assert status == 503
    assert "the API server cannot authorize the request: connection refused; retry" in text
    assert (await ask(server, "/livez"))[0] == 200
    reviewer.is_unavailable = False
    assert (await ask(server, "/metrics", "Bearer of-prometheus"))[0] == 200


async def test_an_api_server_that_hangs(server: HealthServer, reviewer: Reviewer) -> None:
    """Probes are served meanwhile, equal requests share one review, and too many reviews at once are rejected."""
    reviewer.may_answer.clear()
    equal = [asyncio.create_task(ask(server, "/metrics", "Bearer of-prometheus")) for _ in range(5)]
    different = [asyncio.create_task(ask(server, "/metrics", f"Bearer of-{number}")) for number in range(70)]
    rejected, _ = await asyncio.wait(different, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result()[0] for task in rejected} == {503}
    assert (await ask(server, "/readyz"))[0] == 200
    reviewer.may_answer.set()
    assert {(await task)[0] for task in equal} == {200}
    assert {(await task)[0] for task in different} == {401, 503}
    assert len(reviewer.calls) <= 65


@pytest.mark.parametrize("change", [pytest.param(lambda user: User(user.username, groups=("ops",)), id="groups")])
async def test_reviews_are_cached_for_each_user(
    server: HealthServer, reviewer: Reviewer, change: Callable[[User], User]
) -> None:
    """Two tokens with the same user name may have different permissions."""
    reviewer.users["other"] = change(reviewer.users["of-prometheus"])
    await ask(server, "/metrics", "Bearer of-prometheus")
    await ask(server, "/metrics", "Bearer other")
    assert reviewer.calls.count("prometheus get /metrics") == 2
