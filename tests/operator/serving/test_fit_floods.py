"""Fit requests in floods, slow, cut and malformed: each gets a status, and delays others by one dry run at most."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bayplan.fit import building
from bayplan.fit.building import FitDocument, read_fit
from bayplan.kube.readiness import Readiness
from bayplan.process.copies import BackgroundDocuments, ForkedSearches
from bayplan.serving import FIT_PATH, fit_endpoint
from bayplan.serving.fit_endpoint import MAX_BODY, MAX_OBJECTS, MOST_AT_ONCE, FitEndpoint, FitSources
from bayplan.serving.http_server import HealthServer

from scheduler_core.fit.fit_search import FitVerdict
from tests.support.gang_preemption import small_node
from tests.support.http_servers import served
from tests.support.scheduling import Rig, gang_rig
from tests.support.tables import table

LOOPBACK = "127.0.0.1"
FLOOD = 100
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
}


def body_of(*objects: Any, padding: int = 0, **fields: Any) -> bytes:
    """Return the body of a request; with padding, of at least so many bytes."""
    return json.dumps({"objects": objects or [POD], **fields}).encode() + b" " * padding


class Endpoint(FitEndpoint):
    """Endpoint whose share of the time can be used up."""

    def use_share(self, seconds: float) -> None:
        """Let requests wait for some seconds until they may take time again."""
        self._charge(self._budget.seconds + seconds * 0.05)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._reading


async def no_classes() -> list[dict[str, Any]]:
    """Return the PriorityClasses of the cluster."""
    return []


@pytest.fixture
def cluster() -> Rig:
    return gang_rig(small_node("a"))


@pytest.fixture
def endpoint(cluster: Rig, readiness: Readiness) -> Endpoint:
    return Endpoint(FitSources(cluster.scheduler, readiness, lambda: False, no_classes))


@pytest.fixture
async def server(endpoint: Endpoint, readiness: Readiness) -> AsyncIterator[HealthServer]:
    """Return a server whose handlers have all ended after the test."""
    async with served(endpoint.routes, readiness) as server:
        yield server
        async with asyncio.timeout(5):
            while not endpoint.is_idle:  # noqa: ASYNC110 - the endpoint has no event for it
                await asyncio.sleep(0.01)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Count the dry runs of each turn of the event loop, which a test lets :func:`counted` number."""
    found: Counter[int] = Counter()
    document = building.OperatorAnswer.document

    def counting(self: building.OperatorAnswer, steps: int | None) -> FitDocument:
        found[_turn[0]] += 1
        return document(self, steps)

    monkeypatch.setattr(building.OperatorAnswer, "document", counting)
    return found


_turn = [0]


@asynccontextmanager
async def counted() -> AsyncIterator[None]:
    """Number the turns of the event loop."""

    async def count() -> None:
        while True:
            _turn[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count())
    try:
        yield
    finally:
        task.cancel()


