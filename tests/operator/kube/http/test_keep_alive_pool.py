"""Tests of KeepAlivePool against a server with scripted responses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from bayplan.kube.http.byte_stream import Endpoint
from bayplan.kube.http.keep_alive_pool import BrokenResponseError, Deadlines, KeepAlivePool, NotConnectedError

from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

HEAD = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"
OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nRetry-After: 7\r\n\r\nok"


@dataclass
class Server:
    """Server that sends one scripted response a request; None closes the connection, b"" sends nothing.

    Attributes:
        connections: Number of accepted connections.
        requests: The requests as received.
        request_received: Set when the first request arrives.
    """

    responses: list[bytes | None]
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    port: int = 0
    request_received: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head + await reader.readexactly(2))
                self.request_received.set()
                response = self.responses.pop(0) if self.responses else OK
                if response is None:
                    break
                # A network may deliver a response in parts.
                for piece in (response[:20], response[20:]):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def pool_to(
    *responses: bytes | None, limit: int = 4, clock: VirtualClock | None = None
) -> AsyncIterator[tuple[KeepAlivePool, Server]]:
    """Yield a pool and its server."""
    server = Server(list(responses))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    pool = KeepAlivePool(Endpoint("127.0.0.1", server.port), clock or VirtualClock(), limit)
    try:
        yield pool, server
    finally:
        pool.close()
        listening.close()
        await listening.wait_closed()


async def post(pool: KeepAlivePool, seconds: float = 5.0, fence: Callable[[], None] | None = None) -> tuple[int, bytes]:
    """Send one request and return the status and the body."""
    response = await pool.send(HEAD, b"{}", seconds, fence)
    return response.status, response.body


@table(
    "response, expected",
    ("with-a-length", OK, (201, b"ok")),
    (
        "in-chunks",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        (200, b"abcde"),
    ),
    ("without-a-body", b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
    ("after-a-continue", b"HTTP/1.1 100 Continue\r\n\r\n" + OK, (201, b"ok")),
    ("error-response", b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n", (409, b"")),
)
async def test_responses_are_read(response: bytes, expected: tuple[int, bytes]) -> None:
    """Every form of a response is read, and its connection is used again."""
    async with pool_to(response) as (pool, server):
        assert await post(pool) == expected
        assert await post(pool) == (201, b"ok")
        assert server.connections == 1


async def test_connection_close_is_honoured() -> None:
    """After the header "Connection: close" the next request uses a new connection."""
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
    async with pool_to(closing) as (pool, server):
        assert await post(pool) == (200, b"x")
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2


@table(
    "response, seconds, error",
    ("broken-off", None, 5.0, BrokenResponseError),
    ("no-http", b"SMTP ready, what else?\r\n\r\n" * 2, 5.0, BrokenResponseError),
    ("no-length", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello", 5.0, BrokenResponseError),
    ("none in time", b"", 0.05, TimeoutError),
)
async def test_a_missing_response_is_an_error(response: bytes | None, seconds: float, error: type[Exception]) -> None:
    """The next request uses a new connection, so that a late response is not read as its response."""
    async with pool_to(response) as (pool, server):
        with pytest.raises(error):
            await post(pool, seconds=seconds)
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2


async def test_a_wait_for_a_connection_times_out() -> None:
    """A request that waits too long for a connection times out and is never sent."""
    async with pool_to(b"", limit=1) as (pool, server):
        stuck = asyncio.create_task(post(pool, seconds=5.0))
        await server.request_received.wait()
        with pytest.raises(TimeoutError):
            await post(pool, seconds=0.05)
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        assert len(server.requests) == 1


async def test_an_idle_connection_is_not_used_again() -> None:
    """A connection idle for longer than a minute is not used again, because the server may close it at any moment."""
    clock = VirtualClock()
    async with pool_to(clock=clock) as (pool, server):
        await post(pool)
        clock.advance(61.0)
        await post(pool)
        assert server.connections == 2


@table(
    "more",
    ("a whole second response", OK),
    ("the beginning of a response", b"HTTP/1.1 20"),
    ("not HTTP", b"what is this?"),
)
async def test_data_after_a_response_is_discarded(more: bytes) -> None:
    """Data after a response is discarded with its connection and not read as the next response."""
    async with pool_to(OK + more) as (pool, server):
        assert await post(pool) == (201, b"ok")
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2


async def test_headers_belong_to_their_response() -> None:
    """A response has no headers of the previous response or of an interim response."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    async with pool_to(OK, hints + plain) as (pool, server):
        first = await pool.send(HEAD, b"{}", 5.0, None)
        second = await pool.send(HEAD, b"{}", 5.0, None)
        assert (first.headers, first.body) == ({"content-length": "2", "retry-after": "7"}, b"ok")
        assert (second.headers, second.body) == ({"content-length": "0"}, b"")
        assert server.connections == 1


