"""Tests of the HTTP server over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest
from bayplan.kube.readiness import Readiness
from bayplan.kube.timing import SystemClock
from bayplan.serving import http_server as health
from bayplan.serving.authorization import AccessReviews, RequestAuthorization
from bayplan.serving.deferred_server import Listener
from bayplan.serving.http_server import HealthServer, Protection
from prometheus_client import CollectorRegistry, Gauge

from scheduler_core.errors import ConfigError
from tests.support.http_servers import served
from tests.support.tables import table

LOOPBACK = "127.0.0.1"


@pytest.fixture
def readiness() -> Readiness:
    return Readiness(("pods are being listed", "nodes are being listed"))


@pytest.fixture
async def server(readiness: Readiness) -> AsyncIterator[HealthServer]:
    metrics = CollectorRegistry()
    Gauge("answer", "Test value.", registry=metrics).set(42)
    async with served(readiness=readiness, metrics=metrics) as server:
        yield server


async def send(server: HealthServer, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://{LOOPBACK}:{server.port}{path}") as response:
        return response.status, await response.text()


@table("path", ("livez", "/livez"), ("healthz", "/healthz"))
async def test_liveness_does_not_need_readiness(server: HealthServer, path: str) -> None:
    """A process is alive before its lists are complete."""
    assert await send(server, path) == (200, "ok\n")


async def test_readiness_follows_its_conditions(server: HealthServer, readiness: Readiness) -> None:
    """A process is ready when all conditions are fulfilled and until it stops; the response names what is missing."""
    readiness.fulfil("nodes are being listed")
    assert await send(server, "/readyz") == (503, "not ready: pods are being listed\n")
    readiness.fulfil("pods are being listed")
    assert await send(server, "/readyz") == (200, "ok\n")
    readiness.stop()
    assert await send(server, "/readyz") == (503, "not ready: the process is stopping\n")


async def test_warnings_do_not_end_readiness(server: HealthServer, readiness: Readiness) -> None:
    """A ready process lists its warnings, and names no object in a namespace to callers without a token."""
    for condition in ("nodes are being listed", "pods are being listed"):
        readiness.fulfil(condition)
    readiness.warn_by(lambda names_all: ["all" if names_all else "some"])
    assert await send(server, "/readyz") == (200, "ok\nwarning: some\n")
    status, text = await send(server, "/readyz?verbose")
    assert (status, text.splitlines()[-2:]) == (200, ["[+]warning: some", "readyz check passed"])
    assert readiness.warnings(names_all=True) == ["all"]


@table("is_standby", ("leader", False), ("standby", True))
async def test_stale_watches_end_readiness(server: HealthServer, readiness: Readiness, is_standby: bool) -> None:
    """A leader or standby with stale data is not ready, with the reason; explanations stay available."""
    for condition in ("nodes are being listed", "pods are being listed"):
        readiness.fulfil(condition)
    if is_standby:
        readiness.stand_by(lambda: "standby, other leads")
    stale = ["pods are stale: no event or bookmark for 301 s"]
    readiness.fail_if_stale(lambda: stale)
    assert await send(server, "/readyz") == (503, f"not ready: {stale[0]}\n")
    status, text = await send(server, "/readyz?verbose")
    assert status == 503
    assert f"[-]watches are current failed: {stale[0]}" in text.splitlines()
    assert readiness.missing == []
    assert readiness.warnings(names_all=False) == stale
    stale.clear()
    assert (await send(server, "/readyz"))[0] == 200


async def test_a_standby_is_ready(server: HealthServer, readiness: Readiness) -> None:
    """A standby is ready and reports its role; when it leads, unfulfilled conditions count."""
    readiness.stand_by(lambda: "standby, other leads")
    assert await send(server, "/readyz") == (200, "ok: standby, other leads\n")
    readiness.lead()
    assert (await send(server, "/readyz"))[0] == 503


async def test_a_port_in_use_is_an_error(server: HealthServer) -> None:
    """A port in use is an error that names the address and the flag."""
    with pytest.raises(
        ConfigError, match=r": cannot listen on [\d.]+:\d+: Address already in use; set .*--serve-address"
    ):
        Listener((LOOPBACK, server.port))


async def test_verbose_readiness(server: HealthServer, readiness: Readiness) -> None:
    """With ``verbose`` each condition has a line in the API server's format, conditions that were added later first."""
    readiness.require("claims are being listed", lambda: "no right to list claims")
    readiness.fulfil("pods are being listed")
    status, text = await send(server, "/readyz?verbose")
    assert status == 503
    assert text.splitlines() == [
        "[-]claims are listed failed: no right to list claims",
        "[+]pods are listed ok",
        "[-]nodes are listed failed: not yet",
        "[+]watches are current ok",
        "readyz check failed",
    ]
    readiness.fulfil("claims are being listed")
    readiness.fulfil("nodes are being listed")
    passed = [("claims", "listed"), ("pods", "listed"), ("nodes", "listed"), ("watches", "current")]
    assert await send(server, "/readyz?verbose") == (
        200,
        "".join(f"[+]{each} are {state} ok\n" for each, state in passed) + "readyz check passed\n",
    )


