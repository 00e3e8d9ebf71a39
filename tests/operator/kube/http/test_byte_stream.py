"""Tests of ByteStream over one connection, plain and with TLS: large data, closed connections, and trust."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bayplan.kube.http.byte_stream import ByteStream, Endpoint, client_context, open_socket

from hack.controlplane.certificates import Authority

LARGE = bytes(range(256)) * (1 << 14)
"""4 MiB: more than socket buffers hold, and hundreds of TLS records."""

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


class StreamRecorder:
    """Recorder of the callbacks of a stream.

    Attributes:
        received: All bytes so far.
        ended: Result of the end callback; unset while the stream is open.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.received = bytearray()
        self._more = asyncio.Event()
        self.ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        self.stream = ByteStream(sock, self._on_data, self.ended.set_result)

    def _on_data(self, data: bytes) -> None:
        self.received += data
        self._more.set()

    async def until(self, length: int) -> bytes:
        """Return the data once it has this length."""
        async with asyncio.timeout(60):
            while len(self.received) < length:
                self._more.clear()
                await self._more.wait()
        return bytes(self.received)


async def test_large_data_arrives_whole(tls: Trust | None) -> None:
    """More data than the socket accepts at once is sent in parts and received in several reads."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(len(LARGE)))
        await writer.drain()
        await reader.read()

    async with endpoint_of(echo, tls) as endpoint:
        recorder = StreamRecorder(await open_socket(endpoint))
        recorder.stream.write(LARGE[:-3])
        recorder.stream.write(LARGE[-3:])
        assert await recorder.until(len(LARGE)) == LARGE
        recorder.stream.close()


async def test_the_end_is_reported_after_the_data(tls: Trust | None) -> None:
    """When the server closes the connection, the data is delivered first, and the end is reported once."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()

    async with endpoint_of(greet, tls) as endpoint:
        recorder = StreamRecorder(await open_socket(endpoint))
        assert await asyncio.wait_for(recorder.ended, 20) is None
        assert (bytes(recorder.received), recorder.stream.is_open) == (b"hello", False)
        recorder.stream.close()


async def test_a_reset_is_reported_with_its_error() -> None:
    """When the connection is reset, the end is reported with its error."""
    listening = socket.create_server(("127.0.0.1", 0))
    with listening:
        recorder = StreamRecorder(await open_socket(Endpoint("127.0.0.1", listening.getsockname()[1])))
        accepted, _ = listening.accept()
        # A linger time of zero resets the connection.
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        accepted.close()
        assert isinstance(await asyncio.wait_for(recorder.ended, 20), ConnectionResetError)


async def test_close_calls_no_callback(tls: Trust | None) -> None:
    """close() calls no callback, and the server sees the end."""
    seen: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        seen.set_result(await reader.read())

    async with endpoint_of(listen, tls) as endpoint:
        recorder = StreamRecorder(await open_socket(endpoint))
        recorder.stream.write(b"bye")
        recorder.stream.close()
        recorder.stream.close()
        assert await asyncio.wait_for(seen, 20) == b"bye"
        assert (recorder.ended.done(), recorder.stream.is_open) == (False, False)


async def _wait_for_data(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_a_server_without_tls_is_rejected(trust: Trust) -> None:
    """A connection with TLS to a server without TLS fails."""

    async def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with endpoint_of(speak_plainly, None) as endpoint:
        with pytest.raises(OSError, match=r"SSL|reset"):
            await open_socket(Endpoint(endpoint.host, endpoint.port, trust.client))


async def test_each_address_of_a_name_is_tried() -> None:
    """The stream tries each address of a host name until one accepts the connection."""
    async with endpoint_of(_wait_for_data, None) as endpoint:
        (await open_socket(Endpoint("localhost", endpoint.port))).close()


class ScriptedSocket(socket.socket):
    """A socket that raises TLS renegotiation errors as scripted.

    Attributes:
        send_errors: Raised by the next sends, one each.
        recv_errors: Raised by the next reads, one each.
        sends: Number of calls of send.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fileno=fd)
        self.send_errors: list[OSError] = []
        self.recv_errors: list[OSError] = []
        self.sends = 0

    def send(self, *args: object) -> int:
        self.sends += 1
        if self.send_errors:
            raise self.send_errors.pop(0)
        return super().send(*args)  # type: ignore[arg-type]  # passed on unchanged

    def recv(self, *args: int) -> bytes:
        if self.recv_errors:
            raise self.recv_errors.pop(0)
        return super().recv(*args)


@pytest.fixture
async def socket_pair() -> AsyncIterator[tuple[ScriptedSocket, socket.socket]]:
    """Yield a scripted socket and its peer."""
    near, far = socket.socketpair()
    near.setblocking(False)
    scripted = ScriptedSocket(near.detach())
    with scripted, far:
        yield scripted, far


async def _run_loop() -> None:
    """Run the event loop for ten iterations."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_send_that_needs_a_read_waits_for_data(socket_pair: tuple[ScriptedSocket, socket.socket]) -> None:
    """A send that needs a read first is not retried in a busy loop; it continues when data arrives."""
    near, far = socket_pair
    near.send_errors.append(ssl.SSLWantReadError())
    recorder = StreamRecorder(near)
    recorder.stream.write(b"request")
    await _run_loop()
    assert near.sends == 1
    far.send(b"keys")
    await recorder.until(4)
    assert far.recv(100) == b"request"
    recorder.stream.close()


async def test_a_read_that_needs_a_send_waits_for_the_socket(socket_pair: tuple[ScriptedSocket, socket.socket]) -> None:
    """A read that needs a send first is retried when the socket is writable."""
    near, far = socket_pair
    near.recv_errors.append(ssl.SSLWantWriteError())
    recorder = StreamRecorder(near)
    far.send(b"answer")
    assert await recorder.until(6) == b"answer"
    recorder.stream.close()


async def test_the_rest_of_a_blocked_send_follows_in_order(socket_pair: tuple[ScriptedSocket, socket.socket]) -> None:
    """The rest of a blocked send is sent in order when the socket is writable."""
    near, far = socket_pair
    near.send_errors += [ssl.SSLWantWriteError(), BlockingIOError()]
    recorder = StreamRecorder(near)
    recorder.stream.write(b"first ")
    recorder.stream.write(b"second")
    far.setblocking(False)
    assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(far, 100), 20) == b"first second"
    recorder.stream.close()


async def test_a_failed_send_ends_the_stream(socket_pair: tuple[ScriptedSocket, socket.socket]) -> None:
    """A failed send ends the stream at once, and the end is reported with the error."""
    near, _ = socket_pair
    near.send_errors.append(BrokenPipeError("gone"))
    recorder = StreamRecorder(near)
    recorder.stream.write(b"request")
    assert isinstance(recorder.ended.result(), BrokenPipeError)
    assert not recorder.stream.is_open
