"""Who may ask for what names pods and nodes, and how others are refused.

Owns the rule and the body of a refusal. Commands that follow the leader are the one exception: see ``authorization``.
Why only callers on the same host are answered: what is told names pods, nodes
and labels of every namespace, and the right to get ``/debug`` is one that nobody thinks of when granting rights to all
paths. ``kubectl port-forward`` comes from the pod's own loopback, and whoever may open one is asked about by the API
server. A pod on the network of its node shares loopback with every process there.
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
    """The body of any answer but 200."""

    error: str = ""


def refusal(status: int, text: str) -> web.Response:
    """Refuse a request.

    Args:
        status: The HTTP status.
        text: Why, and what to do.
    """
    return web.Response(status=status, body=msgspec.json.encode(Refusal(text)), content_type="application/json")


def for_this_host(answer: Handler) -> Handler:
    """Let ``answer`` be asked from this host only; others are refused with 403.

    Commands of other replicas are let through to the few paths that ``authorization`` accepts them for.
    """

    async def guarded(request: web.Request) -> web.StreamResponse:
        if not is_on_this_host(request.remote) and not request.get(AUTHORIZED_COMMAND, False):
            return refusal(403, "asked from another host; use kubectl port-forward and ask 127.0.0.1")
        return await answer(request)

    return guarded


def is_on_this_host(remote: str | None) -> bool:
    """Whether an address that a request came from is loopback, also written as IPv6; False where it is not known."""
    try:
        address = ip_address((remote or "").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
