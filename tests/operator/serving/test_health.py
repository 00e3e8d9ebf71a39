"""The HTTP endpoints, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from bayplan.serving.health import HealthServer
from bayplan.serving.readiness import Readiness
from prometheus_client import CollectorRegistry, Gauge

from scheduler_core.errors import ConfigError

LOOPBACK = "127.0.0.1"


@pytest.fixture
def readiness() -> Readiness:
    return Readiness(("pods are being listed", "nodes are being listed"))


@pytest.fixture
async def server(readiness: Readiness) -> AsyncIterator[HealthServer]:
    metrics = CollectorRegistry()
    Gauge("answer", "Of everything.", registry=metrics).set(42)
    server = HealthServer((LOOPBACK, 0), readiness, metrics)
    await server.start()
    yield server
    await server.stop()


async def get(server: HealthServer, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://{LOOPBACK}:{server.port}{path}") as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("path", [pytest.param("/livez", id="livez"), pytest.param("/healthz", id="healthz")])
async def test_alive_before_ready(server: HealthServer, path: str) -> None:
    """A process that still lists is alive."""
    assert await get(server, path) == (200, "ok\n")


async def test_ready_when_everything_is_fulfilled(server: HealthServer, readiness: Readiness) -> None:
    """Until then the answer names what is missing; a process that stops is not ready any more."""
    readiness.fulfil("nodes are being listed")
    assert await get(server, "/readyz") == (503, "not ready: pods are being listed\n")
    readiness.fulfil("pods are being listed")
    assert await get(server, "/readyz") == (200, "ok\n")
    readiness.stop()
    assert await get(server, "/readyz") == (503, "not ready: the process is stopping\n")


async def test_a_standby_is_ready_and_says_so(server: HealthServer, readiness: Readiness) -> None:
    """It could take over; once it does, what it has not done yet is missing."""
    readiness.stand_by(lambda: "standby, other leads")
    assert await get(server, "/readyz") == (200, "ok: standby, other leads\n")
    readiness.lead()
    assert (await get(server, "/readyz"))[0] == 503


async def test_metrics(server: HealthServer) -> None:
    """Metrics are served in the text format."""
    status, text = await get(server, "/metrics")
    assert status == 200
    assert "answer 42.0" in text


async def test_a_taken_port_is_told(server: HealthServer, readiness: Readiness) -> None:
    """The message names the address and the flag."""
    second = HealthServer((LOOPBACK, server.port), readiness, CollectorRegistry())
    with pytest.raises(ConfigError, match=r"cannot be listened on .*--serve-address"):
        await second.start()
