"""Restricts endpoints that name pods and nodes to callers on the same host.

Commands that follow the leader are the one exception: see ``authorization``. The responses name pods, nodes and labels
of every namespace, and permission to get ``/debug`` is often granted unintentionally together with all paths. ``kubectl
port-forward`` comes from the pod's own loopback, and the API server authorizes it. A pod with ``hostNetwork`` shares
loopback with every process on its node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address

import msgspec
from aiohttp import web

AUTHORIZED_COMMAND = web.RequestKey("AUTHORIZED_COMMAND", bool)
"""Whether ``authorization`` has accepted a request from another host as one of a command that follows the leader."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refusal(msgspec.Struct, frozen=True):
    """Body of every response except 200."""

    error: str = ""


def refusal(status: int, text: str) -> web.Response:
    """Return a response that rejects a request.

    Args:
        status: HTTP status.
        text: Reason, and what to do.
    """
    return web.Response(status=status, body=msgspec.json.encode(Refusal(text)), content_type="application/json")


def for_this_host(handler: Handler) -> Handler:
    """Restrict a handler to callers on this host; others get 403.

    Commands of other replicas are accepted for the few paths that ``authorization`` accepts them for.
    """

    async def guarded(request: web.Request) -> web.StreamResponse:
        if not is_on_this_host(request.remote) and not request.get(AUTHORIZED_COMMAND, False):
            text = "requests from other hosts are not accepted; use kubectl port-forward and connect to 127.0.0.1"
            return refusal(403, text)
        return await handler(request)

    return guarded


def is_on_this_host(remote: str | None) -> bool:
    """Return whether the remote address of a request is loopback, also IPv4 in IPv6; False if it is unknown."""
    try:
        address = ip_address((remote or "").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
