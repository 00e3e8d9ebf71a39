"""Tests of DeferredServer, which accepts connections before it can respond."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bayplan.kube.readiness import Readiness
from bayplan.serving import deferred_server
from bayplan.serving.deferred_server import DeferredServer, Listener, ServedCertificate, ServedParts
from bayplan.serving.http_server import HealthServer, Protection
from bayplan.settings.operator_settings import ServingSettings
from prometheus_client import CollectorRegistry

from scheduler_core.errors import ConfigError
from tests.support.presence import present
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

LOOPBACK = "127.0.0.1"
PROBE = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def health_only(
    listener: Listener,
    settings: ServingSettings,
    parts: object,
    certificate: ServedCertificate | None,
    build_page: object,
) -> HealthServer:
    del settings, parts, build_page
    return HealthServer(
        listener, Readiness(()), CollectorRegistry(), protection=Protection(certificate, clock=VirtualClock())
    )


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> ServedParts:
    """Return parts that a server without endpoints never reads."""
    monkeypatch.setattr(deferred_server, "import_module", lambda _: SimpleNamespace(operator_server=health_only))
    return cast("ServedParts", object())


async def test_a_probe_waits_for_the_server(parts: ServedParts) -> None:
    """A connection is accepted from the start, and its request gets a response when the server starts."""
    server = DeferredServer((LOOPBACK, 0), ServingSettings(), parts)
    reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
    writer.write(PROBE)
    response = asyncio.create_task(reader.read())
    assert server.endpoint(LOOPBACK) is None
    await server.start()
    async with asyncio.timeout(60):
        assert (await response).startswith(b"HTTP/1.1 200")
    endpoint = present(server.endpoint(LOOPBACK))
    assert endpoint.url == f"http://{LOOPBACK}:{server.port}"
    writer.close()
    await server.stop()


async def test_a_generated_certificate_is_announced_after_the_start(parts: ServedParts) -> None:
    """The certificate is generated when the server starts, and the endpoint then has its hash."""
    server = DeferredServer((LOOPBACK, 0), ServingSettings(secure_serving=True), parts)
    assert server.endpoint(LOOPBACK) is None
    await server.start()
    endpoint = present(server.endpoint(LOOPBACK))
    assert len(endpoint.certificate_sha256) == 64
    await server.stop()


async def test_a_server_that_never_started_stops_listening(parts: ServedParts) -> None:
    """A server that is stopped before its start frees the port."""
    server = DeferredServer((LOOPBACK, 0), ServingSettings(), parts)
    port = server.port
    await server.stop()
    Listener((LOOPBACK, port)).close()


def test_certificate_files_are_read_at_construction(parts: ServedParts) -> None:
    """Unusable certificate files are a configuration error before the server listens."""
    settings = ServingSettings(tls_cert_file="/nowhere.crt", tls_private_key_file="/nowhere.key")
    with pytest.raises(ConfigError, match=r"/nowhere\.crt"):
        DeferredServer((LOOPBACK, 0), settings, parts)


@table(
    "address, fields, url",
    ("served", (LOOPBACK, 0), {"serve_page": True}, f"http://{LOOPBACK}:{{}}/page/"),
    ("tls", (LOOPBACK, 0), {"serve_page": True, "secure_serving": True}, f"https://{LOOPBACK}:{{}}/page/"),
    ("not-served", (LOOPBACK, 0), {}, ""),
    ("no-loopback", ("0.0.0.0", 0), {"serve_page": True}, ""),  # noqa: S104 - not on loopback alone
)
async def test_the_address_of_the_page(
    parts: ServedParts, address: tuple[str, int], fields: dict[str, Any], url: str
) -> None:
    """The address of the page is that of the socket on loopback, with the scheme of the server."""
    server = DeferredServer(address, ServingSettings(**fields), parts)
    assert server.page_url == url.format(server.port)
    await server.stop()
