"""The HTTP server of the operator, which listens from the start and responds when scheduling leaves time.

The server's modules cost a tenth of the CPU time until the first bind, so they are imported in a thread afterwards. The
kernel accepts connections from the start; a probe that connects earlier waits for its response.

    listening ──start()──▶ modules imported, certificate generated ──▶ responses
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from bayplan.extenders.extender_clients import ExtenderClients
from bayplan.kube.http.byte_stream import as_file, self_signed_pem
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.leader_election import LeaderElection, LeaderEndpoint, endpoint_url
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from bayplan.kube.watches.cluster_informers import ClusterInformers
from bayplan.kube.writes.cluster_writer import KubeWriter
from bayplan.process.copies import BackgroundDocuments
from bayplan.profiles.profile_sources import ProfileSource
from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.serving import PAGE_PATH
from bayplan.settings.feature_gates import FeatureGates
from bayplan.settings.operator_settings import ServingSettings, TlsVersion
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

_RELOAD_SECONDS = 10.0
_DAYS = 3650
"""Validity of a generated certificate, which must outlive the process; clients do not verify it."""
_VERSIONS: dict[TlsVersion, ssl.TLSVersion] = {
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}


class ServedCertificate:
    """Certificate with the TLS context of the server.

    Attributes:
        context: TLS context of the server; each handshake uses the newest valid certificate.

    Raises:
        ConfigError: The files cannot be read, or the key does not belong to the certificate.
    """

    def __init__(self, settings: ServingSettings) -> None:
        self._minimum = _VERSIONS[settings.tls_min_version]
        self.context = self._new_context()
        # Called for each handshake. A context keeps one certificate for each type of key, so loading an RSA certificate
        # into a context with an ECDSA one would leave both.
        self.context.sni_callback = self._use_newest
        self._newest = self.context
        self._files: tuple[Path, Path] | None = None
        self._pem = b""
        self._last_error = ""
        if settings.tls_cert_file is None or settings.tls_private_key_file is None:
            names = ("localhost", socket.gethostname(), "127.0.0.1", "::1")
            self._use(b"".join(self_signed_pem(names, _DAYS)))
            return
        self._files = Path(settings.tls_cert_file), Path(settings.tls_private_key_file)
        try:
            self._use(self._read())
        except (OSError, ValueError) as error:
            raise ConfigError([Problem("tlsCertFile", self._unusable(error))]) from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the current certificate in DER, as lower-case hex; "" for an unusual form of PEM."""
        # The certificate comes first, followed by its intermediates.
        _, begin, rest = self._pem.decode("latin-1").partition("-----BEGIN CERTIFICATE-----")
        body, end, _ = rest.partition("-----END CERTIFICATE-----")
        try:
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(begin + body + end)).hexdigest()
        except ValueError:
            return ""

    async def run(self, clock: Clock) -> None:
        """Reload the files when they change, until cancelled."""
        while self._files is not None:
            await clock.sleep(_RELOAD_SECONDS)
            await self.refresh()

    async def refresh(self) -> bool:
        """Reload the files if they have changed and are valid; return whether they were reloaded."""
        try:
            # A file system may hang, so only reading runs in a thread; the context changes between two handshakes.
            pem = await asyncio.to_thread(self._read)
            is_new = pem != self._pem
            if is_new:
                self._use(pem)
        except (OSError, ValueError) as error:
            # The files may be read in the middle of a renewal; a lasting error is logged once.
            text = self._unusable(error)
            if text != self._last_error:
                log.warning("%s; the last valid certificate stays in use", text)
            self._last_error = text
            return False
        self._last_error = ""
        if is_new:
            log.info("Reloaded the certificate from %s", self._named)
        return is_new

    def _read(self) -> bytes:
        assert self._files is not None
        return b"\n".join(file.read_bytes() for file in self._files)

    def _use(self, pem: bytes) -> None:
        context = self._new_context()
        _load(context, pem)
        self._newest, self._pem = context, pem

    def _use_newest(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: object) -> None:
        connection.context = self._newest

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        return context

    @property
    def _named(self) -> str:
        assert self._files is not None
        return str(self._files[0])

    def _unusable(self, error: Exception) -> str:
        assert self._files is not None
        certificate, key = self._files
        return f"{certificate} and {key} cannot be used ({error}); provide a PEM certificate and its private key"


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate and its key from memory; the standard library accepts only files."""
    with as_file(pem) as path:
        context.load_cert_chain(path, password=_no_passphrase)


def _no_passphrase() -> str:
    # Without this callback OpenSSL would wait for input from the terminal.
    raise ValueError("the private key is encrypted; provide one without a passphrase")


if TYPE_CHECKING:
    from bayplan.reservations.reservation_controller import ReservationController
    from bayplan.serving.http_server import HealthServer
    from bayplan.serving.served_page import PageBuilder

_WAITING_CONNECTIONS = 128


class Listener:
    """Sockets that listen on an address, one for each address that the host has, and on one for local requests.

    Args:
        address: Host and port; port 0 selects a free one.
        local_address: The same for local requests; None for no separate sockets.

    Attributes:
        sockets: The sockets, those of ``address`` first.

    Raises:
        ConfigError: An address cannot be listened on.
    """

    def __init__(self, address: tuple[str, int], local_address: tuple[str, int] | None = None) -> None:
        self.sockets = _listening(address, "serveAddress", "--serve-address")
        if local_address is not None:
            try:
                self.sockets += _listening(local_address, "localAddress", "--local-address")
            except ConfigError:
                self.close()
                raise
        names = {(host, port) for host, port, *_ in (each.getsockname() for each in self.sockets)}
        self.local_names = frozenset((host, port) for host, port in names if ip_address(host).is_loopback)

    @property
    def port(self) -> int:
        """Port of the first socket."""
        port: int = self.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        for each in self.sockets:
            each.close()


def _listening(address: tuple[str, int], field: str, flag: str) -> tuple[socket.socket, ...]:
    host, port = address
    try:
        return _opened(host, port)
    except OSError as error:
        # create_server adds the address to the text of the system.
        reason = (error.strerror or str(error)).partition(" (while")[0]
        message = f"cannot listen on {host}:{port}: {reason}; set another address with {flag}"
        raise ConfigError([Problem(field, message)]) from error


def _opened(host: str, port: int) -> tuple[socket.socket, ...]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    with ExitStack() as opened:
        for family, address in dict.fromkeys((family, address[:2]) for family, *_, address in found):
            try:
                each = socket.create_server(address, family=family, backlog=_WAITING_CONNECTIONS)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    continue  # the kernel has no IPv6
                raise
            sockets.append(opened.enter_context(each))
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, "the host has no such address")
        opened.pop_all()
    return tuple(sockets)


@dataclass(frozen=True, slots=True)
class ServedParts:
    """The parts of the process that the endpoints and the metrics show.

    Attributes:
        selector: Label selector of the profiles that this process serves; "" for all.
        attempts: The last attempts of pods and gangs; None if the page is not served.
        background: Builds explanations in a copy of the process; None to build them at once.
        reservations: The NodeReservations; None if they are not read.
        plans: Returns the RebalancePlans with their last statuses; None without the feature gate.
    """

    scheduler: Scheduler
    informers: ClusterInformers
    readiness: Readiness
    connection: ApiConnection
    clock: Clock
    writer: KubeWriter
    extenders: ExtenderClients
    gates: FeatureGates
    profiles: ProfileSource
    election: LeaderElection | None
    started: float
    is_profiling_enabled: bool
    selector: str
    serves: Callable[[str], bool | None]
    support: Callable[[], ServerSupport]
    attempts: AttemptHistory | None = None
    background: BackgroundDocuments | None = None
    reservations: ReservationController | None = None
    plans: Callable[[], Iterable[RebalancePlan]] | None = None


class DeferredServer:
    """HTTP server that is built when it starts."""

    def __init__(self, address: tuple[str, int], settings: ServingSettings, parts: ServedParts) -> None:
        self._settings = settings
        self._parts = parts
        self._certificate = ServedCertificate(settings) if settings.tls_cert_file is not None else None
        self._listener = Listener(address, settings.local_host_and_port)
        self._server: HealthServer | None = None

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def page_url(self) -> str:
        """URL of the page on this host; "" if it is not served or the server does not listen on loopback."""
        own = min(self._listener.local_names, default=None)
        if own is None or not self._settings.serve_page:
            return ""
        return endpoint_url("https" if self._settings.serves_tls else "http", *own) + f"{PAGE_PATH}/"

    async def start(self) -> None:
        """Import the modules in a thread, generate the certificate if there is none, and respond."""
        endpoints = await asyncio.to_thread(import_module, "bayplan.serving.operator_server")
        if self._settings.serves_tls and self._certificate is None:
            self._certificate = await asyncio.to_thread(ServedCertificate, self._settings)
        build_page = await asyncio.to_thread(_page_builder, self._settings) if self._settings.serve_page else None
        self._server = endpoints.operator_server(
            self._listener, self._settings, self._parts, self._certificate, build_page
        )
        await self._server.start()

    def endpoint(self, address: str) -> LeaderEndpoint | None:
        """Return where other replicas reach the server; None before it responds, or if they must not connect to it."""
        return None if self._server is None else self._server.endpoint(address)

    async def stop(self) -> None:
        """Stop listening; requests in progress may take another half second."""
        if self._server is None:
            self._listener.close()
        else:
            await self._server.stop()


def _page_builder(settings: ServingSettings) -> PageBuilder:
    built: PageBuilder = import_module("bayplan.serving.served_page").PageBuilder(settings)
    return built
