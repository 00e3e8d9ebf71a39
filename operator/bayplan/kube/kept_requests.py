"""The lanes of many short requests: over connections that are kept, in as few steps as HTTP/1.1 takes.

Owns how a request is written, and what goes wrong below HTTP in the words of the error tree. It must not know retries
and credentials, which are :mod:`bayplan.kube.connection`'s.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlencode, urlsplit

from bayplan import __version__
from bayplan.kube.api_errors import AnswerLostError
from bayplan.kube.api_request import ApiRequest, ClusterAccess
from bayplan.kube.byte_stream import Endpoint
from bayplan.kube.keep_alive import Answer, AnswerBrokenError, KeepAlivePool, NotConnectedError
from scheduler_core.errors import ClusterWriteError, ServerUnavailableError, WriteTimeoutError
from scheduler_core.ports import Clock

_TARGET = re.compile(r"/[!-~]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class KeptRequests:
    """One lane.

    Args:
        access: Where the API server is.
        clock: Time.
        limit: Connections at once.
        connect_seconds: Longest wait for TCP and TLS.
    """

    def __init__(self, access: ClusterAccess, clock: Clock, limit: int, connect_seconds: float) -> None:
        url = urlsplit(access.base_url)
        tls = None
        if url.scheme == "https":
            tls = access.ssl_context or ssl.create_default_context()
        host = url.hostname or ""
        port = url.port or _DEFAULT_PORTS.get(url.scheme, 443)
        endpoint = Endpoint(host, port, tls, access.server_name or host)
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
    ) -> Answer:
        """Send one request.

        Args:
            request: What is asked.
            authorization: The header's value; None for none.
            deadline: The clock's time by which there must be an answer.
            fence: Raises when the request must not be sent; asked when its bytes are about to leave.

        Raises:
            ServerUnavailableError: Nothing was sent.
            WriteTimeoutError: No answer; whether it was carried out is unknown.
            ClusterWriteError: What the fence raises.
        """
        seconds = max(deadline - self._clock.now(), 0.001)
        try:
            return await self._pool.send(self._head(request, authorization), request.body or b"", seconds, fence)
        except NotConnectedError as error:
            raise ServerUnavailableError(f"{_told(request)}: the API server cannot be reached: {error}") from error
        except AnswerBrokenError as error:
            raise AnswerLostError(f"{_told(request)}: {error}") from error
        except TimeoutError as error:
            raise WriteTimeoutError(f"{_told(request)}: no answer in time: {str(error) or 'TimeoutError'}") from error

    def close(self) -> None:
        """Break off every connection."""
        self._pool.close()

    def _head(self, request: ApiRequest, authorization: str | None) -> bytes:
        target = self._prefix + request.path
        if request.params:
            target = f"{target}?{_query(request.params)}"
        if _TARGET.fullmatch(target) is None:
            raise ClusterWriteError(f"{request.method} {target!r}: no path of a request; quote its parts")
        key = (request.accept, authorization)
        headers = self._written.get(key)
        if headers is None:
            # Of a token that was renewed the old headers are of no use any more.
            self._written = {known: text for known, text in self._written.items() if known[1] == authorization}
            headers = f"{self._fixed}Accept: {request.accept}\r\n"
            if authorization is not None:
                headers += f"Authorization: {authorization}\r\n"
            self._written[key] = headers
        if request.body is None:
            return f"{request.method} {target}{headers}\r\n".encode("latin-1")
        of_body = f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n\r\n"
        return f"{request.method} {target}{headers}{of_body}".encode("latin-1")


@lru_cache(maxsize=64)
def _query(params: tuple[tuple[str, str], ...]) -> str:
    """Parameters as they are written; the same few come again and again."""
    return urlencode(params)


def _told(request: ApiRequest) -> str:
    return f"{request.method} {request.path}"
