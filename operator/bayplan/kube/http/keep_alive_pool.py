"""Connection pool for short requests, thousands a second, such as binds and events.

HTTP/1.1 responses are parsed by httptools; each connection carries one request at a time. aiohttp, which carries all
other requests, takes 0.2 ms of CPU time per request; this pool takes half of that.

    (none free) --connect--> busy --response, keep-alive--> free --idle too long, closed by the server--> gone
                              '--timeout, cancelled, broken--> gone
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode, urlsplit

import httptools

from bayplan import __version__
from bayplan.kube.http.api_request import ApiRequest, ClusterAccess, ResponseLostError, Slots
from bayplan.kube.http.byte_stream import ByteStream, Endpoint, open_socket
from scheduler_core.errors import ClusterWriteError, ServerUnavailableError, WriteTimeoutError
from scheduler_core.ports import Clock

_MAX_RESPONSE_BYTES = 64 << 20
_IDLE_SECONDS = 60.0
_CLOSED = "the connections are closed: this process is stopping"


_TICK_SECONDS = 0.001
"""A timer may fire early by this much."""


class Deadlines:
    """Fails futures that are not done at their deadline with a TimeoutError, with one timer for all of them."""

    __slots__ = ("_due", "_timer", "_times")

    def __init__(self) -> None:
        self._times: dict[asyncio.Future[Any], float] = {}
        # A timer for each would cost more than everything here: nearly every request ends long before its deadline.
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")

    def watch(self, future: asyncio.Future[Any], time: float) -> None:
        """Set a future's deadline, in the running loop's time."""
        self._times[future] = time
        if time < self._due:
            self._set(time)

    def forget(self, future: asyncio.Future[Any]) -> None:
        """Remove a future's deadline; harmless if it has none."""
        # The timer stays set; if no future is watched any more, it finds nothing to do.
        self._times.pop(future, None)

    def _set(self, time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = time
        self._timer = asyncio.get_running_loop().call_at(time, self._sweep)

    def _sweep(self) -> None:
        self._timer, self._due = None, float("inf")
        now = asyncio.get_running_loop().time() + _TICK_SECONDS
        for future in [future for future, time in self._times.items() if time <= now]:
            del self._times[future]
            if not future.done():
                future.set_exception(TimeoutError())
        if self._times:
            self._set(min(self._times.values()))


class NotConnectedError(OSError):
    """Raised when no connection could be made: nothing was sent."""


class BrokenResponseError(OSError):
    """Raised when the connection broke or sent no HTTP before the response was complete: it may have been executed."""


@dataclass(slots=True)
class Response:
    """An HTTP response; of a header that is repeated, ``raw_headers`` has the last one."""

    status: int
    raw_headers: dict[bytes, bytes]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """Headers by lower-case name."""
        # Decoded on access: most responses' headers are not read.
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers.items()}


