"""HTTP answers as errors of the core's tree.

Owns the mapping from a status code and the ``Status`` object in its body to an exception. Must not know who asked.
Finer than the core's classes where cluster I/O has to tell two cases apart: whether a request may have been carried out
decides if the object must be read before anything is repeated.
"""

from __future__ import annotations

import msgspec

from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)


class InvalidRequestError(ForbiddenError):
    """The API server understood the request and refuses its content (HTTP 400, 405, 406, 415, 422)."""


class UnauthorizedError(ForbiddenError):
    """The API server does not know who asks (HTTP 401)."""


class ResourceExpiredError(ClusterWriteError):
    """The resourceVersion or the continue token is too old (HTTP 410): list again."""


class ServerFailedError(ServerUnavailableError):
    """The request arrived and the server failed on it (HTTP 5xx): it may have been carried out."""


class AnswerLostError(WriteTimeoutError):
    """The connection broke between request and answer: it may have been carried out."""


class ApiStatus(msgspec.Struct, frozen=True, gc=False):
    """``metav1.Status``, as far as it is read."""

    message: str = ""
    reason: str = ""
    code: int = 0


_STATUS = msgspec.json.Decoder(ApiStatus)

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
    """The ``Status`` in ``body``; where there is none, its message is the text itself, cut at 300 characters."""
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        return ApiStatus(message=body[:300].decode(errors="replace").strip())


def api_error(request: str, status: int, body: bytes) -> ClusterWriteError:
    """The error that stands for an answer other than 2xx.

    Args:
        request: Method and path, for the message.
        status: HTTP status code; redirects count as refusals, since the API server sends none that we follow.
        body: The answer's body.

    Returns:
        An instance of the class that says what may be done next; its text carries the server's own message.
    """
    found = _BY_STATUS.get(status)
    if found is None:
        found = ServerFailedError if status >= 500 else InvalidRequestError
    message = decode_status(body).message
    return found(f"{request}: HTTP {status}: {message}" if message else f"{request}: HTTP {status}")
