"""Authenticates and authorizes requests by bearer tokens, which the API server reviews.

Local requests (``same_host_access``) need no token. Follows kube-scheduler v1.37.1, whose delegated authentication and
authorization are those of k8s.io/apiserver v0.37.1, ``pkg/server/options``: reviews are cached for ten seconds, health
is open to all, ``system:masters`` may do everything.

    health, local requests ─▶ accepted
    no token ─▶ 401   unknown token ─▶ 401   no permission to get the path ─▶ 403   API server unavailable ─▶ 503

A command that follows the leader from the pod of a standby comes from another host. It is accepted for the paths of
``command_paths`` with a token of the audience ``bayplan.dev``, which the API server itself does not accept. A token for
the API server is not accepted there, so permission to get all paths, which scrapers often have, does not expose pods.

Three differences from the reference. There, a request without a token is reviewed as the user ``system:anonymous``;
here it causes no request to the API server. There, a caller on the same host needs a token as well; here ``bayplan
explain`` in the pod needs none, since the API server has authorized its exec or port-forward. There, an unavailable API
server causes 401 or 500; here the response has the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Sequence
from http import HTTPStatus
from typing import Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from bayplan.kube.access_reviews import Access, User
from bayplan.serving.review_cache import ReviewCache, ReviewQueue
from bayplan.serving.same_host_access import AUTHORIZED_COMMAND, OPEN_PATHS, Handler, is_local
from scheduler_core.errors import ClusterWriteError
from scheduler_core.ports import Clock

COMMAND_AUDIENCE = "bayplan.dev"
"""Audience of the tokens of commands that follow the leader; the chart mounts such a token."""
_MASTERS = "system:masters"
_REASONS = {
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}


class Reviews(Protocol):
    """Reviews of tokens and permissions."""

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """Return the user of a token for an audience, "" for the API server; None for a token that is not known."""

    async def access(self, user: User, verb: str, path: str) -> Access:
        """Return whether a user may use a verb on a path."""

    async def resource_access(self, user: User, verb: str, resource: str) -> Access:
        """Return whether a user may use a verb on a resource in all namespaces."""


class Permission(msgspec.Struct, frozen=True):
    """Permission that a request needs: a verb on a path, or on a resource of the core API in all namespaces."""

    verb: str
    path: str = ""
    resource: str = ""

    def __str__(self) -> str:
        """Return the verb and its object."""
        return f'{self.verb} path "{self.path}"' if self.path else f"{self.verb} {self.resource} in all namespaces"


class Denial(msgspec.Struct, frozen=True):
    """Why a request is rejected: 401, 403 or 503, and the reason with what to do."""

    code: HTTPStatus
    message: str


class RequestAuthorization:
    """Accepts or rejects requests.

    Args:
        reviews: Reviews of tokens and permissions.
        is_trusted: Returns whether a request needs no token.
        command_paths: Paths for commands, which send a token of their own audience.
        own_paths: Path below which handlers authorize requests themselves, with :meth:`denial`; "" for none.
    """

    def __init__(
        self,
        reviews: Reviews,
        clock: Clock,
        is_trusted: Callable[[web.Request], bool] = is_local,
        command_paths: Container[str] = (),
        own_paths: str = "",
    ) -> None:
        self._reviews = reviews
        self._own_paths = own_paths
        self._is_trusted = is_trusted
        self._command_paths = command_paths
        queue = ReviewQueue(clock)
        self._users: ReviewCache[tuple[bytes, str], User | None] = ReviewCache(clock, queue, _is_user)
        self._access: ReviewCache[tuple[str, ...], Access] = ReviewCache(clock, queue, _is_allowed)

    @property
    def middleware(self) -> Middleware:
        """Middleware that authorizes requests before the server's handlers run."""

        @web.middleware
        async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not self._is_open(request.path) and not self._is_trusted(request):
                refusal = await self._refusal(request)
                if refusal is not None:
                    return refusal
                request[AUTHORIZED_COMMAND] = request.path in self._command_paths
            return await handler(request)

        return authorize

    def _is_open(self, path: str) -> bool:
        own = self._own_paths
        return path in OPEN_PATHS or bool(own and (path == own or path.startswith(f"{own}/")))

    async def _refusal(self, request: web.Request) -> web.Response | None:
        verb, path = request.method.lower(), request.path
        audience = COMMAND_AUDIENCE if path in self._command_paths else ""
        denial = await self.denial(bearer_token(request), (Permission(verb, path),), audience, request.remote or "")
        return None if denial is None else _status_response(denial.code, denial.message)

    async def denial(
        self, token: str, permissions: Sequence[Permission], audience: str = "", origin: str = ""
    ) -> Denial | None:
        """Return why a token does not authorize a request; None if it does.

        Args:
            token: The bearer token, "" for none.
            audience: Audience of the token, "" for the API server.
            origin: Address of the caller; addresses take turns when many unknown tokens are sent.
        """
        # A token is ASCII; other bytes could not be sent to the API server.
        if not token or not token.isascii():
            return Denial(HTTPStatus.UNAUTHORIZED, "Unauthorized: send a bearer token of the cluster")
        try:
            # The token itself is not stored.
            digest = hashlib.sha256(token.encode()).digest()
            user = await self._users.get((digest, audience), origin, lambda: self._reviews.user_of(token, audience))
            if user is None:
                wanted = f" for audience {audience}" if audience else ""
                return Denial(HTTPStatus.UNAUTHORIZED, f"Unauthorized: the token is not valid{wanted}")
            if _MASTERS in user.groups:
                return None
            for permission in permissions:
                access = await self._review(user, permission)
                if not access.allowed:
                    why = f": {access.reason}" if access.reason else ""
                    return Denial(HTTPStatus.FORBIDDEN, f'forbidden: User "{user.username}" cannot {permission}{why}')
        except ClusterWriteError as error:
            text = f"the API server cannot authorize the request: {error}; retry"
            return Denial(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return None

    async def _review(self, user: User, permission: Permission) -> Access:
        verb, path, resource = permission.verb, permission.path, permission.resource
        extra = (part for name, values in sorted(user.extra.items()) for part in (name, *values))
        key = (verb, path, resource, user.username, user.uid, *sorted(user.groups), "", *extra)
        origin = f"user {user.username}"
        if path:
            return await self._access.get(key, origin, lambda: self._reviews.access(user, verb, path))
        return await self._access.get(key, origin, lambda: self._reviews.resource_access(user, verb, resource))


def _is_user(user: User | None) -> bool:
    return user is not None


def _is_allowed(access: Access) -> bool:
    return access.allowed


def bearer_token(request: web.Request) -> str:
    """Return the token of the Authorization header, "" for none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class _StatusBody(msgspec.Struct, frozen=True, rename="camel"):
    """Body of a rejection: the written fields of a ``Status``, which Kubernetes clients can decode."""

    message: str
    reason: str
    code: int
    status: str = "Failure"
    kind: str = "Status"
    api_version: str = "v1"
    metadata: dict[str, str] = {}


def _status_response(code: HTTPStatus, message: str) -> web.Response:
    """Return a response that rejects a request.

    Args:
        code: 401, 403 or 503.
    """
    body = msgspec.json.encode(_StatusBody(message, _REASONS[code], code.value))
    headers = {"WWW-Authenticate": "Bearer"} if code is HTTPStatus.UNAUTHORIZED else None
    return web.Response(status=code.value, body=body, content_type="application/json", headers=headers)
