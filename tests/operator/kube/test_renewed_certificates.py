"""Certificates that are renewed in place while a connection to the API server is in use.

The server requires client certificates, as an API server with a kubeconfig of kubeadm does. It rejects
requests on connections whose certificate has expired.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from bayplan.kube.credentials import from_kubeconfig
from bayplan.kube.http.connection import ApiConnection, ApiRequest, ConnectionOptions, Lane

from hack.controlplane.certificates import Authority, KeyPair, KeyType
from scheduler_core.errors import ClusterWriteError
from tests.operator.kube.conftest import InstantClock
from tests.support.manifests import write_kubeconfig
from tests.support.tables import table

LANES = [Lane.READS, Lane.WRITES, Lane.BINDS, Lane.LEASES]


class MutualTlsServer:
    """HTTPS server that returns the name in the client's certificate.

    Attributes:
        expired: Names that are rejected with 401.
        seen: Name in the client's certificate of each request.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = Authority("clients")
        self.own_authority = Authority("server")
        self.expired: set[str] = set()
        self.seen: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_verify_locations(cadata=self.authority.certificate)
        self.serve_with(self.own_authority)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._respond)
        self._runner = web.AppRunner(app)
        self.port = 0

    def serve_with(self, authority: Authority) -> None:
        """Use another certificate for new connections."""
        self._context.load_cert_chain(*authority.issue("localhost").write(self._directory, "server"))

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _respond(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        name = dict(pair for group in subject for pair in group)["commonName"]
        self.seen.append(name)
        return web.Response(status=401 if name in self.expired else 200, text="{}")


class ClientFiles:
    """A kubeconfig with its certificate files.

    Args:
        directory: Where the files are.
        inline: Whether the certificates are in the kubeconfig itself, as kubeadm writes them.
    """

    def __init__(self, directory: Path, server: MutualTlsServer, *, inline: bool) -> None:
        self._directory, self._server, self._inline = directory, server, inline
        self.kubeconfig = directory / "kubeconfig"
        self.authority = server.own_authority.certificate

    def write(self, pair: KeyPair, port: int = 0) -> None:
        """Write the certificate, its key and the authority."""
        (self._directory / "ca.crt").write_text(self.authority)
        pair.write(self._directory, "client")
        cluster: dict[str, Any] = {"server": f"https://127.0.0.1:{port or self._server.port}"}
        user: dict[str, Any] = {}
        for entry, key, file in (
            (cluster, "certificate-authority", "ca.crt"),
            (user, "client-certificate", "client.crt"),
            (user, "client-key", "client.key"),
        ):
            if self._inline:
                entry[f"{key}-data"] = base64.b64encode((self._directory / file).read_bytes()).decode()
            else:
                entry[key] = str(self._directory / file)
        write_kubeconfig(self.kubeconfig, user=user, **cluster)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[MutualTlsServer]:
    server = MutualTlsServer(tmp_path)
    await server.start()
    yield server
    await server.stop()


async def send(connection: ApiConnection, lane: Lane) -> None:
    method = "GET" if lane is Lane.READS else "POST"
    await connection.request(ApiRequest(method, "/", None if method == "GET" else b"{}", lane=lane))


@table("inline", ("files", False), ("inline", True))
@pytest.mark.parametrize(("before", "after"), [("ecdsa", "ecdsa"), ("ecdsa", "rsa"), ("rsa", "ecdsa")], ids=str)
async def test_a_renewed_client_certificate(
    server: MutualTlsServer, tmp_path: Path, clock: InstantClock, before: KeyType, after: KeyType, *, inline: bool
) -> None:
    """A client certificate renewed in place is used within a minute, in every lane and with any type of key."""
    files = ClientFiles(tmp_path, server, inline=inline)
    files.write(server.authority.issue("old", key_type=before))
    async with ApiConnection(await from_kubeconfig(files.kubeconfig), ConnectionOptions(), clock) as connection:
        for lane in LANES:
            await send(connection, lane)
        files.write(server.authority.issue("new", key_type=after))
        await clock.sleep(61)
        for lane in LANES:
            await send(connection, lane)
    assert server.seen == ["old"] * 4 + ["new"] * 4


@pytest.mark.parametrize("lane", LANES)
async def test_a_rejected_client_certificate_is_loaded_again(
    server: MutualTlsServer, tmp_path: Path, clock: InstantClock, lane: Lane
) -> None:
    """A request that is rejected, because its connection's certificate expired, is sent again with the renewed one."""
    files = ClientFiles(tmp_path, server, inline=False)
    files.write(server.authority.issue("old"))
    async with ApiConnection(await from_kubeconfig(files.kubeconfig), ConnectionOptions(), clock) as connection:
        await send(connection, lane)
        server.expired.add("old")
        files.write(server.authority.issue("new"))
        await send(connection, lane)
    assert server.seen == ["old", "old", "new"]


@table("inline", ("files", False), ("inline", True))
async def test_a_renewed_authority(
    server: MutualTlsServer, tmp_path: Path, clock: InstantClock, *, inline: bool
) -> None:
    """A renewed authority is trusted, and the previous one is no longer."""
    files = ClientFiles(tmp_path, server, inline=inline)
    files.write(server.authority.issue("client"))
    first, second = server.own_authority, Authority("second")
    async with ApiConnection(await from_kubeconfig(files.kubeconfig), ConnectionOptions(), clock) as connection:
        await send(connection, Lane.BINDS)
        server.serve_with(second)
        files.authority = second.certificate
        files.write(server.authority.issue("client"))
        await clock.sleep(61)
        for lane in LANES:
            await send(connection, lane)
        server.serve_with(first)
        files.write(server.authority.issue("again"))
        await clock.sleep(61)
        for lane in LANES:
            with pytest.raises(ClusterWriteError, match="certificate verify failed"):
                await send(connection, lane)


async def test_half_a_renewal_changes_nothing(
    server: MutualTlsServer, tmp_path: Path, clock: InstantClock, caplog: pytest.LogCaptureFixture
) -> None:
    """While a certificate and its key do not belong together, the last valid pair stays in use and a line is logged."""
    files = ClientFiles(tmp_path, server, inline=False)
    files.write(server.authority.issue("old"))
    async with ApiConnection(await from_kubeconfig(files.kubeconfig), ConnectionOptions(), clock) as connection:
        renewed = server.authority.issue("new")
        (tmp_path / "client.crt").write_text(renewed.certificate)
        for _ in range(3):
            await clock.sleep(61)
            await send(connection, Lane.BINDS)
        (tmp_path / "client.key").write_text(renewed.key)
        await clock.sleep(61)
        await send(connection, Lane.BINDS)
    assert server.seen == ["old", "old", "old", "new"]
    assert caplog.text.count("the last valid ones stay in use") == 1


async def test_another_server_in_the_kubeconfig_is_not_used(
    server: MutualTlsServer, tmp_path: Path, clock: InstantClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A kubeconfig that changes to another cluster changes nothing in a running process."""
    files = ClientFiles(tmp_path, server, inline=True)
    files.write(server.authority.issue("old"))
    async with ApiConnection(await from_kubeconfig(files.kubeconfig), ConnectionOptions(), clock) as connection:
        await send(connection, Lane.BINDS)
        files.write(server.authority.issue("other"), port=1)
        await clock.sleep(61)
        await send(connection, Lane.BINDS)
    assert server.seen == ["old", "old"]
    assert "restart to connect to it" in caplog.text
