"""Probes for a server that is starting: whether a port is free, and whether an HTTP request succeeds.

It uses http.client, and urllib without proxies, because a request to loopback should never obey the proxy variables of
the environment.
"""

import http.client
import os
import secrets
import socket
import ssl
import urllib.request
from collections import deque
from collections.abc import Mapping
from pathlib import Path

LOOPBACK = "127.0.0.1"
_TIMEOUT_SECONDS = 5.0
_FETCH_SECONDS = 30.0
# Linux takes ports from 32768 on for connections and for port 0, so none of them takes these between choice and use.
_PORTS = range(20_000, 32_000)
_PORT_ATTEMPTS = 1000
_RESERVATIONS = 64

_reserved: deque[int] = deque()


def free_port() -> int:
    """Return a TCP port of loopback that is free, and that no other process chooses here before it is used.

    A Unix socket with an abstract name reserves the port for this process until it has chosen many others.

    Raises:
        OSError: There is no free port.
    """
    for _ in range(_PORT_ATTEMPTS):
        port = secrets.choice(_PORTS)
        if _reserve(port):
            return port
    raise OSError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")


def _reserve(port: int) -> bool:
    with socket.socket(socket.AF_UNIX) as reservation, socket.socket() as probe:
        try:
            reservation.bind(f"\0bayplan-port-{port}")
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        _reserved.append(reservation.detach())
    while len(_reserved) > _RESERVATIONS:
        os.close(_reserved.popleft())
    return True


def fetch(url: str, trusted: ssl.SSLContext | None = None) -> str:
    """Return what a server of this machine, such as the metrics of a scheduler, answers to a GET."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted))
    with direct.open(url, timeout=_FETCH_SECONDS) as answer:
        body: bytes = answer.read()
    return body.decode()


def http_ok(port: int, path: str) -> bool:
    """Return whether a GET over plain HTTP is answered with 200."""
    return _answers_ok(http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS), path, {})


def https_ok(port: int, path: str, authority: Path, token: str | None = None) -> bool:
    """Return whether a GET over verified TLS is answered with 200.

    Args:
        authority: PEM file of the certificates to trust; the result is False while it is missing or incomplete.
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
