"""Tests of the HTTP server over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from bayplan.kube.readiness import Readiness
from bayplan.serving import http_server as health
from bayplan.serving.deferred_server import Listener
from bayplan.serving.http_server import HealthServer
from prometheus_client import CollectorRegistry, Gauge

from scheduler_core.errors import ConfigError

LOOPBACK = "127.0.0.1"


@pytest.fixture
def readiness() -> Readiness:
    return Readiness(("pods are being listed", "nodes are being listed"))


@pytest.fixture
async def server(readiness: Readiness) -> AsyncIterator[HealthServer]:
    metrics = CollectorRegistry()
    Gauge("answer", "Test value.", registry=metrics).set(42)
    server = HealthServer(Listener((LOOPBACK, 0)), readiness, metrics)
    await server.start()
    yield server
    await server.stop()


async def send(server: HealthServer, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://{LOOPBACK}:{server.port}{path}") as response:
        return response.status, await response.text()


@pytest.mark.parametrize("path", [pytest.param("/livez", id="livez"), pytest.param("/healthz", id="healthz")])
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


async def test_a_standby_is_ready(server: HealthServer, readiness: Readiness) -> None:
    """A standby is ready and reports its role; when it leads, unfulfilled conditions count."""
    readiness.stand_by(lambda: "standby, other leads")
    assert await send(server, "/readyz") == (200, "ok: standby, other leads\n")
    readiness.lead()
    assert (await send(server, "/readyz"))[0] == 503


async def test_metrics(server: HealthServer) -> None:
    """Metrics are served in the text format."""
    status, text = await send(server, "/metrics")
    assert status == 200
    assert "answer 42.0" in text


async def test_a_port_in_use_is_an_error(server: HealthServer) -> None:
    """A port in use is an error that names the address and the flag."""
    with pytest.raises(ConfigError, match=r"cannot listen on .*--serve-address"):
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
        "readyz check failed",
    ]
    readiness.fulfil("claims are being listed")
    readiness.fulfil("nodes are being listed")
    assert await send(server, "/readyz?verbose") == (
        200,
        "[+]claims are listed ok\n[+]pods are listed ok\n[+]nodes are listed ok\nreadyz check passed\n",
    )


async def test_verbose_readiness_of_a_standby(server: HealthServer, readiness: Readiness) -> None:
    """With ``verbose`` a standby passes with its role, and a stopping process fails."""
    readiness.stand_by(lambda: "standby, other leads")
    assert await send(server, "/readyz?verbose") == (
        200,
        "[+]standby, other leads; ready to take over ok\nreadyz check passed\n",
    )
    readiness.stop()
    assert (await send(server, "/readyz?verbose"))[0] == 503


async def test_verbose_liveness(server: HealthServer) -> None:
    """With ``verbose`` liveness has one check."""
    assert await send(server, "/livez?verbose") == (200, "[+]event loop ok\nlivez check passed\n")


@pytest.mark.parametrize(
    ("sent", "response"),
    [
        pytest.param([], b"", id="nothing"),
        pytest.param([b"GET /livez HTTP/1.1\r\nHo", b"st: a\r\n"], b"", id="incomplete request"),
        pytest.param([b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"], b"ok\n", id="one request, then nothing"),
        pytest.param(
            [b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /li"], b"ok\n", id="one request, then an incomplete one"
        ),
    ],
)
async def test_a_connection_without_a_complete_request_is_closed(
    monkeypatch: pytest.MonkeyPatch, readiness: Readiness, sent: list[bytes], response: bytes
) -> None:
    """A connection is closed if no complete request arrives within the idle time."""
    monkeypatch.setattr(health, "IDLE_SECONDS", 0.5)
    server = HealthServer(Listener((LOOPBACK, 0)), readiness, CollectorRegistry())
    await server.start()
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
        for part in sent:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(60):
            received = await reader.read()
        writer.close()
    finally:
        await server.stop()
    assert received.endswith(response)
    assert bool(received) == bool(response)
