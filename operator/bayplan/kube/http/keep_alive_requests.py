"""Requests over the keep-alive pool: writes the HTTP head and maps errors to the core's tree.

Retries and credentials are in :mod:`bayplan.kube.http.connection`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlencode, urlsplit

from bayplan import __version__
from bayplan.kube.http.api_request import ApiRequest, ClusterAccess, ResponseLostError
from bayplan.kube.http.byte_stream import Endpoint
from bayplan.kube.http.keep_alive_pool import BrokenResponseError, KeepAlivePool, NotConnectedError, Response
from scheduler_core.errors import ClusterWriteError, ServerUnavailableError, WriteTimeoutError
from scheduler_core.ports import Clock

_TARGET = re.compile(r"/[!-~]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class KeepAliveRequests:
    """Requests of one lane.

    Args:
        access: Address of the API server.
        limit: Maximum number of connections.
        connect_seconds: Timeout of TCP and TLS.
    """

    def __init__(self, access: ClusterAccess, clock: Clock, limit: int, connect_seconds: float) -> None:
        url = urlsplit(access.base_url)
        tls = None
        if url.scheme == "https":
            tls = access.ssl_context or ssl.create_default_context()
        host = url.hostname or ""
        port = url.port or _DEFAULT_PORTS.get(url.scheme, 443)
        endpoint = Endpoint(host, port, tls, access.server_hostname)
        self._pool = KeepAlivePool(endpoint, clock, limit, connect_seconds)
        self._clock = clock
        self._prefix = url.path.rstrip("/")
        self._fixed = (
            f" HTTP/1.1\r\nHost: {url.netloc.rpartition('@')[2]}\r\nUser-Agent: bayplan/{__version__}\r\n"
            "Accept-Encoding: identity\r\n"
        )
        self._written: dict[tuple[str, str | None], str] = {}

    async def send(
        self, request: ApiRequest, authorization: str | None, deadline: float, fence: Callable[[], None] | None
    ) -> Response:
        """Send a request.

        Args:
            authorization: Value of the Authorization header; None for none.
            deadline: The clock's time by which the response must arrive.
            fence: Raises if the request must not be sent; called right before its bytes are written.

        Raises:
            ServerUnavailableError: Nothing was sent.
            WriteTimeoutError: No response; it is unknown whether the request was executed.
            ClusterWriteError: Raised by the fence.
        """
        seconds = max(deadline - self._clock.now(), 0.001)
        try:
            return await self._pool.send(self._head(request, authorization), request.body or b"", seconds, fence)
        except NotConnectedError as error:
            raise ServerUnavailableError(f"{_line(request)}: the API server cannot be reached: {error}") from error
        except BrokenResponseError as error:
            raise ResponseLostError(f"{_line(request)}: {error}") from error
        except TimeoutError as error:
            raise WriteTimeoutError(f"{_line(request)}: no response in time: {str(error) or 'TimeoutError'}") from error

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def retire(self) -> None:
        """Close each connection as soon as it has no request in flight."""
        self._pool.retire()

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
