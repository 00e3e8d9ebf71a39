"""Tests of client TLS contexts against a real TLS server: trusted certificates and verified names."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from bayplan.kube.credentials import ConfiguredAccess, Credentials
from bayplan.kube.http.api_request import ApiRequest, Lane
from bayplan.kube.http.byte_stream import Endpoint, client_context, open_socket
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.timing import SystemClock

from hack.controlplane.certificates import Authority, KeyPair
from scheduler_core.errors import ServerUnavailableError

AUTHORITY, OTHER_AUTHORITY = Authority(), Authority("other")
HOST = "127.0.0.1"
CERTIFICATE = AUTHORITY.issue("kube.example")
FOR_OTHER_ADDRESS = AUTHORITY.issue("kube.example", "192.0.2.1")


@asynccontextmanager
async def tls_server(pair: KeyPair, directory: Path) -> AsyncIterator[int]:
    """Serve TLS with a certificate and yield the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair.write(directory, "tls"))

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(greet, HOST, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect_by_loop(port: int, context: ssl.SSLContext, name: str | None = None) -> None:
    """Connect as aiohttp does, with TLS by the event loop."""
    _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname=name)
    writer.close()


async def connect_by_socket(port: int, context: ssl.SSLContext, name: str | None = None) -> None:
    """Connect as the lanes of binds and writes do, with TLS by the socket."""
    (await open_socket(Endpoint(HOST, port, context, name))).close()


Connect = Callable[..., Awaitable[None]]
in_both_ways = pytest.mark.parametrize("connect", [connect_by_loop, connect_by_socket])


@in_both_ways
@pytest.mark.parametrize(
    "trusted", [AUTHORITY.certificate, CERTIFICATE.certificate], ids=["authority", "certificate itself"]
)
async def test_a_certificate_is_trusted_by_its_authority_or_by_itself(
    connect: Connect, trusted: str, tmp_path: Path
) -> None:
    """A server certificate is trusted if its authority or the certificate itself is configured, as in Go."""
    async with tls_server(CERTIFICATE, tmp_path) as port:
        await connect(port, client_context(trusted))


@in_both_ways
async def test_other_certificates_are_rejected(connect: Connect, tmp_path: Path) -> None:
    """A certificate is rejected if only other authorities, other certificates or the system's ones are trusted."""
    sibling = AUTHORITY.issue("kube.example")
    async with tls_server(CERTIFICATE, tmp_path) as port:
        for trusted in (OTHER_AUTHORITY.certificate, sibling.certificate, None):
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(port, client_context(trusted))


@in_both_ways
async def test_the_name_is_verified(connect: Connect, tmp_path: Path) -> None:
    """A certificate for another name is accepted only under the configured name."""
    async with tls_server(FOR_OTHER_ADDRESS, tmp_path) as port:
        await connect(port, client_context(AUTHORITY.certificate), "kube.example")
        for name in (None, "other.example"):
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(port, client_context(AUTHORITY.certificate), name)


@pytest.mark.parametrize("lane", [Lane.READS, Lane.WRITES], ids=["aiohttp", "own sockets"])
@pytest.mark.parametrize(("name", "is_accepted"), [("kube.example", True), ("other.example", False), (None, False)])
async def test_every_lane_verifies_the_configured_name(
    lane: Lane, name: str | None, *, is_accepted: bool, tmp_path: Path
) -> None:
    """A request verifies the server's certificate for ``tls-server-name`` of the kubeconfig."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*FOR_OTHER_ADDRESS.write(tmp_path, "tls"))

    async def version(_: web.Request) -> web.Response:
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/version", version)
    server = TestServer(app)
    await server.start_server(ssl=context)
    credentials = Credentials(f"https://{HOST}:{server.port}", ca_cert_data=AUTHORITY.certificate, tls_server_name=name)

    async def reload() -> None: ...

    request = ApiRequest("GET", "/version", lane=lane)
    async with ApiConnection(ConfiguredAccess(credentials, reload), ConnectionOptions(), SystemClock()) as connection:
        if is_accepted:
            assert await connection.request(request) == b"{}"
        else:
            with pytest.raises(ServerUnavailableError, match="certificate verify failed"):
                await connection.request(request)
    await server.close()


@in_both_ways
async def test_verification_can_be_disabled(connect: Connect, tmp_path: Path) -> None:
    """A connection with ``insecure-skip-tls-verify`` accepts every certificate."""
    async with tls_server(FOR_OTHER_ADDRESS, tmp_path) as port:
        await connect(port, client_context(OTHER_AUTHORITY.certificate, is_verified=False))


def test_an_empty_authority_is_an_error() -> None:
    """An empty certificate authority is an error and does not select the system's authorities."""
    with pytest.raises(ValueError, match=r"[Ee]mpty"):
        client_context("")
