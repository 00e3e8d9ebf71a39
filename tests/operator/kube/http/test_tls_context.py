"""Tests of TLS contexts: what is trusted, and under which name, against a real TLS server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bayplan.kube.http.byte_stream import Endpoint, open_socket
from bayplan.kube.http.tls_context import client_context

from tests.support.certificates import Authority, Pair

AUTHORITY, STRANGER = Authority(), Authority("stranger")
HOST = "127.0.0.1"
PAIR = AUTHORITY.issue("kube.example")
ELSEWHERE = AUTHORITY.issue("kube.example", "192.0.2.1")


@asynccontextmanager
async def served(pair: Pair, directory: Path) -> AsyncIterator[int]:
    """Serve TLS with a certificate; the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair.write(directory, "tls"))

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(greet, HOST, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def by_loop(port: int, context: ssl.SSLContext) -> None:
    """Connect as aiohttp does, with TLS by the event loop."""
    _, writer = await asyncio.open_connection(HOST, port, ssl=context)
    writer.close()


async def by_socket(port: int, context: ssl.SSLContext) -> None:
    """Connect as the lanes of binds and writes do, with TLS by the socket."""
    (await open_socket(Endpoint(HOST, port, context))).close()


Connect = Callable[[int, ssl.SSLContext], Awaitable[None]]
in_both_ways = pytest.mark.parametrize("connect", [by_loop, by_socket])


@in_both_ways
@pytest.mark.parametrize("trusted", [AUTHORITY.certificate, PAIR.certificate], ids=["its authority", "itself"])
async def test_a_certificate_is_trusted_by_its_authority_or_by_itself(
    connect: Connect, trusted: str, tmp_path: Path
) -> None:
    """As in Go, a certificate that is named as an authority need not be a root."""
    async with served(PAIR, tmp_path) as port:
        await connect(port, client_context(trusted))


@in_both_ways
async def test_other_certificates_are_rejected(connect: Connect, tmp_path: Path) -> None:
    """Another authority, another certificate of this one, and the authorities of the system do not verify it."""
    sibling = AUTHORITY.issue("kube.example")
    async with served(PAIR, tmp_path) as port:
        for trusted in (STRANGER.certificate, sibling.certificate, None):
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(port, client_context(trusted))


@in_both_ways
async def test_the_name_is_verified(connect: Connect, tmp_path: Path) -> None:
    """A certificate for another name is accepted under that name only, and for that host only."""
    async with served(ELSEWHERE, tmp_path) as port:
        await connect(port, client_context(AUTHORITY.certificate, names={HOST: "kube.example"}))
        for names in ({}, {HOST: "other.example"}, {"127.0.0.2": "kube.example"}):
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(port, client_context(AUTHORITY.certificate, names=names))


@in_both_ways
async def test_nothing_is_verified_if_so_configured(connect: Connect, tmp_path: Path) -> None:
    """``insecure-skip-tls-verify``."""
    async with served(ELSEWHERE, tmp_path) as port:
        await connect(port, client_context(STRANGER.certificate, is_verified=False))


def test_an_empty_authority_is_an_error() -> None:
    """It does not become the trust of the system."""
    with pytest.raises(ValueError, match=r"[Ee]mpty"):
        client_context("")
