"""Restricts endpoints that name pods and nodes to callers on the same host.

A request is local if it arrived at a socket that listens on loopback, directly. The address of the peer alone proves
nothing: a sidecar proxy forwards the requests of other hosts from loopback. A Host header that is no loopback address
comes from a web site whose name resolves to 127.0.0.1, and headers that only proxies set come from a proxy.

Commands that follow the leader are the one exception: see ``authorization``. The responses name pods, nodes and labels
of every namespace, and permission to get ``/debug`` is often granted unintentionally together with all paths. ``kubectl
port-forward`` comes from the pod's own loopback, and the API server authorizes it. A pod with ``hostNetwork`` shares
loopback with every process on its node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

AUTHORIZED_COMMAND = web.RequestKey("AUTHORIZED_COMMAND", bool)
"""Whether ``authorization`` has accepted a request from another host as one of a command that follows the leader."""

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/livez"})
"""Paths for the kubelet, which has no token."""
_LOCAL = web.RequestKey("LOCAL", bool)
_PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refusal(msgspec.Struct, frozen=True):
    """Body of every response except 200."""

    error: str = ""


async def read_body(request: web.Request, limit: int) -> bytes:
    """Return the whole body, of which one read returns only what has arrived; cut after ``limit`` bytes and one."""
    body = bytearray()
    while len(body) <= limit and (chunk := await request.content.read(limit + 1 - len(body))):
        body += chunk
    return bytes(body)


def refusal(status: int, text: str) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(Refusal(text)), content_type="application/json")


def local_marker(names: Container[tuple[str, int]], *, is_authorized: bool) -> Middleware:
    """Return the middleware that marks local requests, for :func:`is_local`; it runs before all others.

    Args:
        names: Addresses and ports of the sockets that listen on loopback.
        is_authorized: Whether another middleware authorizes requests that are not local. If not, requests that came
            through a proxy or a web site to one of these sockets get 403.
    """

    @web.middleware
    async def mark(request: web.Request, handler: Handler) -> web.StreamResponse:
        arrived_at = request.transport.get_extra_info("sockname") if request.transport is not None else None
        if arrived_at is not None and tuple(arrived_at[:2]) in names:
            request[_LOCAL] = is_direct = _is_direct(request)
            if not is_direct and not is_authorized and request.path not in OPEN_PATHS:
                text = "the request came through a proxy or with a Host header that is not loopback; connect directly"
                return refusal(403, f"{text} to 127.0.0.1")
        return await handler(request)

    return mark


def is_local(request: web.Request) -> bool:
    """Return whether a request comes from this host: it arrived directly at a socket that listens on loopback."""
    return bool(request.get(_LOCAL, False))


def _is_direct(request: web.Request) -> bool:
    return _names_this_host(request.host) and not any(name in request.headers for name in _PROXY_HEADERS)


def _names_this_host(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or is_on_this_host(name)


def for_this_host(handler: Handler) -> Handler:
    """Restrict a handler to local requests; others get 403.

    Commands of other replicas are accepted for the few paths that ``authorization`` accepts them for.
    """

    async def guarded(request: web.Request) -> web.StreamResponse:
        if not is_local(request) and not request.get(AUTHORIZED_COMMAND, False):
            text = (
                "requests from other hosts are not accepted; use kubectl port-forward to the port of localAddress and "
                "connect to 127.0.0.1"
            )
            return refusal(403, text)
        return await handler(request)

    return guarded


def is_on_this_host(remote: str | None) -> bool:
    """Return whether an address is loopback, also IPv4 in IPv6; False if it is unknown.

    An address of a peer on loopback does not make a request local, see :func:`is_local`.
    """
    try:
        address = ip_address((remote or "").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