@asynccontextmanager
async def connection(
    server: HealthServer, body: bytes, length: int | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Send a request whose body may lack its end.

    Args:
        length: Length that the headers have; None for that of the body.
    """
    reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
    head = f"POST {FIT_PATH} HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body)
    try:
        yield reader, writer
    finally:
        writer.close()


async def received(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the body of a response."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    return int(lines[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def sent(server: HealthServer, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a request, and return the response."""
    async with connection(server, body) as (reader, _):
        return await received(reader)


@table("body", ("short", body_of()), ("long", body_of(padding=MOST_AT_ONCE)))
async def test_a_flood(server: HealthServer, turns: Counter[int], body: bytes) -> None:
    """At most one dry run is made in a turn of the event loop; too many requests at once are to be sent again."""
    async with counted():
        responses = await asyncio.gather(*(sent(server, body) for _ in range(FLOOD)))
    codes = Counter(code for code, _, _ in responses)
    assert codes.keys() <= {200, 429}
    assert codes[200] >= 8
    assert {headers["retry-after"] for code, headers, _ in responses if code == 429} <= {"1"}
    assert turns.total() == codes[200]
    assert max(turns.values()) == 1


async def test_long_searches_leave_room_for_short_requests(cluster: Rig, readiness: Readiness) -> None:
    """Requests that wait for a copy of the process are fewer than those that may wait."""
    processes = ForkedSearches()
    documents = BackgroundDocuments(cluster.context, processes)
    endpoint = Endpoint(FitSources(cluster.scheduler, readiness, lambda: False, no_classes, documents))
    async with served(endpoint.routes, readiness) as server:
        searches = [asyncio.create_task(sent(server, body_of(padding=MOST_AT_ONCE))) for _ in range(6)]
        async with asyncio.timeout(10):
            while processes.pid == -1:  # noqa: ASYNC110 - a fork has no event
                await asyncio.sleep(0)
        os.kill(processes.pid, signal.SIGSTOP)
        refused = [each.result() for each in (await asyncio.wait(searches, return_when=asyncio.FIRST_COMPLETED))[0]]
        short = await sent(server, body_of())
        os.kill(processes.pid, signal.SIGCONT)
        responses = await asyncio.gather(*searches)
    assert short[0] == 200
    assert {code for code, _, _ in refused} == {429}
    assert b"requests wait already for a search in a copy" in refused[0][2]
    assert Counter(code for code, _, _ in responses) == {200: 4, 429: 2}
    assert documents.count == 4


async def test_bodies_that_do_not_arrive(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are answered until there are too many of them, and none is received for longer than stated."""
    monkeypatch.setattr(fit_endpoint, "MOST_READING", 3)
    monkeypatch.setattr(fit_endpoint, "BODY_SECONDS", 0.5)
    body = body_of()
    async with connection(server, body[:10], len(body)) as (first, _), connection(server, body[:9], len(body)):
        assert (await sent(server, body))[0] == 200
        async with connection(server, b"", MAX_BODY):
            await asyncio.sleep(0.05)
            code, headers, text = await sent(server, body)
            assert (code, headers["retry-after"]) == (429, "1")
            assert b"are being received; retry" in text
            code, headers, text = await received(first)
            assert (code, headers["connection"]) == (408, "close")
            assert b"not received within 0.5 s" in text
    assert (await sent(server, body))[0] == 200


async def test_a_cut_connection(server: HealthServer, endpoint: Endpoint, turns: Counter[int]) -> None:
    """No dry run is made for a request whose sender has gone while it waited, and the next one is answered."""
    endpoint.use_share(0.3)
    async with connection(server, body_of()), connection(server, body_of(padding=MOST_AT_ONCE)):
        await asyncio.sleep(0.05)
        assert not endpoint.is_idle
    code, _, text = await sent(server, body_of())
    assert (code, read_fit(text).verdict) == (200, FitVerdict.FITS_NOW)
    assert turns.total() == 1


async def test_a_take_over(server: HealthServer, endpoint: Endpoint, readiness: Readiness, turns: Counter[int]) -> None:
    """A request that waits when the process stops to schedule is refused, like those after it."""
    endpoint.use_share(0.3)
    waits = asyncio.create_task(sent(server, body_of()))
    await asyncio.sleep(0.05)
    readiness.stand_by(lambda: "standby: other is the leader")
    for code, _, text in (await waits, await sent(server, body_of())):
        assert code == 503
        assert b"standby: other is the leader; send the request to the leader" in text
    assert not turns


async def test_requests_without_a_share_left(server: HealthServer, endpoint: Endpoint) -> None:
    """A request that would wait for too long is refused at once, with the time after which to send it again."""
    endpoint.use_share(30)
    for body in (body_of(), body_of(padding=MOST_AT_ONCE)):
        code, headers, _ = await sent(server, body)
        assert code == 503
        assert 25 <= int(headers["retry-after"]) <= 30


@table(
    "body, text",
    ("arrays", b'{"objects": [{"a": %s1%s}]}' % (b"[" * 100_000, b"]" * 100_000), "nested too deep"),
    ("maps", b'{"objects": [%s1%s]}' % (b'{"a": ' * 30_000, b"}" * 30_000), "nested too deep"),
    ("no end", b'{"objects": [%s' % (b"[" * 100_000), "the request cannot be read"),
    ("many objects", b'{"objects": [%s{}]}' % (b"{}," * MAX_OBJECTS), f"request at most {MAX_OBJECTS} at once"),
    ("count", body_of(count=10**1000), "more than 5000 pods"),
    (
        "parallelism",
        body_of(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j"},
                "spec": {"parallelism": 2**31 - 1, "template": {"spec": {**POD["spec"], "restartPolicy": "Never"}}},
            }
        ),
        "more than 5000 pods",
    ),
)  # fmt: skip
async def test_requests_that_are_too_large(server: HealthServer, body: bytes, text: str) -> None:
    """The response names the limit."""
    code, _, answer = await sent(server, body)
    assert code == 400
    assert text in json.loads(answer)["error"]


@pytest.mark.parametrize("field", ["metadata", "spec"])
@pytest.mark.parametrize("key", ["annotations", "affinity", "kind"])
async def test_every_depth(server: HealthServer, field: str, key: str) -> None:
    """A depth that the JSON decoder accepts, and later steps do not, is no internal error."""
    text = json.dumps({**POD, field: {**POD[field], key: "deep"}})
    for depth in range(50, 1100, 50):
        nested = b'{"a": ' * depth + b"1" + b"}" * depth
        code, _, answer = await sent(server, b'{"objects": [%s]}' % text.encode().replace(b'"deep"', nested))
        assert code in {200, 400, 422}, (depth, answer)
