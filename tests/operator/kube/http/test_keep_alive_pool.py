"""Tests of short requests over keep-alive connections, against a server with scripted responses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from bayplan.kube.http.byte_stream import Endpoint
from bayplan.kube.http.keep_alive_pool import BrokenResponseError, KeepAlivePool, NotConnectedError

from tests.support.virtual_clock import VirtualClock

HEAD = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"
OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nRetry-After: 7\r\n\r\nok"


@dataclass
class Server:
    """Sends the next of some texts for each request; None breaks the connection, "" is silence.

    Attributes:
        connections: Number of accepted connections.
        requests: The requests as received.
        asked: Set with the first request.
    """

    answers: list[bytes | None]
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    port: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head + await reader.readexactly(2))
                self.asked.set()
                answer = self.answers.pop(0) if self.answers else OK
                if answer is None:
                    break
                # In two parts, as a network may deliver it.
                for piece in (answer[:20], answer[20:]):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def pool_to(
    *answers: bytes | None, limit: int = 4, clock: VirtualClock | None = None
) -> AsyncIterator[tuple[KeepAlivePool, Server]]:
    """Yield a pool and its server."""
    server = Server(list(answers))
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
    """Return status and body of one request."""
    answer = await pool.send(HEAD, b"{}", seconds, fence)
    return answer.status, answer.body


async def test_a_connection_is_used_again() -> None:
    """Requests one after the other use one connection, and arrive whole."""
    async with pool_to() as (pool, server):
        for _ in range(3):
            assert await post(pool) == (201, b"ok")
        assert server.connections == 1
        assert server.requests == [HEAD + b"{}"] * 3


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        pytest.param(OK, (201, b"ok"), id="with-a-length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            (200, b"abcde"),
            id="in-chunks",
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", (204, b""), id="without-a-body"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, (201, b"ok"), id="after-a-continue"),
        pytest.param(b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n", (409, b""), id="a-refusal"),
    ],
)
async def test_answers(answer: bytes, found: tuple[int, bytes]) -> None:
    """Every form of a response is read, and the connection can be used again."""
    async with pool_to(answer) as (pool, server):
        assert await post(pool) == found
        assert await post(pool) == (201, b"ok")
        assert server.connections == 1


async def test_headers_come_by_lower_case_names() -> None:
    """The server's spelling of a header does not matter."""
    async with pool_to() as (pool, _):
        assert (await pool.send(HEAD, b"{}", 5.0, None)).headers["retry-after"] == "7"


async def test_connection_close_is_honoured() -> None:
    """After Connection: close the next request gets a new connection."""
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
    async with pool_to(closing) as (pool, server):
        assert await post(pool) == (200, b"x")
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="broken-off"),
        pytest.param(b"SMTP ready, what else?\r\n\r\n" * 2, id="no-http"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello", id="no-length"),
    ],
)
async def test_broken_answers(answer: bytes | None) -> None:
    """It is then unknown whether the request was executed; the next one gets a new connection."""
    async with pool_to(answer) as (pool, server):
        with pytest.raises(BrokenResponseError):
            await post(pool)
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2


async def test_no_response_in_time() -> None:
    """The connection is closed: a late response must not be read as that of the next request."""
    async with pool_to(b"") as (pool, server):
        with pytest.raises(TimeoutError):
            await post(pool, seconds=0.05)
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2


async def test_no_server() -> None:
    """The error says that nothing was sent."""
    async with pool_to() as (_, server):
        port = server.port
    with pytest.raises(NotConnectedError):
        await post(KeepAlivePool(Endpoint("127.0.0.1", port), VirtualClock(), 1))


async def test_the_limit_holds() -> None:
    """More requests than connections wait for a free one."""
    async with pool_to(limit=2) as (pool, server):
        answers = await asyncio.gather(*(post(pool) for _ in range(20)))
        assert answers == [(201, b"ok")] * 20
        assert server.connections == 2


async def test_waiting_for_a_connection_counts() -> None:
    """A request that waits for a connection times out too, and is then never sent."""
    async with pool_to(b"", limit=1) as (pool, server):
        stuck = asyncio.create_task(post(pool, seconds=5.0))
        await server.asked.wait()
        with pytest.raises(TimeoutError):
            await post(pool, seconds=0.05)
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        assert len(server.requests) == 1