async def test_verbose_readiness_of_a_standby(server: HealthServer, readiness: Readiness) -> None:
    """With ``verbose`` a standby passes with its role, and a stopping process fails."""
    readiness.stand_by(lambda: "standby, other leads")
    assert await send(server, "/readyz?verbose") == (
        200,
        "[+]standby, other leads; ready to take over ok\n[+]watches are current ok\nreadyz check passed\n",
    )
    readiness.stop()
    assert (await send(server, "/readyz?verbose"))[0] == 503


async def test_verbose_liveness(server: HealthServer) -> None:
    """With ``verbose`` liveness has one check."""
    assert await send(server, "/livez?verbose") == (200, "[+]event loop ok\nlivez check passed\n")


@table(
    "sent, response",
    ("nothing", [], b""),
    ("incomplete request", [b"GET /livez HTTP/1.1\r\nHo", b"st: a\r\n"], b""),
    ("one request, then nothing", [b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"], b"ok\n"),
    ("one request, then an incomplete one", [b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /li"], b"ok\n"),
)
async def test_a_connection_without_a_complete_request_is_closed(
    monkeypatch: pytest.MonkeyPatch, readiness: Readiness, sent: list[bytes], response: bytes
) -> None:
    """A connection is closed if no complete request arrives within the idle time."""
    monkeypatch.setattr(health, "IDLE_SECONDS", 0.5)
    async with served(readiness=readiness) as server:
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
        for part in sent:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(60):
            received = await reader.read()
        writer.close()
    assert received.endswith(response)
    assert bool(received) == bool(response)


@pytest.mark.parametrize("is_authorized", [False, True])
@table(
    "request_bytes",
    ("request line too long", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("request line too long, one part", b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("header too long", b"GET /livez HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n"),
    ("too many headers", b"GET /livez HTTP/1.1\r\n" + b"A: b\r\n" * 50_000 + b"\r\n"),
    ("header without a colon", b"GET /livez HTTP/1.1\r\nHost a\r\n\r\n"),
    ("unknown version", b"GET /livez HTTP/9.9\r\n\r\n"),
    ("no path", b"GET\r\n\r\n"),
    ("TLS", b"\x16\x03\x01\x02\x00\x01"),
    ("null bytes", b"\x00" * 100),
    ("URL that cannot be parsed", b"GET http://[::1/livez HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("path that is no URL", b"GET //[ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("host that is no host", b"GET /livez HTTP/1.1\r\nHost: [\r\n\r\n"),
    ("length that is no number", b"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"),
    ("negative length", b"GET /livez HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
    ("chunk that is no chunk", b"POST /livez HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    ("path that is not UTF-8", b"GET /%ff%fe HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("unknown expectation", b"GET /livez HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n"),
    ("CONNECT", b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("asterisk", b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("bytes in Accept", b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: " + b"\xff" * 9 + b"\r\n\r\n"),
)
async def test_malformed_requests_fill_no_log(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture, *, is_authorized: bool
) -> None:
    """Requests that are not HTTP, twice on one connection, log no line above DEBUG; others get their response."""
    authorization = RequestAuthorization(Unreachable(), SystemClock()) if is_authorized else None
    async with served(protection=Protection(authorization=authorization)) as server:
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
        with contextlib.suppress(ConnectionError):
            for data in (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", request_bytes, request_bytes):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
            async with asyncio.timeout(10):
                await reader.read()
        writer.close()
        assert await send(server, "/livez") == (200, "ok\n")
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


class Unreachable(AccessReviews):
    """Reviews by an API server that cannot be reached; no request here has a token."""

    def __init__(self) -> None:
        """Create reviews without a connection."""