class _Connection:
    """A connection with at most one request in flight."""

    __slots__ = (
        "_chunks",
        "_headers",
        "_keep_alive",
        "_parser",
        "_response",
        "_size",
        "_stream",
        "_whole",
        "free_since",
    )

    def __init__(self) -> None:
        self._headers: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        # The parser continues with the next response where the last one ended. It calls the two containers directly.
        self._parser = httptools.HttpResponseParser(
            SimpleNamespace(
                on_message_begin=self._begun,
                on_header=self._headers.__setitem__,
                on_body=self._chunks.append,
                on_message_complete=self._completed,
            )
        )
        self._stream: ByteStream | None = None
        self._response: asyncio.Future[Response] | None = None
        self._whole: Response | None = None
        self._keep_alive = False
        self._size = 0
        self.free_since = 0.0

    async def open(self, endpoint: Endpoint) -> None:
        """Connect; raises OSError on failure."""
        self._stream = ByteStream(await open_socket(endpoint), self._received, self._ended)

    @property
    def is_open(self) -> bool:
        return self._stream is not None and self._stream.is_open

    def send(self, data: bytes) -> asyncio.Future[Response]:
        """Write a request; return the future of its response."""
        assert self._stream is not None, "only open connections are used"
        self._size = 0
        self._response = response = asyncio.get_running_loop().create_future()
        self._stream.write(data)
        return response

    def close(self) -> None:
        """Close the connection and fail the request in flight."""
        if self._stream is not None:
            self._stream.close()
        response, self._response = self._response, None
        if response is not None and not response.done():
            response.set_exception(BrokenResponseError("the connection was closed before the response"))

    # -- callbacks of the stream --------------------------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        if self._response is None:
            # A response without a request, such as 408 before the server closes.
            self.close()
            return
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._keep_alive = False
            # Invalid data after a whole response does not change that response; the connection is closed.
            if self._whole is None:
                self._fail(f"the response is not HTTP: {error}")
        if self._whole is not None:
            self._deliver(self._whole)
        elif self._size > _MAX_RESPONSE_BYTES:
            self._fail(f"the response is larger than {_MAX_RESPONSE_BYTES} bytes")

    def _ended(self, error: OSError | None) -> None:
        self._fail(f"the connection broke before the response: {error or 'closed by the server'}")

    # -- callbacks of the parser --------------------------------------------------------------------------------

    def _begun(self) -> None:
        if self._whole is not None:
            # A second response to one request: the connection cannot be used for another one.
            self._keep_alive = False

    def _completed(self) -> None:
        status = self._parser.get_status_code()
        # Interim responses such as 100 Continue precede the final one.
        if status >= 200 and self._whole is None:
            # should_keep_alive() is valid only inside of this callback.
            self._keep_alive = self._parser.should_keep_alive()
            self._whole = Response(status, self._headers.copy(), b"".join(self._chunks))
        # Cleared and not replaced: the parser has bound methods of both containers.
        self._headers.clear()
        self._chunks.clear()

    # -- results ------------------------------------------------------------------------------------------------

    def _deliver(self, whole: Response) -> None:
        response, self._response, self._whole = self._response, None, None
        if response is not None and not response.done():
            response.set_result(whole)
        if not self._keep_alive:
            self.close()

    def _fail(self, why: str) -> None:
        response, self._response = self._response, None
        if response is not None and not response.done():
            response.set_exception(BrokenResponseError(why))
        self.close()


class KeepAlivePool:
    """At most ``limit`` connections to one endpoint; further requests wait in the order of arrival."""

    def __init__(self, endpoint: Endpoint, clock: Clock, limit: int, connect_seconds: float = 10.0) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._slots = Slots(limit)
        self._deadlines = Deadlines()
        self._connect_seconds = connect_seconds
        self._free: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._is_closed = False
        self._is_retired = False

    async def send(self, head: bytes, body: bytes, seconds: float, fence: Callable[[], None] | None) -> Response:
        """Send a request and return its response.

        Args:
            head: Request line and headers, with the empty line that ends them.
            seconds: Timeout, including the wait for a free connection.
            fence: Called right before the bytes are written; its error is raised here.

        Raises:
            NotConnectedError: No connection could be made.
            BrokenResponseError: The connection broke after the request was written.
            TimeoutError: No response in time.
        """
        end = asyncio.get_running_loop().time() + seconds
        turn = self._slots.acquire()
        if turn is not None:
            self._deadlines.watch(turn, end)
            try:
                await self._slots.wait(turn)
            finally:
                self._deadlines.forget(turn)
        try:
            connection = self._idle() or await self._connected(end)
            self._busy.add(connection)
            # Closed unless a whole response came: a late response would be read as the response of the next request.
            keep_alive = False
            try:
                # After the last wait: a process that was paused for longer than its Lease may resume at any await.
                if fence is not None:
                    fence()
                response = connection.send(head + body)
                self._deadlines.watch(response, end)
                try:
                    found = await response
                finally:
                    self._deadlines.forget(response)
                keep_alive = connection.is_open
                return found
            finally:
                self._busy.discard(connection)
                if keep_alive and not self._is_retired:
                    connection.free_since = self._clock.now()
                    self._free.append(connection)
                else:
                    connection.close()
        finally:
            self._slots.release()

    def close(self) -> None:
        """Close all connections and open no other."""
        self._is_closed = True
        for connection in (*self._free, *self._busy):
            connection.close()
        self._free.clear()

    def retire(self) -> None:
        """Close free connections now and the others after their request; requests that wait still connect."""
        self._is_retired = True
        for connection in self._free:
            connection.close()
        self._free.clear()

    def _idle(self) -> _Connection | None:
        """Return the free connection that was used last; older ones become idle and are closed."""
        oldest = self._clock.now() - _IDLE_SECONDS
        while self._free:
            connection = self._free.pop()
            # The API server closes connections that are idle for 90 s, and may do so while a request is sent.
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
                # If the outer timeout has expired too, the outer one is raised.
                raise NotConnectedError(f"no connection within {self._connect_seconds:g} s") from error
            except OSError as error:
                raise NotConnectedError(str(error) or type(error).__name__) from error
        # close() does not have this connection: it may have been called during the connect.
        if self._is_closed:
            connection.close()
            raise NotConnectedError(_CLOSED)
        return connection


