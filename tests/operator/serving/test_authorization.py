"""Who is answered and who is not; a scripted API server says whose tokens there are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from aiohttp import web
from bayplan.kube.access_reviews import Access, User
from bayplan.serving import local_callers
from bayplan.serving.authorization import COMMAND_AUDIENCE, RequestAuthorization
from bayplan.serving.health import HealthServer
from bayplan.serving.local_callers import for_this_host
from bayplan.serving.protection import Protection
from bayplan.serving.readiness import Readiness
from prometheus_client import CollectorRegistry

from scheduler_core.errors import ServerUnavailableError
from tests.support.virtual_clock import VirtualClock

LOOPBACK = "127.0.0.1"


class Reviewer:
    """Knows tokens and rights, and counts how often it is asked."""

    def __init__(self) -> None:
        self.users = {
            "of-prometheus": User("prometheus"),
            "of-stranger": User("stranger"),
            "of-master": User("admin", groups=("system:masters",)),
        }
        self.commands = {"of-replica": User("bayplan"), "of-monitor": User("monitor")}
        self.asked: list[str] = []
        self.is_away = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """By token and audience."""
        self.asked.append("token")
        await self.may_answer.wait()
        if self.is_away:
            raise ServerUnavailableError("connection refused")
        return {"": self.users, COMMAND_AUDIENCE: self.commands}[audience].get(token)

    async def access(self, user: User, verb: str, path: str) -> Access:
        """Prometheus may get /metrics, and a replica the status."""
        self.asked.append(f"{user.username} {verb} {path}")
        if self.is_away:
            raise ServerUnavailableError("connection refused")
        rights = {("prometheus", "get", "/metrics"), ("bayplan", "get", "/debug/status")}
        return Access((user.username, verb, path) in rights, "by no role")


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def nobody(remote: str | None) -> bool:
    """Tests ask from loopback; here that is no reason to trust."""
    return False


async def served(authorization: RequestAuthorization | None) -> HealthServer:
    async def secret(_: web.Request) -> web.Response:
        return web.Response(text="pods of every namespace")

    routes = [web.get(path, for_this_host(secret)) for path in ("/debug/status", "/debug/tasks")]
    protection = Protection(authorization=authorization)
    server = HealthServer((LOOPBACK, 0), Readiness(()), CollectorRegistry(), routes, protection)
    await server.start()
    return server


@pytest.fixture
async def server(reviewer: Reviewer, clock: VirtualClock) -> AsyncIterator[HealthServer]:
    server = await served(RequestAuthorization(reviewer, clock, nobody, {"/debug/status"}))
    yield server
    await server.stop()


async def ask(server: HealthServer, path: str, header: str = "", method: str = "GET") -> tuple[int, str]:
    headers = {"Authorization": header} if header else {}
    url = f"http://{LOOPBACK}:{server.port}{path}"
    async with aiohttp.ClientSession() as client, client.request(method, url, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("path", "header", "status", "told"),
    [
        pytest.param("/metrics", "Bearer of-prometheus", 200, "", id="the right to get it"),
        pytest.param("/metrics", "bearer  of-prometheus", 200, "", id="another way to write it"),
        pytest.param("/debug/tasks", "Bearer of-master", 200, "pods", id="a master may do all"),
        pytest.param("/debug/status", "Bearer of-replica", 200, "pods", id="a command of another replica"),
        pytest.param(
            "/debug/status", "Bearer of-monitor", 403, '"monitor" cannot get', id="a command without the right"
        ),
        pytest.param(
            "/debug/status", "Bearer of-master", 401, "of the audience bayplan.dev", id="a token for the API server"
        ),
        pytest.param("/metrics", "Bearer of-replica", 401, "does not know", id="a token for commands elsewhere"),
        pytest.param("/metrics", "", 401, "send a bearer token", id="no token"),
        pytest.param("/metrics", "Basic of-prometheus", 401, "send a bearer token", id="no bearer token"),
        pytest.param("/metrics", "Bearer ", 401, "send a bearer token", id="an empty token"),
        pytest.param("/metrics", "Bearer of-nobody", 401, "does not know this token", id="an unknown token"),
        pytest.param(
            "/metrics", "Bearer of-stranger", 403, '"stranger" cannot get path "/metrics": by no role', id="403"
        ),
        pytest.param("/debug/tasks", "Bearer of-prometheus", 403, "/debug/tasks", id="another path"),
        pytest.param("/nowhere", "", 401, "send a bearer token", id="a path that is not there"),
        pytest.param("/livez", "", 200, "ok", id="livez is for all"),
        pytest.param("/healthz", "Bearer of-nobody", 200, "ok", id="healthz is for all"),
        pytest.param("/readyz", "", 200, "ok", id="readyz is for all"),
        pytest.param("/livez/", "", 401, "", id="what only looks like health"),
    ],
)
async def test_who_is_answered(server: HealthServer, path: str, header: str, status: int, told: str) -> None:
    """The API server decides by the path and the verb; health is for all."""
    found, text = await ask(server, path, header)
    assert found == status
    assert told in (json.loads(text)["message"] if status in (401, 403) else text)


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        pytest.param("/debug/status", "Bearer of-replica", 200, id="a command of another replica"),
        pytest.param("/debug/tasks", "Bearer of-master", 403, id="what no command follows the leader for"),
    ],
)
async def test_who_is_answered_on_another_host(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch, path: str, header: str, status: int
) -> None:
    """Of what names pods, only commands that were accepted get what they print; other rights do not count."""
    monkeypatch.setattr(local_callers, "is_on_this_host", nobody)
    assert (await ask(server, path, header))[0] == status


async def test_nobody_on_another_host_is_answered_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without authorization there are no accepted commands."""
    monkeypatch.setattr(local_callers, "is_on_this_host", nobody)
    server = await served(None)
    try:
        assert (await ask(server, "/debug/status", "Bearer of-replica"))[0] == 403
    finally:
        await server.stop()


