"""Connection to the API server: connection pools, credentials, limits, responses as results or errors, and paged lists.

Each purpose (:class:`Lane`) has its own pool.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload
from msgspec import Raw, Struct
from yarl import URL

from bayplan import __version__
from bayplan.kube.http.api_request import (
    JSON,
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_MERGE_PATCH,
    ApiRequest,
    ClusterAccess,
    Lane,
    ResponseLostError,
    TokenBucket,
    api_error,
)
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.http.keep_alive_pool import KeepAliveRequests
from scheduler_core.errors import ClusterWriteError, ServerUnavailableError, WriteTimeoutError
from scheduler_core.ports import Clock

__all__ = [
    "JSON",
    "MERGE_PATCH",
    "METADATA_ONLY",
    "STRATEGIC_MERGE_PATCH",
    "ApiConnection",
    "ApiRequest",
    "ClusterAccess",
    "ConnectionOptions",
    "Lane",
]

_logger = logging.getLogger(__name__)

_RENEW_SECONDS = 60.0  # as the client libraries do: a rotated token file stays valid for minutes after the rotation
_RENEW_AGAIN_SECONDS = 10.0
_RETRY_AFTER_DEFAULT_SECONDS = 1.0
_REASON_BYTES, _REASON_SECONDS = 4096, 10.0
_CLOSED = "The connection to the API server is closed: this process is stopping."


_KEEP_ALIVE = frozenset({Lane.BINDS, Lane.WRITES})
"""Lanes with so many requests that aiohttp's overhead would be a large share of the process's CPU time."""
# A renewal of the Lease that waits for the rate limit could come after its deadline.
_UNLIMITED_RATE = frozenset({Lane.WATCHES, Lane.LEASES, Lane.REVIEWS})


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Limits of a connection.

    Attributes:
        bind_connections: Pool size for binds, equal to their concurrency.
        qps: Requests per second, without watches and leases; None for no limit.
        burst: Requests that may exceed ``qps`` at once.
    """

    bind_connections: int = 32
    write_connections: int = 16
    read_connections: int = 16
    qps: float | None = None
    burst: int = 100
    connect_seconds: float = 10.0


class FencedBody(BytesPayload):
    """Body that calls the write fence before it is written; ``refused`` is the error that the fence raised."""

    def __init__(self, body: bytes, fence: Callable[[], None], content_type: str) -> None:
        super().__init__(body, content_type=content_type)
        self._fence = fence
        self.refused: ClusterWriteError | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        try:
            # Between the making of a request and its sending lie the wait for a free connection, a TLS handshake, and
            # at least one turn of the event loop; a process that was paused for longer than its Lease may resume at any
            # of these. After this check the bytes go to the socket without another wait: at most the one request being
            # written can still leave. The headers wait for the body, so that they are not sent either.
            self._fence()
        except ClusterWriteError as error:
            self.refused = error
            raise
        await super().write_with_length(writer, content_length)


@dataclass(eq=False, slots=True)
class _Session:
    client: aiohttp.ClientSession
    in_flight: int = 0