async def test_an_unrequested_response_closes_the_connection() -> None:
    """A connection on which the server sends a response without a request is not used again."""
    unrequested_sent, closed = asyncio.Event(), asyncio.Queue[None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(OK)
        await writer.drain()
        if not unrequested_sent.is_set():
            writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            await writer.drain()
            unrequested_sent.set()
        await reader.read()
        writer.close()
        closed.put_nowait(None)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = KeepAlivePool(Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]), VirtualClock(), 1)
    assert await post(pool) == (201, b"ok")
    await unrequested_sent.wait()
    assert await post(pool) == (201, b"ok")
    pool.close()
    for _ in range(2):
        await closed.get()
    listening.close()


async def test_a_tls_handshake_times_out() -> None:
    """A TLS handshake that does not complete raises NotConnectedError, because nothing was sent."""
    async with pool_to() as (_, server):
        tls = ssl.create_default_context()
        pool = KeepAlivePool(Endpoint("127.0.0.1", server.port, tls), VirtualClock(), 1, connect_seconds=0.05)
        with pytest.raises(NotConnectedError, match=r"within 0\.05 s"):
            await post(pool)
        with pytest.raises(TimeoutError):
            await post(pool, seconds=0.01)


async def test_closing_ends_waiting_requests() -> None:
    """When the pool is closed, a request that waits for a connection fails and is not sent."""
    async with pool_to(b"", limit=1) as (pool, server):
        stuck = asyncio.create_task(post(pool))
        await server.request_received.wait()
        waiting = asyncio.create_task(post(pool))
        await asyncio.sleep(0)
        pool.close()
        with pytest.raises(BrokenResponseError):
            await stuck
        with pytest.raises(NotConnectedError):
            await waiting
        assert len(server.requests) == 1


async def test_a_cancelled_request_closes_its_connection() -> None:
    """A cancelled request closes its connection and frees its slot."""
    async with pool_to(b"", limit=1) as (pool, server):
        task = asyncio.create_task(post(pool))
        await server.request_received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2


async def test_futures_end_in_the_order_of_their_deadlines() -> None:
    """Futures end in the order of their deadlines, whatever the order in which they were registered."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    late, early, never = loop.create_future(), loop.create_future(), loop.create_future()
    now = loop.time()
    deadlines.watch(never, now + 1000)
    deadlines.watch(late, now + 0.04)
    deadlines.watch(early, now + 0.01)
    with pytest.raises(TimeoutError):
        await early
    assert not late.done()
    with pytest.raises(TimeoutError):
        await late
    assert loop.time() >= now + 0.03
    assert not never.done()


async def test_done_and_removed_futures_do_not_time_out() -> None:
    """A future that has a result and a removed future do not time out."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    completed, removed, watched = loop.create_future(), loop.create_future(), loop.create_future()
    now = loop.time()
    deadlines.watch(completed, now + 0.01)
    deadlines.watch(removed, now + 0.01)
    deadlines.watch(watched, now + 0.01)
    completed.set_result("in time")
    deadlines.forget(removed)
    with pytest.raises(TimeoutError):
        await watched
    assert (await completed, removed.done()) == ("in time", False)
    deadlines.forget(completed)


async def test_a_deadline_after_all_others_have_passed() -> None:
    """A deadline that is set after all others have passed ends its future."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    for _ in range(2):
        future = loop.create_future()
        deadlines.watch(future, loop.time() + 0.005)
        with pytest.raises(TimeoutError):
            await future
