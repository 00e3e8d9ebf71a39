"""One TCP connection, plain or TLS, as bytes on the running loop.

OpenSSL reads and writes the socket itself, without asyncio's transports.

    opened --write, received--> open --end, error, close--> closed (``ended`` is called once, but not after a close)
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


def client_context(
    authority: str | None = None, authority_file: str | None = None, *, is_verified: bool = True
) -> ssl.SSLContext:
    """Return a context.

    Args:
        authority: Certificates that are trusted, PEM.
        authority_file: A file with such certificates. If both are None, those of the system are trusted.

    Raises:
        OSError: The file cannot be read, or a certificate is invalid.
        ValueError: ``authority`` contains no certificate.
    """
    # Not create_default_context(): since Python 3.13 its strict mode requires extensions that cluster CAs often lack.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Go: each configured certificate is an authority, also one that another authority has signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not is_verified:
        # First: Python rejects CERT_NONE while host names are checked.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if authority is not None or authority_file is not None:
        context.load_verify_locations(cafile=authority_file, cadata=authority)
    else:
        context.load_default_certs()
    return context


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a temporary file that only this user can read; OpenSSL reads keys only from files."""
    if sys.platform == "linux":
        # In memory: disks may be read-only, and a private key does not belong on a disk.
        with os.fdopen(os.memfd_create("bayplan", os.MFD_CLOEXEC), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def self_signed_pem(names: Iterable[str], days: int) -> tuple[bytes, bytes]:
    """Generate a certificate and its private key (ECDSA on P-256), both in PEM.

    Args:
        names: Host names and IP addresses of the server; a name that is not ASCII is left out.
        days: Validity. Clients compare it with the system's time, not with an injected clock.
    """
    # Imported here, because it is not needed with certificate files or for other commands.
    from cryptography import x509  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above

    key = ec.generate_private_key(ec.SECP256R1())
    # X.509 limits a common name to 64 characters.
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"bayplan@{socket.gethostname()}"[:64])])
    alternatives: list[x509.GeneralName] = []
    for each in dict.fromkeys(names):
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(each)))
        except ValueError:
            alternatives += [x509.DNSName(each)] if each.isascii() else []
    began = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)  # since clocks differ
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


_READ_BYTES = 1 << 14
"""Maximum size of a TLS record: one read returns a whole record, and the rest stays in the socket."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Destination of requests: plain TCP without ``tls``; the certificate is for ``server_hostname``, else ``host``."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None


async def open_socket(endpoint: Endpoint) -> socket.socket:
    """Return a connected, non-blocking socket, after the TLS handshake if there is one; raises OSError."""
    sock = await _connected(endpoint)
    if endpoint.tls is None:
        return sock
    try:
        # wrap_socket takes over the file descriptor; the original socket is closed with the new one.
        # asyncio's transports would copy TLS data through their own buffers, a third of the CPU time of a short
        # request.
        name = endpoint.server_hostname or endpoint.host
        secured = endpoint.tls.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=name)
    except BaseException:
        sock.close()
        raise
    try:
        await _handshake(secured)
    except BaseException:
        secured.close()
        raise
    return secured


class ByteStream:
    """An open connection.

    Args:
        sock: Connected, non-blocking; the stream owns it from now on.
        received: Called with the bytes received, never empty.
        ended: Called with None when the server closes, or with the error that broke the connection.
    """

    __slots__ = ("_ended", "_loop", "_receive", "_received", "_send", "_sock", "_unsent", "_waits_for_write")

    def __init__(
        self, sock: socket.socket, received: Callable[[bytes], None], ended: Callable[[OSError | None], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = sock
        self._send, self._receive = sock.send, sock.recv
        self._received, self._ended = received, ended
        self._unsent = b""
        self._waits_for_write = False
        self._loop.add_reader(sock.fileno(), self._read)

    @property
    def is_open(self) -> bool:
        return self._sock is not None

    def write(self, data: bytes) -> None:
        """Send what the socket accepts at once, and the rest when it accepts more."""
        self._unsent += data
        if not self._waits_for_write:
            self._flush()

    def close(self) -> None:
        """Close at once; no callback is called after that."""
        sock, self._sock = self._sock, None
        if sock is None:
            return
        # Before the socket is closed: its file descriptor may be used again at once.
        self._loop.remove_reader(sock.fileno())
        self._wait_for_write(sock, False)
        self._unsent = b""
        sock.close()

    def _flush(self) -> None:
        sock, has_to_wait = self._sock, False
        assert sock is not None, "write() requires an open stream"
        try:
            while self._unsent:
                # OpenSSL accepts one record at a time.
                self._unsent = self._unsent[self._send(self._unsent) :]
        except ssl.SSLWantReadError:
            pass  # renegotiation: continue when data has arrived
        except (BlockingIOError, ssl.SSLWantWriteError):
            has_to_wait = True
        except OSError as error:
            self._end(error)
            return
        if has_to_wait is not self._waits_for_write:
            self._wait_for_write(sock, has_to_wait)

    def _read(self) -> None:
        try:
            data = self._receive(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            data = None
        except ssl.SSLWantWriteError:
            # Renegotiation, and the socket has no room for the reply.
            if self._sock is not None:
                self._wait_for_write(self._sock, True)
            return
        except OSError as error:
            self._end(error)
            return
        if data:
            self._received(data)
        elif data is not None:
            self._end(None)
            return
        # A send that waited for data of a renegotiation continues now.
        if self._unsent and self._sock is not None and not self._waits_for_write:
            self._flush()

    def _on_writable(self) -> None:
        self._flush()
        # A read may have waited for room in the socket, too; the flush may have ended the stream.
        if self._sock is not None:
            self._read()

    def _wait_for_write(self, sock: socket.socket, is_wanted: bool) -> None:
        if is_wanted and not self._waits_for_write:
            self._loop.add_writer(sock.fileno(), self._on_writable)
        elif self._waits_for_write and not is_wanted:
            self._loop.remove_writer(sock.fileno())
        self._waits_for_write = is_wanted

    def _end(self, error: OSError | None) -> None:
        self.close()
        self._ended(error)


async def _connected(endpoint: Endpoint) -> socket.socket:
    """Connect to the first address of the host that accepts."""
    loop = asyncio.get_running_loop()
    errors: list[str] = []
    for family, kind, protocol, _, address in await _addresses(endpoint.host, endpoint.port):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            # Nagle's algorithm would delay a short request until earlier data is acknowledged.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            errors.append(str(error))
        # A cancelled connect, too: nothing else has this socket.
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise OSError("; ".join(errors) or f"{endpoint.host} has no address")


async def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        # A literal address needs no name server, which would use a thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(found)


async def _handshake(sock: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            # asyncio has a handshake for its transports only.
            sock.do_handshake()
        except ssl.SSLWantReadError:
            loop.add_reader(sock.fileno(), _wake, ready)
            try:
                await ready
            finally:
                loop.remove_reader(sock.fileno())
        except ssl.SSLWantWriteError:
            loop.add_writer(sock.fileno(), _wake, ready)
            try:
                await ready
            finally:
                loop.remove_writer(sock.fileno())
        else:
            return


def _wake(ready: asyncio.Future[None]) -> None:
    # The loop may call this again before the waiting task runs and removes it.
    if not ready.done():
        ready.set_result(None)