async def test_a_token_is_reviewed_for_each_audience(server: HealthServer, reviewer: Reviewer) -> None:
    """An answer for one audience does not hold for another."""
    reviewer.users["of-both"] = User("prometheus")
    reviewer.commands["of-both"] = User("stranger")
    assert (await ask(server, "/metrics", "Bearer of-both"))[0] == 200
    assert (await ask(server, "/debug/status", "Bearer of-both"))[0] == 403


async def test_a_token_that_is_no_text(server: HealthServer, reviewer: Reviewer) -> None:
    """It is refused like any other that is none, and nobody is asked."""
    reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\xfe\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert reviewer.asked == []


async def test_the_verb_is_the_method(server: HealthServer, reviewer: Reviewer) -> None:
    """Who may get need not be one who may do something else."""
    assert (await ask(server, "/metrics", "Bearer of-prometheus", "HEAD"))[0] == 403
    assert reviewer.asked[-1] == "prometheus head /metrics"


async def test_a_refusal_is_a_status(server: HealthServer) -> None:
    """Clients of Kubernetes read it as one of the API server's."""
    document = json.loads((await ask(server, "/metrics", "Bearer of-stranger"))[1])
    assert (document["kind"], document["apiVersion"], document["status"]) == ("Status", "v1", "Failure")
    assert (document["reason"], document["code"]) == ("Forbidden", 403)


async def test_loopback_needs_no_token(reviewer: Reviewer, clock: VirtualClock) -> None:
    """Whoever may exec or port-forward is asked about by the API server, and may be here while that is away."""
    reviewer.is_away = True
    server = await served(RequestAuthorization(reviewer, clock))
    try:
        assert await ask(server, "/debug/status") == (200, "pods of every namespace")
        assert reviewer.asked == []
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("header", "asked"),
    [
        pytest.param("Bearer of-prometheus", ["token", "prometheus get /metrics"], id="allowed"),
        pytest.param("Bearer of-stranger", ["token", "stranger get /metrics"], id="denied"),
        pytest.param("Bearer of-nobody", ["token"], id="unknown"),
    ],
)
async def test_answers_hold_ten_seconds(
    server: HealthServer, reviewer: Reviewer, clock: VirtualClock, header: str, asked: list[str]
) -> None:
    """The API server is not asked about each scrape; a right that is taken away ends soon."""
    for _ in range(2):
        await ask(server, "/metrics", header)
    assert reviewer.asked == asked
    clock.advance(9.9)
    await ask(server, "/metrics", header)
    assert reviewer.asked == asked
    clock.advance(0.2)
    await ask(server, "/metrics", header)
    assert reviewer.asked == asked * 2


async def test_an_api_server_that_is_away(server: HealthServer, reviewer: Reviewer) -> None:
    """Nobody from elsewhere is answered, nothing of it is remembered, and health is."""
    reviewer.is_away = True
    status, text = await ask(server, "/metrics", "Bearer of-prometheus")
    assert status == 503
    assert "cannot be asked of the API server: connection refused; ask again" in text
    assert (await ask(server, "/livez"))[0] == 200
    reviewer.is_away = False
    assert (await ask(server, "/metrics", "Bearer of-prometheus"))[0] == 200


async def test_an_api_server_that_hangs(server: HealthServer, reviewer: Reviewer) -> None:
    """Probes are answered meanwhile, alike questions are asked once, and too many unlike ones are refused."""
    reviewer.may_answer.clear()
    alike = [asyncio.create_task(ask(server, "/metrics", "Bearer of-prometheus")) for _ in range(5)]
    unlike = [asyncio.create_task(ask(server, "/metrics", f"Bearer of-{number}")) for number in range(70)]
    refused, _ = await asyncio.wait(unlike, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result()[0] for task in refused} == {503}
    assert (await ask(server, "/readyz"))[0] == 200
    reviewer.may_answer.set()
    assert {(await task)[0] for task in alike} == {200}
    assert {(await task)[0] for task in unlike} == {401, 503}
    assert len(reviewer.asked) <= 65


@pytest.mark.parametrize("change", [pytest.param(lambda user: User(user.username, groups=("ops",)), id="groups")])
async def test_answers_are_of_one_user(
    server: HealthServer, reviewer: Reviewer, change: Callable[[User], User]
) -> None:
    """Two tokens of one name need not be of one right."""
    reviewer.users["other"] = change(reviewer.users["of-prometheus"])
    await ask(server, "/metrics", "Bearer of-prometheus")
    await ask(server, "/metrics", "Bearer other")
    assert reviewer.asked.count("prometheus get /metrics") == 2
