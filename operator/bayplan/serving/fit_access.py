"""Access to fit requests: of local callers, and of users with a permission in the namespaces of the pods.

A user needs the verb ``create`` on the resource ``fits.bayplan.dev``, which exists only in roles, as that of a review.
It is separate from the right to create pods, so that a controller needs no right to create pods. A node that is copied
needs ``get nodes``. Names of victims are shown in namespaces in which the user may list pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web

from bayplan.serving.authorization import Denial, Permission, RequestAuthorization, proxied_token
from bayplan.serving.same_host_access import is_local, refusal

FITS = "fits.bayplan.dev"
"""Resource of the permission to send fit requests; no API serves it."""
MAX_NAMESPACES = 16
"""Maximum number of namespaces whose permissions are reviewed for one request."""

_NO_AUTHORIZATION = (
    "requests from other hosts are not accepted; use kubectl port-forward to the port of localAddress and connect to "
    "127.0.0.1, or set authorizeRequests"
)
_REMEDIES = {
    HTTPStatus.UNAUTHORIZED: "; kubectl create token creates one",
    HTTPStatus.FORBIDDEN: "; bind the role edit, or a role with this right, see docs/would-it-fit.md",
}
_CLUSTER_SCOPED = frozenset(("PriorityClass", "DeviceClass", "Node", "Namespace", "ResourceSlice"))


@dataclass(frozen=True, slots=True)
class Caller:
    """Sender of a request.

    Attributes:
        authorization: Reviews of the sender's permissions; None for a local caller, who may see everything.
    """

    authorization: RequestAuthorization | None
    token: str = ""
    origin: str = ""

    async def denial(self, *permissions: Permission) -> Denial | None:
        """Return why the caller lacks one of some permissions; None if the caller has all."""
        if self.authorization is None:
            return None
        found = await self.authorization.denial(self.token, permissions, origin=self.origin)
        return None if found is None else Denial(found.code, found.message + _REMEDIES.get(found.code, ""))

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Return the namespaces in which the caller may list pods; a failed review counts as a missing permission."""
        wanted = sorted(set(namespaces))
        if not wanted or await self.denial(Permission("list", resource="pods")) is None:
            return frozenset(wanted)
        found = set()
        for namespace in wanted[:MAX_NAMESPACES]:
            if await self.denial(Permission("list", resource="pods", namespace=namespace)) is None:
                found.add(namespace)
        return frozenset(found)


class FitAccess:
    """Authorization of fit requests.

    Args:
        authorization: Reviews of tokens; None rejects callers from other hosts.
    """

    def __init__(
        self,
        authorization: RequestAuthorization | None = None,
        is_trusted: Callable[[web.Request], bool] = is_local,
    ) -> None:
        self._authorization = authorization
        self._is_trusted = is_trusted

    async def caller(self, request: web.Request) -> Caller | Denial:
        """Return the authenticated sender of a request, or why it is rejected."""
        if self._is_trusted(request):
            return Caller(None)
        if self._authorization is None:
            return Denial(HTTPStatus.FORBIDDEN, _NO_AUTHORIZATION)
        caller = Caller(self._authorization, proxied_token(request), request.remote or "")
        return await caller.denial() or caller


def permissions_for(namespaces: Iterable[str], *, copies_node: bool) -> tuple[Permission, ...]:
    """Return the permissions that a request needs.

    Args:
        copies_node: Whether it names a node of the cluster as the template.
    """
    found = [Permission("create", resource=FITS, namespace=each) for each in sorted(namespaces)]
    return (*found, Permission("get", resource="nodes")) if copies_node else tuple(found)


def namespaces_of(objects: Iterable[Mapping[str, Any]], default: str) -> set[str]:
    """Return the namespaces of manifests.

    Args:
        default: Namespace of manifests without one.
    """
    found = set()
    for each in objects:
        if each.get("kind") not in _CLUSTER_SCOPED:
            meta = each.get("metadata")
            own = meta.get("namespace") if isinstance(meta, dict) else None
            found.add(str(own or default or "default"))
    return found


def denied(denial: Denial) -> web.Response:
    """Return the response to a request that is rejected."""
    response = refusal(denial.code, denial.message)
    if denial.code is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