async def test_a_connection_idle_for_long_is_not_used() -> None:
    """The server may close it at any moment, which would leave the outcome of a request unknown."""
    clock = VirtualClock()
    async with pool_to(clock=clock) as (pool, server):
        await post(pool)
        clock.advance(61.0)
        await post(pool)
        assert server.connections == 2


async def test_the_fence_is_called_last() -> None:
    """Its error is raised, and no byte has been sent."""

    class RefusedError(Exception):
        """The refusal of the fence."""

    def refuse() -> None:
        raise RefusedError

    async with pool_to() as (pool, server):
        with pytest.raises(RefusedError):
            await post(pool, fence=refuse)
        assert server.requests == []
        assert await post(pool) == (201, b"ok")


async def test_closing_ends_requests_in_flight() -> None:
    """A request whose connection is closed fails at once."""
    async with pool_to(b"") as (pool, server):
        waiting = asyncio.create_task(post(pool))
        await server.asked.wait()
        pool.close()
        with pytest.raises(BrokenResponseError):
            await waiting


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(OK, id="a whole second answer"),
        pytest.param(b"HTTP/1.1 20", id="the beginning of one"),
        pytest.param(b"what is this?", id="no HTTP"),
    ],
)
async def test_a_second_response(more: bytes) -> None:
    """The first response counts; what follows it must not be read as the response of the next request."""
    async with pool_to(OK + more) as (pool, server):
        assert await post(pool) == (201, b"ok")
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2


async def test_headers_belong_to_their_response() -> None:
    """No header of the previous response or of an interim response is left."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    async with pool_to(OK, hints + plain) as (pool, server):
        first = await pool.send(HEAD, b"{}", 5.0, None)
        second = await pool.send(HEAD, b"{}", 5.0, None)
        assert (first.headers, first.body) == ({"content-length": "2", "retry-after": "7"}, b"ok")
        assert (second.headers, second.body) == ({"content-length": "0"}, b"")
        assert server.connections == 1


async def test_a_response_without_a_request() -> None:
    """A server that sends something between requests, as before it closes, gets no request on that connection."""
    said, left = asyncio.Event(), asyncio.Queue[None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(OK)
        await writer.drain()
        if not said.is_set():
            writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            await writer.drain()
            said.set()
        await reader.read()
        writer.close()
        left.put_nowait(None)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = KeepAlivePool(Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]), VirtualClock(), 1)
    assert await post(pool) == (201, b"ok")
    await said.wait()
    assert await post(pool) == (201, b"ok")
    pool.close()
    for _ in range(2):
        await left.get()
    listening.close()


async def test_a_server_without_a_handshake() -> None:
    """TCP connects and TLS does not: the error after the timeout says that nothing was sent."""
    async with pool_to() as (_, server):
        tls = ssl.create_default_context()
        pool = KeepAlivePool(Endpoint("127.0.0.1", server.port, tls), VirtualClock(), 1, connect_seconds=0.05)
        with pytest.raises(NotConnectedError, match=r"within 0\.05 s"):
            await post(pool)
        with pytest.raises(TimeoutError):
            await post(pool, seconds=0.01)


async def test_closing_while_others_wait() -> None:
    """A request that waits for a connection gets none, and nothing of it is sent."""
    async with pool_to(b"", limit=1) as (pool, server):
        stuck = asyncio.create_task(post(pool))
        await server.asked.wait()
        waiting = asyncio.create_task(post(pool))
        await asyncio.sleep(0)
        pool.close()
        with pytest.raises(BrokenResponseError):
            await stuck
        with pytest.raises(NotConnectedError):
            await waiting
        assert len(server.requests) == 1


async def test_a_cancelled_request_closes_its_connection() -> None:
    """Its response may still come and belongs to no request; the slot is free again."""
    async with pool_to(b"", limit=1) as (pool, server):
        task = asyncio.create_task(post(pool))
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await post(pool) == (201, b"ok")
        assert server.connections == 2
