"""Tests of one connection, plain and with TLS: large data, late data, ends, and trust."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bayplan.kube.http.byte_stream import ByteStream, Endpoint, open_socket
from bayplan.kube.http.tls_context import client_context

from tests.support.certificates import Authority

LARGE = bytes(range(256)) * (1 << 14)
"""4 MiB: more than sockets hold, and hundreds of TLS records."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Trust:
    """Both sides of TLS: a server's certificate, and a client that trusts its CA."""

    def __init__(self, directory: Path, name: str = "api.example") -> None:
        self._directory = directory
        self.authority = Authority()
        certificate, key = self.authority.issue(name).write(directory, "server")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(certificate, key)
        self.client = client_context(self.authority.certificate)


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust(tmp_path_factory.mktemp("trust"))


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, trust: Trust) -> Trust | None:
    return trust if request.param == "tls" else None


@asynccontextmanager
async def endpoint_of(serve: Serve, tls: Trust | None) -> AsyncIterator[Endpoint]:
    """Yield the endpoint of a server on loopback."""

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except OSError:
            pass  # the client closed the connection
        finally:
            writer.close()

    server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0, ssl=tls.server if tls else None)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Endpoint("127.0.0.1", port, tls.client if tls else None)
    finally:
        server.close()
        await server.wait_closed()


class Side:
    """Records the callbacks of a stream.

    Attributes:
        came: All bytes so far.
        ended: How it ended; unset while it is open.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.came = bytearray()
        self._more = asyncio.Event()
        self.ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        self.stream = ByteStream(sock, self._received, self.ended.set_result)

    def _received(self, data: bytes) -> None:
        self.came += data
        self._more.set()

    async def until(self, length: int) -> bytes:
        """Return the data once it has this length."""
        async with asyncio.timeout(60):
            while len(self.came) < length:
                self._more.clear()
                await self._more.wait()
        return bytes(self.came)


async def test_large_data_arrives_whole(tls: Trust | None) -> None:
    """More data than the socket accepts at once is sent in parts, and comes back in several reads."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(len(LARGE)))
        await writer.drain()
        await reader.read()

    async with endpoint_of(echo, tls) as endpoint:
        side = Side(await open_socket(endpoint))
        side.stream.write(LARGE[:-3])
        side.stream.write(LARGE[-3:])
        assert await side.until(len(LARGE)) == LARGE
        side.stream.close()


async def test_the_server_ends(tls: Trust | None) -> None:
    """Data before the end is delivered before it, and the end once."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()

    async with endpoint_of(greet, tls) as endpoint:
        side = Side(await open_socket(endpoint))
        assert await asyncio.wait_for(side.ended, 20) is None
        assert (bytes(side.came), side.stream.is_open) == (b"hello", False)
        side.stream.close()


async def test_the_connection_is_reset() -> None:
    """The end of a broken connection is reported with its reason."""
    listening = socket.create_server(("127.0.0.1", 0))
    with listening:
        side = Side(await open_socket(Endpoint("127.0.0.1", listening.getsockname()[1])))
        accepted, _ = listening.accept()
        # A linger time of zero resets the connection.
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        accepted.close()
        assert isinstance(await asyncio.wait_for(side.ended, 20), ConnectionResetError)


async def test_a_close_calls_nothing(tls: Trust | None) -> None:
    """The caller of close() gets no callback; the server sees the end."""
    seen: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        seen.set_result(await reader.read())

    async with endpoint_of(listen, tls) as endpoint:
        side = Side(await open_socket(endpoint))
        side.stream.write(b"bye")
        side.stream.close()
        side.stream.close()
        assert await asyncio.wait_for(seen, 20) == b"bye"
        assert (side.ended.done(), side.stream.is_open) == (False, False)


async def _silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_no_tls_there(trust: Trust) -> None:
    """A server without TLS is rejected."""

    async def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with endpoint_of(speak_plainly, None) as endpoint:
        with pytest.raises(OSError, match=r"SSL|reset"):
            await open_socket(Endpoint(endpoint.host, endpoint.port, trust.client))


async def test_each_address_of_a_name_is_tried() -> None:
    """Of the addresses of a name only one may accept connections."""
    async with endpoint_of(_silence, None) as endpoint:
        (await open_socket(Endpoint("localhost", endpoint.port))).close()


class ScriptedSocket(socket.socket):
    """A socket that raises TLS renegotiation errors as scripted.

    Attributes:
        of_send: Raised by the next sends, one each.
        of_recv: Raised by the next reads.
        sends: Number of calls of send.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fileno=fd)
        self.of_send: list[OSError] = []
        self.of_recv: list[OSError] = []
        self.sends = 0

    def send(self, *args: object) -> int:
        self.sends += 1
        if self.of_send:
            raise self.of_send.pop(0)
        return super().send(*args)  # type: ignore[arg-type]  # passed on unchanged

    def recv(self, *args: int) -> bytes:
        if self.of_recv:
            raise self.of_recv.pop(0)
        return super().recv(*args)


@pytest.fixture
async def ends() -> AsyncIterator[tuple[ScriptedSocket, socket.socket]]:
    """Yield a scripted socket and its peer."""
    near, far = socket.socketpair()
    near.setblocking(False)
    scripted = ScriptedSocket(near.detach())
    with scripted, far:
        yield scripted, far


async def _turns() -> None:
    """Run some turns of the loop."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_send_that_has_to_read_first(ends: tuple[ScriptedSocket, socket.socket]) -> None:
    """It is not retried in a busy loop, and continues when data has arrived."""
    near, far = ends
    near.of_send.append(ssl.SSLWantReadError())
    side = Side(near)
    side.stream.write(b"request")
    await _turns()
    assert near.sends == 1
    far.send(b"keys")
    await side.until(4)
    assert far.recv(100) == b"request"
    side.stream.close()


async def test_a_read_that_has_to_send_first(ends: tuple[ScriptedSocket, socket.socket]) -> None:
    """It is retried when the socket is writable."""
    near, far = ends
    near.of_recv.append(ssl.SSLWantWriteError())
    side = Side(near)
    far.send(b"answer")
    assert await side.until(6) == b"answer"
    side.stream.close()


async def test_a_send_that_finds_no_room(ends: tuple[ScriptedSocket, socket.socket]) -> None:
    """The rest is sent in order when the socket is writable."""
    near, far = ends
    near.of_send += [ssl.SSLWantWriteError(), BlockingIOError()]
    side = Side(near)
    side.stream.write(b"first ")
    side.stream.write(b"second")
    far.setblocking(False)
    assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(far, 100), 20) == b"first second"
    side.stream.close()


async def test_a_send_that_breaks(ends: tuple[ScriptedSocket, socket.socket]) -> None:
    """The end is reported at once, with its reason."""
    near, _ = ends
    near.of_send.append(BrokenPipeError("gone"))
    side = Side(near)
    side.stream.write(b"request")
    assert isinstance(side.ended.result(), BrokenPipeError)
    assert not side.stream.is_open