class ApiConnection:
    """Requests to and watches of one API server.

    Use as an asynchronous context manager, or call :meth:`close`.

    Args:
        write_fence: Called before each request, retries too, that changes the cluster: when it is made, and again when
            its bytes are written, after any wait. Raises if this process must not change anything. Not called for
            Leases. None lets all requests pass.

    Attributes:
        pending_binds: Requests in the lane of binds that wait or are in flight.
    """

    def __init__(
        self,
        access: ClusterAccess,
        options: ConnectionOptions,
        clock: Clock,
        write_fence: Callable[[], None] | None = None,
    ) -> None:
        self._access = access
        self._options = options
        self._clock = clock
        self._sessions: dict[Lane, _Session] = {}
        self._left: list[_Session] = []
        self._keep_alive_lanes: dict[Lane, KeepAliveRequests] = {}
        self._bucket = TokenBucket(options.qps, options.burst, clock) if options.qps else None
        self._base_url = access.base_url.rstrip("/")
        self._extra: dict[str, Any] = {}
        if access.proxy:
            self._extra["proxy"] = access.proxy
        if access.server_hostname:
            self._extra["server_hostname"] = access.server_hostname
        # The pool of sockets connects to the API server directly; only aiohttp can use a proxy.
        self._keep_alive_enabled = frozenset() if access.proxy else _KEEP_ALIVE
        self._authorization: str | None = None
        self._renew_at = float("-inf")
        self._renewing = asyncio.Lock()
        self._renewals = 0
        self._tls = access.ssl_context
        self._closed = False
        self._write_fence = write_fence
        self.requests = 0
        self.pending_binds = 0

    @property
    def access(self) -> ClusterAccess:
        """The credentials, for callers that open their own connection."""
        return self._access

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; later requests raise ServerUnavailableError."""
        # First: a request must not open another session while the sessions close.
        self._closed = True
        for keep_alive in self._keep_alive_lanes.values():
            keep_alive.close()
        self._keep_alive_lanes.clear()
        sessions = [*self._sessions.values(), *self._left]
        self._sessions.clear()
        self._left.clear()
        for session in sessions:
            await session.client.close()

    async def request(self, request: ApiRequest) -> bytes:
        """Send a request and return the body of a 2xx response.

        Raises:
            ConflictError: HTTP 409.
            NotFoundError: HTTP 404.
            ForbiddenError: HTTP 401 (after a retry with new credentials), 403 and other refusals.
            ServerUnavailableError: No connection, HTTP 429 for longer than the timeout, or 5xx.
            WriteTimeoutError: No response; it is unknown whether the request was executed.
            ResourceExpiredError: HTTP 410.
            ClusterWriteError: Raised by the fence.
        """
        if request.lane is not Lane.BINDS:
            return await self._answer(request)
        self.pending_binds += 1
        try:
            return await self._answer(request)
        finally:
            self.pending_binds -= 1

    async def _answer(self, request: ApiRequest) -> bytes:
        # Before the deadline is set, because the timeout of a request does not include the rate limit.
        if self._bucket is not None and request.lane not in _UNLIMITED_RATE:
            await self._bucket.take()
        last_retry = self._clock.now() + request.timeout
        renewed = False
        while True:
            await self._renew()
            # Before the request: another one may renew the credentials while this one waits for its response.
            sent, renewals = self._credentials, self._renewals
            # The server may take the whole timeout for each bind that it receives, so the response is awaited as long.
            is_bind = request.lane is Lane.BINDS
            deadline = self._clock.now() + request.timeout if is_bind else last_retry
            status, retry_after, answer = await self._send(request, deadline)
            if status < 300:
                return answer
            if status == 401 and not renewed:
                # The token or certificate may have been renewed since it was last read, also while this request waited.
                renewed = True
                await self._renew(rejected=renewals)
                if self._credentials != sent:
                    continue
            if retry_after is not None and self._clock.now() + retry_after < last_retry:
                await self._clock.sleep(retry_after)
                continue
            raise api_error(f"{request.method} {request.path}", status, answer)

    async def _send(self, request: ApiRequest, deadline: float) -> tuple[int, float | None, bytes]:
        fence = self._write_fence if request.is_fenced else None
        # Checked here as well, so that a process without the Lease opens no connection for a write.
        if fence is not None:
            fence()
        self.requests += 1
        if request.lane in self._keep_alive_enabled:
            found = await self._keep_alive(request.lane).request(request, self._authorization, deadline, fence)
            if found.status < 300:
                return found.status, None, found.body
            return found.status, _retry_after(found.status, found.headers.get("retry-after")), found.body
        headers = {"Accept": request.accept, **self._authorized()}
        body: bytes | FencedBody | None = request.body
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if fence is not None:
            body = FencedBody(request.body or b"", fence, request.content_type)
        try:
            async with (
                self._session(request.lane) as session,
                session.request(
                    request.method,
                    URL(self._base_url + request.path, encoded=True),
                    params=request.params or None,
                    data=body,
                    headers=headers,
                    # Not 0, which aiohttp reads as no limit.
                    timeout=aiohttp.ClientTimeout(
                        total=max(deadline - self._clock.now(), 0.001), sock_connect=self._options.connect_seconds
                    ),
                    # The API server sends no redirect that must be followed, so each one is an error.
                    allow_redirects=False,
                    **self._extra,
                ) as response,
            ):
                answer = await response.read()
                return response.status, _retry_after(response.status, response.headers.get("Retry-After")), answer
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            # aiohttp wraps an error of the body in a ClientError.
            if isinstance(body, FencedBody) and body.refused is not None:
                raise body.refused from error
            raise _transport_error(f"{request.method} {request.path}", error) from error

    @asynccontextmanager
    async def stream(
        self, path: str, params: tuple[tuple[str, str], ...], idle_seconds: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a watch that ends after ``idle_seconds`` of silence; reading it raises the errors of :meth:`request`."""
        await self._renew()
        renewals = self._renewals
        headers = {"Accept": JSON, **self._authorized()}
        self.requests += 1
        try:
            async with (
                self._session(Lane.WATCHES) as session,
                session.get(
                    URL(self._base_url + path, encoded=True),
                    params=params,
                    headers=headers,
                    # Only silence ends a watch: a frozen server closes no connection.
                    timeout=aiohttp.ClientTimeout(
                        total=None, sock_connect=self._options.connect_seconds, sock_read=idle_seconds
                    ),
                    allow_redirects=False,
                    **self._extra,
                ) as response,
            ):
                if response.status != 200:
                    # Only marked as due, unless another request has renewed them: the caller opens the watch again
                    # after a delay.
                    if response.status == 401 and renewals == self._renewals:
                        self._renew_at = float("-inf")
                    raise api_error(f"WATCH {path}", response.status, await response.read())
                yield response.content
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _transport_error(f"WATCH {path}", error) from error

    @asynccontextmanager
    async def websocket(
        self, path: str, params: tuple[tuple[str, str], ...], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket, which the fence does not concern; raises ClusterWriteError as :meth:`request`."""
        await self._renew()
        headers = self._authorized()
        self.requests += 1
        try:
            async with (
                # The lane without a limit: a WebSocket holds its connection for as long as it is open.
                self._session(Lane.WATCHES) as session,
                session.ws_connect(
                    URL(self._base_url + path, encoded=True),
                    params=params,
                    protocols=(protocol,),
                    headers=headers,
                    max_msg_size=0,
                    **self._extra,
                ) as socket,
            ):
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            # Sent again as a plain request, because aiohttp does not read the body of a failed handshake.
            reason = await self._websocket_refusal(path, params, protocol) if error.status >= 500 else b""
            raise api_error(f"GET {path}", error.status, reason) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _transport_error(f"GET {path}", error) from error

    async def _websocket_refusal(self, path: str, params: tuple[tuple[str, str], ...], protocol: str) -> bytes:
        """Return the body of the response to a WebSocket request that failed."""
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Protocol": protocol,
            "Sec-WebSocket-Version": "13",
            **self._authorized(),
        }
        url = URL(self._base_url + path, encoded=True)
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with (
                asyncio.timeout(_REASON_SECONDS),
                self._session(Lane.WATCHES) as session,
                session.get(url, params=params, headers=headers, **self._extra) as response,
            ):
                # The second request may succeed: the response is then a WebSocket without an end.
                if response.status >= 500:
                    return await response.content.read(_REASON_BYTES)
        return b""

    def _authorized(self) -> dict[str, str]:
        return {} if self._authorization is None else {"Authorization": self._authorization}

    def _keep_alive(self, lane: Lane) -> KeepAliveRequests:
        keep_alive = self._keep_alive_lanes.get(lane)
        if keep_alive is None:
            if self._closed:
                raise ServerUnavailableError(_CLOSED)
            options = self._options
            limit = options.bind_connections if lane is Lane.BINDS else options.write_connections
            keep_alive = KeepAliveRequests(self._access, self._clock, limit, options.connect_seconds)
            self._keep_alive_lanes[lane] = keep_alive
        return keep_alive

    @asynccontextmanager
    async def _session(self, lane: Lane) -> AsyncIterator[aiohttp.ClientSession]:
        session = self._sessions.get(lane)
        if session is None:
            session = self._sessions[lane] = _Session(self._new_session(lane))
        session.in_flight += 1
        try:
            yield session.client
        finally:
            session.in_flight -= 1
            if session in self._left and not session.in_flight:
                self._left.remove(session)
                await session.client.close()

    def _new_session(self, lane: Lane) -> aiohttp.ClientSession:
        if self._closed:
            raise ServerUnavailableError(_CLOSED)
        # A pool for each lane: a burst of events must not take the connections that binds or the Lease need.
        limits = {
            Lane.READS: self._options.read_connections,
            Lane.WATCHES: 0,  # no limit, because each watch holds its connection for minutes
            Lane.BINDS: self._options.bind_connections,
            Lane.WRITES: self._options.write_connections,
            Lane.LEASES: 2,
            Lane.REVIEWS: 8,
        }
        # Shorter than the API server's idle limit of 90 s: this side closes first, so that no request is lost.
        connector = aiohttp.TCPConnector(
            limit=limits[lane], ssl=self._access.ssl_context or True, keepalive_timeout=60.0
        )
        session = aiohttp.ClientSession(
            connector=connector,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=1 << 20,
            # Compression costs more CPU time on both sides than a cluster's network gains.
            headers={"User-Agent": f"bayplan/{__version__}", "Accept-Encoding": "identity"},
        )
        if lane is Lane.WRITES:
            # aiohttp silently repeats a DELETE whose connection breaks. The second response would be 404, and the
            # caller could not see that the first request had deleted the object. There is no public switch.
            session._retry_connection = False  # noqa: SLF001
        return session

    @property
    def _credentials(self) -> tuple[str | None, ssl.SSLContext | None]:
        return self._authorization, self._tls

    async def _renew(self, rejected: int | None = None) -> None:
        """Load the credentials again if they are due.

        Args:
            rejected: Number of renewals before a request that was rejected with 401: they are due unless they were
                renewed after it.
        """
        if rejected is None and self._clock.now() < self._renew_at:
            return
        async with self._renewing:
            # Again under the lock: of many requests that are rejected together, only the first runs a credential
            # plugin.
            if self._clock.now() < self._renew_at and rejected != self._renewals:
                return
            try:
                self._authorization = await self._access.authorization()
                self._renew_at = self._clock.now() + _RENEW_SECONDS
            except Exception:
                # The previous ones may still be valid; if not, a rejected request renews them again.
                _logger.exception("Cannot renew the credentials; continuing with the previous ones")
                self._renew_at = self._clock.now() + _RENEW_AGAIN_SECONDS
            # After a failure, too: the requests that wait for the lock must not run a failing plugin one after the
            # other.
            self._renewals += 1
            if self._access.ssl_context is not self._tls:
                self._tls = self._access.ssl_context
                # A connection keeps the certificate of its handshake.
                self._leave_connections()

    def _leave_connections(self) -> None:
        """Use new connections from now on; requests and watches in flight end on their own."""
        for keep_alive in self._keep_alive_lanes.values():
            keep_alive.retire()
        self._keep_alive_lanes.clear()
        self._left.extend(self._sessions.values())
        self._sessions.clear()


def _retry_after(status: int, header: str | None) -> float | None:
    """Return the seconds that the server requests to wait, None without a request. An HTTP date means the default."""
    # client-go repeats a request only if the server sends the header; here 429 without one is repeated, too.
    if status == 429:
        header = header or ""
    elif status < 500 or header is None:
        return None
    return float(header) if header.isdigit() else _RETRY_AFTER_DEFAULT_SECONDS


def _transport_error(request: str, error: Exception) -> ClusterWriteError:
    """Classify an error below HTTP: nothing was sent, or no response came."""
    what = str(error) or type(error).__name__
    # Before TimeoutError, of which aiohttp's timeout of a connect is a subclass.
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
        return ServerUnavailableError(f"{request}: the API server cannot be reached: {what}")
    if isinstance(error, TimeoutError):
        return WriteTimeoutError(f"{request}: no response in time: {what}")
    return ResponseLostError(f"{request}: the connection broke before the response: {what}")


PAGE_LIMIT = 500
_SECONDS = 60.0

Item = TypeVar("Item")


class ListMeta(Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of a page; ``continue_`` is the token for the next page, empty on the last one."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Struct, Generic[Item], frozen=True, gc=False):
    """One page of a list response; ``items`` is None if the server writes null for an empty list."""

    # Required: a response that is not a list would otherwise decode as a list without objects, and all known objects
    # would be treated as deleted.
    metadata: ListMeta
    items: list[Item] | None = None


RAW_PAGES = ObjectJsonDecoder(ListPage[Raw])


class MalformedListError(ClusterWriteError):
    """The response is not a list."""


async def list_pages(
    connection: ApiConnection,
    path: str,
    decoder: ObjectJsonDecoder[ListPage[Item]],
    *,
    params: Iterable[tuple[str, str]] = (),
    limit: int = PAGE_LIMIT,
    seconds: float = _SECONDS,
) -> AsyncIterator[ListPage[Item]]:
    """Yield the pages of a collection in order; raises MalformedListError if a response is not a list."""
    token = ""
    while True:
        query = (("limit", str(limit)), *params, *((("continue", token),) if token else ()))
        answer = await connection.request(ApiRequest("GET", path, params=query, timeout=seconds, lane=Lane.READS))
        try:
            page = decoder.decode(answer)
        except msgspec.DecodeError as error:
            raise MalformedListError(f"GET {path}: no list in the response: {error}; is this an API server?") from error
        yield page
        token = page.metadata.continue_
        if not token:
            return
