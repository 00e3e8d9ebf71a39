"""HTTP error responses as errors of the core's tree.

Finer than the core's classes where cluster I/O must distinguish two cases: if a request may have been executed, the
object must be read before the request is repeated.
"""

from __future__ import annotations

import msgspec

from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)


class InvalidRequestError(ForbiddenError):
    """Raised when the API server rejects the content of a request (HTTP 400, 405, 406, 415, 422)."""


class UnauthorizedError(ForbiddenError):
    """Raised when the API server does not accept the credentials (HTTP 401)."""


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

_BY_STATUS: dict[int, type[ClusterWriteError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    408: WriteTimeoutError,
    409: ConflictError,
    410: ResourceExpiredError,
    429: ServerUnavailableError,
    504: WriteTimeoutError,
}


def decode_status(body: bytes) -> ApiStatus:
    """Decode the ``Status`` in ``body``; otherwise its message is the body's text, cut at 300 characters."""
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        return ApiStatus(message=body[:300].decode(errors="replace").strip())


def api_error(request: str, status: int, body: bytes) -> ClusterWriteError:
    """Make the error for a response other than 2xx.

    Args:
        request: Method and path, for the message.
        status: HTTP status code; a redirect is an error too, since the API server sends none that must be followed.

    Returns:
        An error whose class defines what to do next; its text contains the server's own message.
    """
    found = _BY_STATUS.get(status)
    if found is None:
        found = ServerFailedError if status >= 500 else InvalidRequestError
    message = decode_status(body).message
    return found(f"{request}: HTTP {status}: {message}" if message else f"{request}: HTTP {status}")