# Without spaces and line feeds, so that a name cannot inject headers.
_TARGET = re.compile(r"/[!-~]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class KeepAliveRequests(KeepAlivePool):
    """Requests to the API server through a pool."""

    def __init__(self, access: ClusterAccess, clock: Clock, limit: int, connect_seconds: float) -> None:
        url = urlsplit(access.base_url)
        tls = None
        if url.scheme == "https":
            tls = access.ssl_context or ssl.create_default_context()
        host = url.hostname or ""
        port = url.port or _DEFAULT_PORTS.get(url.scheme, 443)
        super().__init__(Endpoint(host, port, tls, access.server_hostname), clock, limit, connect_seconds)
        self._prefix = url.path.rstrip("/")
        self._fixed = (
            f" HTTP/1.1\r\nHost: {url.netloc.rpartition('@')[2]}\r\nUser-Agent: bayplan/{__version__}\r\n"
            "Accept-Encoding: identity\r\n"
        )
        self._written: dict[tuple[str, str | None], str] = {}

    async def request(
        self, request: ApiRequest, authorization: str | None, deadline: float, fence: Callable[[], None] | None
    ) -> Response:
        """Send a request.

        Args:
            deadline: The clock's time by which the response must arrive.

        Raises:
            ServerUnavailableError: Nothing was sent.
            WriteTimeoutError: No response; it is unknown whether the request was executed.
            ClusterWriteError: Raised by the fence.
        """
        seconds = max(deadline - self._clock.now(), 0.001)
        try:
            return await self.send(self._head(request, authorization), request.body or b"", seconds, fence)
        except NotConnectedError as error:
            raise ServerUnavailableError(f"{_line(request)}: the API server cannot be reached: {error}") from error
        except BrokenResponseError as error:
            raise ResponseLostError(f"{_line(request)}: {error}") from error
        except TimeoutError as error:
            raise WriteTimeoutError(f"{_line(request)}: no response in time: {str(error) or 'TimeoutError'}") from error

    def _head(self, request: ApiRequest, authorization: str | None) -> bytes:
        target = self._prefix + request.path
        if request.params:
            target = f"{target}?{_query(request.params)}"
        if _TARGET.fullmatch(target) is None:
            raise ClusterWriteError(f"{request.method} {target!r}: not a valid request path; quote its parts")
        key = (request.accept, authorization)
        headers = self._written.get(key)
        if headers is None:
            # Drop the headers of the previous token.
            self._written = {known: text for known, text in self._written.items() if known[1] == authorization}
            headers = f"{self._fixed}Accept: {request.accept}\r\n"
            if authorization is not None:
                headers += f"Authorization: {authorization}\r\n"
            self._written[key] = headers
        if request.body is None:
            return f"{request.method} {target}{headers}\r\n".encode("latin-1")
        body_headers = f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n\r\n"
        return f"{request.method} {target}{headers}{body_headers}".encode("latin-1")


@lru_cache(maxsize=64)
def _query(params: tuple[tuple[str, str], ...]) -> str:
    """Encode query parameters; cached, because the same few are used again and again."""
    return urlencode(params)


def _line(request: ApiRequest) -> str:
    return f"{request.method} {request.path}"
