"""Rejections in the form of the API server's: a ``Status`` object, which Kubernetes clients can decode."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from aiohttp import web

_REASONS = {
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}


class StatusBody(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a ``Status`` that are written."""

    message: str
    reason: str
    code: int
    status: str = "Failure"
    kind: str = "Status"
    api_version: str = "v1"
    metadata: dict[str, str] = {}


def status_response(code: HTTPStatus, message: str) -> web.Response:
    """Return a response that rejects a request.

    Args:
        code: 401, 403 or 503.
        message: Reason, and what to do.
    """
    body = msgspec.json.encode(StatusBody(message, _REASONS[code], code.value))
    headers = {"WWW-Authenticate": "Bearer"} if code is HTTPStatus.UNAUTHORIZED else None
    return web.Response(status=code.value, body=body, content_type="application/json", headers=headers)
