"""Short requests over connections that are kept: what binds and events go through, thousands a second.

Owns the connections of one lane and the bytes on them. It must not know paths, credentials, or what an answer means.
HTTP/1.1 answers are read by httptools' parser; requests are written whole, one at a time on a connection. Why not the
client library that everything else goes through: it takes 0.2 ms of CPU a request, of which these have half.

    (none free) --connect--> busy --answered, kept alive--> free --idle for long, closed by the server--> gone
                              '--out of time, cancelled, broken off--> gone
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import httptools

from bayplan.kube.byte_stream import ByteStream, Endpoint, opened
from bayplan.kube.deadlines import Deadlines
from bayplan.kube.slots import Slots
from scheduler_core.ports import Clock

_MOST_ANSWER_BYTES = 64 << 20
_CLOSED = "the connections are closed: this process is stopping"


class NotConnectedError(OSError):
    """No connection could be made: nothing was sent."""


class AnswerBrokenError(OSError):
    """The connection broke, or what came is no HTTP, before the answer was whole: the request may be carried out."""


@dataclass(slots=True)
class Answer:
    """What came back.

    Attributes:
        status: HTTP status.
        raw_headers: As they came; of several of one name the last.
        body: Decoded from chunks where it came in such.
    """

    status: int
    raw_headers: dict[bytes, bytes]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """By name in lower case; made when it is asked for, since of most answers nobody reads one."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers.items()}


class _Connection:
    """One connection, with at most one request on it."""

    __slots__ = ("_answer", "_chunks", "_headers", "_is_kept", "_parser", "_size", "_stream", "_whole", "free_since")

    def __init__(self) -> None:
        self._headers: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        # The parser goes on with the next answer where the last one ended. It calls straight into the two containers.
        self._parser = httptools.HttpResponseParser(
            SimpleNamespace(
                on_message_begin=self._begun,
                on_header=self._headers.__setitem__,
                on_body=self._chunks.append,
                on_message_complete=self._completed,
            )
        )
        self._stream: ByteStream | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._whole: Answer | None = None
        self._is_kept = False
        self._size = 0
        self.free_since = 0.0

    async def open(self, endpoint: Endpoint) -> None:
        """Connect; an OSError says that it cannot be done."""
        self._stream = ByteStream(await opened(endpoint), self._received, self._ended)

    @property
    def is_open(self) -> bool:
        """Whether another request may be sent."""
        return self._stream is not None and self._stream.is_open

    def ask(self, data: bytes) -> asyncio.Future[Answer]:
        """Write a request; the future gives its answer."""
        assert self._stream is not None, "only an open connection is handed out"
        self._size = 0
        self._answer = answer = asyncio.get_running_loop().create_future()
        self._stream.write(data)
        return answer

    def close(self) -> None:
        """Break the connection off, and with it what is under way."""
        if self._stream is not None:
            self._stream.close()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(AnswerBrokenError("the connection was closed before the answer"))

    # -- the stream's side --------------------------------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        if self._answer is None:
            # Nothing was asked: an answer to nothing, such as 408 before the server closes.
            self.close()
            return
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._is_kept = False
            if self._whole is None:
                self._fail(f"the answer is no HTTP: {error}")
        if self._whole is not None:
            self._deliver(self._whole)
        elif self._size > _MOST_ANSWER_BYTES:
            self._fail(f"the answer is larger than {_MOST_ANSWER_BYTES} bytes")

    def _ended(self, error: OSError | None) -> None:
        self._fail(f"the connection broke before the answer: {error or 'closed by the server'}")

    # -- the parser's side --------------------------------------------------------------------------------------

    def _begun(self) -> None:
        if self._whole is not None:
            # More than was asked for: whose answer is the next one?
            self._is_kept = False

    def _completed(self) -> None:
        status = self._parser.get_status_code()
        # Answers such as 100 Continue come before the one that counts.
        if status >= 200 and self._whole is None:
            # The parser knows whether to keep the connection here, and not any more when it has returned.
            self._is_kept = self._parser.should_keep_alive()
            self._whole = Answer(status, self._headers.copy(), b"".join(self._chunks))
        self._headers.clear()
        self._chunks.clear()

    # -- to who asked -------------------------------------------------------------------------------------------

    def _deliver(self, whole: Answer) -> None:
        answer, self._answer, self._whole = self._answer, None, None
        if answer is not None and not answer.done():
            answer.set_result(whole)
        if not self._is_kept:
            self.close()

    def _fail(self, why: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(AnswerBrokenError(why))
        self.close()


class KeepAlivePool:
    """Connections to one endpoint.

    Args:
        endpoint: Where to.
        clock: Time.
        limit: How many there may be at once; who comes when all are busy waits, in the order of coming.
        connect_seconds: Longest wait for TCP and TLS.
        idle_seconds: A connection that was free for longer is not used again.
    """

    def __init__(
        self, endpoint: Endpoint, clock: Clock, limit: int, connect_seconds: float = 10.0, idle_seconds: float = 60.0
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._slots = Slots(limit)
        self._deadlines = Deadlines()
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self._free: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._is_closed = False

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
        end = asyncio.get_running_loop().time() + seconds
        turn = self._slots.take()
        if turn is not None:
            self._deadlines.watch(turn, end)
            try:
                await self._slots.turn(turn)
            finally:
                self._deadlines.forget(turn)
        try:
            connection = self._idle() or await self._connected(end)
            self._busy.add(connection)
            is_kept = False
            try:
                if fence is not None:
                    fence()
                answer = connection.ask(head + body)
                self._deadlines.watch(answer, end)
                try:
                    found = await answer
                finally:
                    self._deadlines.forget(answer)
                is_kept = connection.is_open
                return found
            finally:
                self._busy.discard(connection)
                if is_kept:
                    connection.free_since = self._clock.now()
                    self._free.append(connection)
                else:
                    connection.close()
        finally:
            self._slots.give()

    def close(self) -> None:
        """Break off every connection, and make no other."""
        self._is_closed = True
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

    async def _connected(self, end: float) -> _Connection:
        connection = _Connection()
        async with asyncio.timeout_at(end):
            try:
                async with asyncio.timeout(self._connect_seconds):
                    await connection.open(self._endpoint)
            except TimeoutError as error:
                # The outer time may be over too; then it is that one which comes out.
                raise NotConnectedError(f"no connection within {self._connect_seconds:g} s") from error
            except OSError as error:
                raise NotConnectedError(str(error) or type(error).__name__) from error
        if self._is_closed:
            connection.close()
            raise NotConnectedError(_CLOSED)
        return connection
