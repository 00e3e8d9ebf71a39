"""Requests to the API server: their paths and bodies, the errors of failed ones, and the limits of their rate."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from enum import Enum
from typing import Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct

from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.ports import Clock

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Content type of server-side apply; JSON is YAML, too."""
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
# Requests only the object's metadata in the response to a write: nothing else is read.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

_is_plain = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch


def path_part(text: str) -> str:
    """Quote a name for a path; nearly every name in Kubernetes needs no quoting."""
    return text if _is_plain(text) else quote(text, safe="")


class Lane(Enum):
    """Purpose of a request; each lane has its own connections."""

    READS = "reads"
    WATCHES = "watches"
    BINDS = "binds"
    WRITES = "writes"
    LEASES = "leases"
    REVIEWS = "reviews"


class ClusterAccess(Protocol):
    """Address of the API server and credentials."""

    @property
    def base_url(self) -> str:
        """Scheme, host, port and prefix, without a trailing slash."""

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS context, another one after a renewal of the certificates; None only for plain HTTP."""

    @property
    def server_hostname(self) -> str | None:
        """Name that the server's certificate must have; None for the host of the URL."""

    @property
    def proxy(self) -> str | None:
        """URL of an HTTP proxy."""

    async def authorization(self) -> str | None:
        """Return the current Authorization header; reads a rotated token or runs a credential plugin."""


class ApiRequest(Struct, frozen=True, gc=False):
    """A request.

    Attributes:
        path: Path from the root, its parts quoted.
        timeout: Seconds until the response, including waits for Retry-After but not for the rate limit.
        from_any_replica: Whether a process that does not lead may send it, too: a review, which changes nothing, or
            what a replica writes about itself.
    """

    method: str
    path: str
    body: bytes | None = None
    content_type: str = JSON
    params: tuple[tuple[str, str], ...] = ()
    timeout: float = 10.0
    lane: Lane = Lane.WRITES
    accept: str = JSON
    from_any_replica: bool = False

    @property
    def is_fenced(self) -> bool:
        """Whether only the leader may send it."""
        # Not Leases: the election writes one before it can open the fence.
        return self.method != "GET" and self.lane is not Lane.LEASES and not self.from_any_replica


class InvalidRequestError(ForbiddenError):
    """Raised when the API server rejects the content of a request (HTTP 400, 405, 406, 415, 422)."""


class UnauthorizedError(ClusterWriteError):
    """Raised when the API server does not accept the credentials (HTTP 401); no missing permission is the cause."""


class ResourceExpiredError(ClusterWriteError):
    """Raised when a resourceVersion or continue token is too old (HTTP 410): list again."""


class ServerFailedError(ServerUnavailableError):
    """Raised when the server failed on a request (HTTP 5xx), which may have been executed."""


class ResponseLostError(WriteTimeoutError):
    """Raised when the connection broke before the response: the request may have been executed."""


class ApiStatus(msgspec.Struct, frozen=True, gc=False):
    """The fields of ``metav1.Status`` that are read."""

    message: str = ""
    reason: str = ""
    code: int = 0


_STATUS = ObjectJsonDecoder(ApiStatus)

_RENEW = "the API server rejects the credentials of this process: renew its token or kubeconfig"

_BY_STATUS: dict[int, type[ClusterWriteError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    408: WriteTimeoutError,
    409: ConflictError,
    410: ResourceExpiredError,
    429: ServerUnavailableError,
    # The API server's own timeout: as after a timeout here, the request may have been executed.
    504: WriteTimeoutError,
}


def decode_status(body: bytes) -> ApiStatus:
    """Decode the ``Status`` in ``body``; otherwise its message is the body's text, cut at 300 characters."""
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        return ApiStatus(message=body[:300].decode(errors="replace").strip())


def api_error(request: str, status: int, body: bytes) -> ClusterWriteError:
    """Make the error of a response other than 2xx, also of a redirect: its class defines what to do next."""
    found = _BY_STATUS.get(status)
    if found is None:
        found = ServerFailedError if status >= 500 else InvalidRequestError
    message = decode_status(body).message
    text = f"{request}: HTTP {status}: {message}" if message else f"{request}: HTTP {status}"
    return found(f"{text}; {_RENEW}" if found is UnauthorizedError else text)


class Slots:
    """A number of slots; a waiting caller gets the next slot that is released."""

    __slots__ = ("_free", "_line")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._line: deque[asyncio.Future[None]] = deque()

    def acquire(self) -> asyncio.Future[None] | None:
        """Acquire a slot; return None if one was free, else the future to pass to :meth:`wait`."""
        if self._free:
            self._free -= 1
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        return turn

    async def wait(self, turn: asyncio.Future[None]) -> None:
        """Wait for a slot; an exception set on the future is raised here, and no slot is acquired then."""
        try:
            await turn
        except asyncio.CancelledError:
            # The slot was assigned before the cancellation: the next caller gets it.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release()
            raise

    def release(self) -> None:
        while self._line:
            # Assigned directly: a free slot could go to a new caller before the waiting task runs.
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class TokenBucket:
    """Bucket that gains ``rate`` tokens per second and holds at most ``burst``."""

    __slots__ = ("_burst", "_clock", "_rate", "_then", "_tokens")

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._tokens = self._burst
        self._then = clock.now()

    def _refill(self) -> None:
        now = self._clock.now()
        self._tokens = min(self._burst, self._tokens + (now - self._then) * self._rate)
        self._then = now

    def try_take(self) -> float:
        """Take a token and return 0.0; if there is none, return the seconds until there will be one."""
        self._refill()
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate

    async def take(self) -> None:
        """Take a token; wait for it in the order of arrival."""
        self._refill()
        # Taken before the wait, even below zero: the debt keeps the order of arrival without a queue.
        self._tokens -= 1.0
        if self._tokens < 0.0:
            await self._clock.sleep(-self._tokens / self._rate)
