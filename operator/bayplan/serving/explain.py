"""``GET /debug/explain?namespace=NS&pod=NAME``: why a pod goes where it goes, from the scheduler that decides.

Owns the parameters, who may ask, and the HTTP answers. It must not know how an explanation comes about: that is handed
in. It runs in the scheduler's loop and so between two cycles; what is tried in thought is undone before it answers.

Why only callers on the same host are answered: the explanation names pods, nodes and labels of every namespace, and
this port has no authentication. ``kubectl port-forward`` comes from the pod's own loopback, and whoever may open one is
asked by the API server.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

import msgspec
from aiohttp import web

from bayplan.explanation.model import Explanation
from bayplan.explanation.rendering import as_bytes
from bayplan.serving.readiness import Readiness
from scheduler_core.errors import SchedulerCoreError

PATH = "/debug/explain"

Explainer = Callable[[str, str], Explanation | None]
"""Explains the pod of a namespace and name; None if there is none."""


class ExplainEndpoint:
    """Answers questions about pods.

    Args:
        explain: Explains a pod.
        readiness: Until the process is ready, an explanation would be of half a cluster.
    """

    def __init__(self, explain: Explainer, readiness: Readiness) -> None:
        self._explain = explain
        self._readiness = readiness

    @property
    def routes(self) -> list[web.RouteDef]:
        """What to add to a server."""
        return [web.get(PATH, self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        if not is_on_this_host(request.remote):
            return _refusal(403, "asked from another host; use kubectl port-forward and ask 127.0.0.1")
        missing = self._readiness.missing
        if missing:
            return _refusal(503, f"not ready: {'; '.join(missing)}; ask again")
        if self._readiness.role:
            return _refusal(503, f"{self._readiness.role}; ask the process that leads, or use --offline")
        namespace, name = request.query.get("namespace", ""), request.query.get("pod", "")
        if not namespace or not name:
            return _refusal(400, "name a pod: ?namespace=NAMESPACE&pod=NAME")
        try:
            explanation = self._explain(namespace, name)
        except SchedulerCoreError as error:
            return _refusal(422, f"pod {namespace}/{name} cannot be explained: {error}")
        if explanation is None:
            return _refusal(404, f"there is no pod {namespace}/{name}; correct namespace or name")
        return web.Response(body=as_bytes(explanation), content_type="application/json")


class Refusal(msgspec.Struct, frozen=True):
    """The body of any other answer."""

    error: str = ""


def _refusal(status: int, text: str) -> web.Response:
    body = msgspec.json.encode(Refusal(text))
    return web.Response(status=status, body=body, content_type="application/json")


def is_on_this_host(remote: str | None) -> bool:
    """Whether an address that a request came from is loopback, also written as IPv6; False where it is not known."""
    try:
        address = ip_address((remote or "").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
