"""Probes for a server that is starting: whether a port is free, and whether an HTTP request succeeds.

It uses http.client because urllib obeys the proxy variables of the environment, which a request to loopback never
should.
"""

import http.client
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

LOOPBACK = "127.0.0.1"
_TIMEOUT_SECONDS = 5.0


def free_port() -> int:
    """Return a free TCP port of loopback; another process may still take it first."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def http_ok(port: int, path: str) -> bool:
    """Return whether a GET over plain HTTP is answered with 200.

    Args:
        port: Port on loopback.
        path: Path of the request.
    """
    return _answers_ok(http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS), path, {})


def https_ok(port: int, path: str, authority: Path, token: str | None = None) -> bool:
    """Return whether a GET over verified TLS is answered with 200.

    Args:
        port: Port on loopback.
        path: Path of the request.
        authority: PEM file of the certificates to trust; the result is False while it is missing or incomplete.
        token: Bearer token.
    """
    try:
        context = ssl.create_default_context(cafile=str(authority))
    except OSError:
        return False
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS, context=context)
    return _answers_ok(connection, path, headers)


def _answers_ok(connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]) -> bool:
    try:
        connection.request("GET", path, headers=dict(headers))
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
