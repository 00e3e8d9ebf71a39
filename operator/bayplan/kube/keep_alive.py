"""Short requests over connections that are kept: what binds and events go through, thousands a second.

Owns the connections of one lane and the bytes on them. It must not know paths, credentials, or what an answer means.
HTTP/1.1 answers are read by httptools' parser; requests are written whole, one at a time on a connection. Why not the
client library that everything else goes through: it takes 0.2 ms of CPU a request, of which these have half.

    (none free) --connect--> busy --answered, kept alive--> free --idle for long, closed by the server--> gone
                              '--out of time, cancelled, broken off--> gone
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import httptools

from scheduler_core.ports import Clock

_MOST_ANSWER_BYTES = 64 << 20


class NotConnectedError(OSError):
    """No connection could be made: nothing was sent."""


class AnswerBrokenError(OSError):
    """The connection broke, or what came is no HTTP, before the answer was whole: the request may be carried out."""


@dataclass(frozen=True, slots=True)
class Endpoint:
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


@dataclass(slots=True)
class Answer:
    """What came back.

    Attributes:
        status: HTTP status.
        headers: By name in lower case; of several of one name the last.
        body: Decoded from chunks where it came in such.
    """

    status: int
    headers: dict[str, str]
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection, with at most one request on it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_whole = self._is_kept = False
        self.free_since = 0.0

    # -- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            # Nothing was asked: an answer to nothing, such as 408 before the server closes.
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(AnswerBrokenError(f"the answer is no HTTP: {error}"))
            return
        if self._is_whole:
            self._deliver()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(AnswerBrokenError(f"the connection broke before the answer: {exc or 'closed by the server'}"))

    # -- the parser's side --------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A part of the body has come."""
        self._chunks.append(body)
        self._size += len(body)
        if self._size > _MOST_ANSWER_BYTES:
            self._fail(AnswerBrokenError(f"the answer is larger than {_MOST_ANSWER_BYTES} bytes"))

    def on_message_complete(self) -> None:
        """The answer is whole."""
        # Answers such as 100 Continue come before the one that counts.
        if self._parser.get_status_code() >= 200:
            # The parser knows it here and not any more when it has returned.
            self._is_whole, self._is_kept = True, self._parser.should_keep_alive()
        else:
            self._headers, self._chunks, self._size = {}, [], 0

    # -- the pool's side ----------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes) -> asyncio.Future[Answer]:
        """Write a request; the future gives its answer."""
        assert self._transport is not None, "only an open connection is handed out"
        self._headers, self._chunks, self._size, self._is_whole = {}, [], 0, False
        self._answer = answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return answer

    def close(self) -> None:
        """Break the connection off, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def _deliver(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(Answer(self._parser.get_status_code(), self._headers, b"".join(self._chunks)))
        if not self._is_kept:
            self.close()
        else:
            self._parser = httptools.HttpResponseParser(self)

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        self.close()


class KeepAlivePool:
    """Connections to one endpoint.

    Args:
        endpoint: Where to.
        clock: Time.
        limit: How many there may be at once; who comes when all are busy waits.
        connect_seconds: Longest wait for TCP and TLS.
        idle_seconds: A connection that was free for longer is not used again.
    """

    def __init__(
        self, endpoint: Endpoint, clock: Clock, limit: int, connect_seconds: float = 10.0, idle_seconds: float = 60.0
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._slots = asyncio.Semaphore(limit)
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self._free: list[_Connection] = []
        self._busy: set[_Connection] = set()

    async def send(self, head: bytes, body: bytes, seconds: float, fence: Callable[[], None] | None) -> Answer:
        """Send a request and wait for its answer.

        Args:
            head: Request line and headers, with the empty line that ends them.
            body: What follows.
            seconds: Longest wait, for a free connection included.
            fence: Called when nothing stands between it and the socket any more; what it raises comes out here.

        Raises:
            NotConnectedError: No connection could be made.
            AnswerBrokenError: The connection broke after the request was written.
            TimeoutError: No answer in time.
        """
        async with asyncio.timeout(seconds), self._slots:
            connection = self._idle() or await self._connected()
            self._busy.add(connection)
            is_kept = False
            try:
                if fence is not None:
                    fence()
                answer = await connection.send(head + body)
                is_kept = connection.is_open
                return answer
            finally:
                self._busy.discard(connection)
                if is_kept:
                    connection.free_since = self._clock.now()
                    self._free.append(connection)
                else:
                    connection.close()

    def close(self) -> None:
        """Break off every connection."""
        for connection in (*self._free, *self._busy):
            connection.close()
        self._free.clear()

    def _idle(self) -> _Connection | None:
        """A free connection, the one that was used last; older ones are let grow idle and go."""
        oldest = self._clock.now() - self._idle_seconds
        while self._free:
            connection = self._free.pop()
            if connection.is_open and connection.free_since >= oldest:
                return connection
            connection.close()
        return None

    async def _connected(self) -> _Connection:
        endpoint = self._endpoint
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection,
                    endpoint.host,
                    endpoint.port,
                    ssl=endpoint.tls,
                    server_hostname=endpoint.server_name if endpoint.tls is not None else None,
                )
        except TimeoutError as error:
            # The outer time may be over too; then it is that one which comes out.
            raise NotConnectedError(f"no connection within {self._connect_seconds:g} s") from error
        except OSError as error:
            raise NotConnectedError(str(error) or type(error).__name__) from error
        return connection
