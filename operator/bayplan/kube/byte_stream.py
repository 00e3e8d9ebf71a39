"""One TCP connection, plain or with TLS, as the bytes that go out and come in on the running loop.

Owns the socket and when it is looked at. It must not know what the bytes mean. Why not asyncio's transports: theirs
carries TLS through buffers of its own, a third of the CPU that a short request takes; here OpenSSL has the socket.

    opened --write, received--> open --end, error, close--> closed (``ended`` is told once, but not of a close)
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from msgspec import Struct

_READ_BYTES = 1 << 14
"""As much as a TLS record holds at most: what is read of a record is all of it, and what is left is in the socket."""


class Endpoint(Struct, frozen=True):
    """Where requests go.

    Attributes:
        host: Name or address.
        port: TCP port.
        tls: None for plain TCP.
        server_name: The name that the certificate must carry; None for the host's.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


async def opened(endpoint: Endpoint) -> socket.socket:
    """A connected socket that does not block, after TLS' handshake where there is one.

    Raises:
        OSError: There is no way to the endpoint, or it is not what its certificate should say.
    """
    sock = await _connected(endpoint)
    if endpoint.tls is None:
        return sock
    try:
        # It takes the descriptor over; what it is made of is closed with it.
        secured = endpoint.tls.wrap_socket(
            sock, do_handshake_on_connect=False, server_hostname=endpoint.server_name or endpoint.host
        )
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
        sock: Connected, not blocking; belongs to the stream from now on.
        received: Told what came, never nothing.
        ended: Told that the server has closed (None), or what broke the connection.
    """

    __slots__ = ("_ended", "_is_watching_out", "_loop", "_receive", "_received", "_send", "_sock", "_unsent")

    def __init__(
        self, sock: socket.socket, received: Callable[[bytes], None], ended: Callable[[OSError | None], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = sock
        self._send, self._receive = sock.send, sock.recv
        self._received, self._ended = received, ended
        self._unsent = b""
        self._is_watching_out = False
        self._loop.add_reader(sock.fileno(), self._read)

    @property
    def is_open(self) -> bool:
        """Whether it may be written to."""
        return self._sock is not None

    def write(self, data: bytes) -> None:
        """Send what the socket takes at once, and the rest when it takes more."""
        self._unsent += data
        if not self._is_watching_out:
            self._flush()

    def close(self) -> None:
        """Close at once; nothing is told any more."""
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._loop.remove_reader(sock.fileno())
        self._watch_out(sock, False)
        self._unsent = b""
        sock.close()

    def _flush(self) -> None:
        sock, has_to_wait = self._sock, False
        assert sock is not None, "only an open stream is written to"
        try:
            while self._unsent:
                # OpenSSL takes a record at a time.
                self._unsent = self._unsent[self._send(self._unsent) :]
        except ssl.SSLWantReadError:
            pass  # the keys change: it goes on when something has come
        except (BlockingIOError, ssl.SSLWantWriteError):
            has_to_wait = True
        except OSError as error:
            self._end(error)
            return
        if has_to_wait is not self._is_watching_out:
            self._watch_out(sock, has_to_wait)

    def _read(self) -> None:
        try:
            data = self._receive(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            data = None
        except ssl.SSLWantWriteError:
            # The keys change, and the answer to that finds no room.
            if self._sock is not None:
                self._watch_out(self._sock, True)
            return
        except OSError as error:
            self._end(error)
            return
        if data:
            self._received(data)
        elif data is not None:
            self._end(None)
            return
        if self._unsent and self._sock is not None and not self._is_watching_out:
            self._flush()

    def _on_writable(self) -> None:
        self._flush()
        if self._sock is not None:
            self._read()

    def _watch_out(self, sock: socket.socket, is_wanted: bool) -> None:
        if is_wanted and not self._is_watching_out:
            self._loop.add_writer(sock.fileno(), self._on_writable)
        elif self._is_watching_out and not is_wanted:
            self._loop.remove_writer(sock.fileno())
        self._is_watching_out = is_wanted

    def _end(self, error: OSError | None) -> None:
        self.close()
        self._ended(error)


async def _connected(endpoint: Endpoint) -> socket.socket:
    """Connect to the first address of the host that can be reached."""
    loop = asyncio.get_running_loop()
    troubles: list[str] = []
    for family, kind, protocol, _, address in await _addresses(endpoint.host, endpoint.port):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            troubles.append(str(error))
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise OSError("; ".join(troubles) or f"{endpoint.host} has no address")


async def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        # What is an address already need not be asked of a name server, for which a thread is woken.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(found)


async def _handshake(sock: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
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
    if not ready.done():
        ready.set_result(None)
