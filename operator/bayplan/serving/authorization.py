"""Authenticates and authorizes requests by bearer tokens, which the API server reviews.

Callers on the operator's own host need no token. Follows kube-scheduler v1.37.1, whose delegated authentication and
authorization are those of k8s.io/apiserver v0.37.1, ``pkg/server/options``: reviews are cached for ten seconds, health
is open to all, ``system:masters`` may do everything.

    health, loopback ─▶ accepted
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

import asyncio
import hashlib
from collections.abc import Callable, Container, Coroutine, Hashable, Sequence
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from bayplan.kube.access_reviews import Access, User
from bayplan.serving.same_host_access import AUTHORIZED_COMMAND, Handler, is_on_this_host
from scheduler_core.errors import ClusterWriteError, ServerUnavailableError
from scheduler_core.ports import Clock

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/livez"})
"""Paths for the kubelet, which has no token."""
COMMAND_AUDIENCE = "bayplan.dev"
"""Audience of the tokens of commands that follow the leader; the chart mounts such a token."""
_MASTERS = "system:masters"
_CACHE_SECONDS = 10.0
_MAX_CACHED = 1024
_MAX_IN_PROGRESS = 64
_REASONS = {
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


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
        clock: Source of time.
        is_trusted: Returns whether callers from an address need no token.
        command_paths: Paths for commands, which send a token of their own audience.
        own_paths: Path below which handlers authorize requests themselves, with :meth:`denial`; "" for none.
    """

    def __init__(
        self,
        reviews: Reviews,
        clock: Clock,
        is_trusted: Callable[[str | None], bool] = is_on_this_host,
        command_paths: Container[str] = (),
        own_paths: str = "",
    ) -> None:
        self._reviews = reviews
        self._own_paths = own_paths
        self._is_trusted = is_trusted
        self._command_paths = command_paths
        self._users: _ReviewCache[tuple[bytes, str], User | None] = _ReviewCache(clock)
        self._access: _ReviewCache[tuple[str, ...], Access] = _ReviewCache(clock)

    @property
    def middleware(self) -> Middleware:
        """Middleware that authorizes requests before the server's handlers run."""

        @web.middleware
        async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not self._is_open(request.path) and not self._is_trusted(request.remote):
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
        denial = await self.denial(bearer_token(request), (Permission(verb, path),), audience)
        return None if denial is None else _status_response(denial.code, denial.message)

    async def denial(self, token: str, permissions: Sequence[Permission], audience: str = "") -> Denial | None:
        """Return why a token does not authorize a request; None if it does.

        Args:
            token: The bearer token, "" for none.
            permissions: What the user must be allowed to do.
            audience: Audience of the token, "" for the API server.
        """
        # A token is ASCII; other bytes could not be sent to the API server.
        if not token or not token.isascii():
            return Denial(HTTPStatus.UNAUTHORIZED, "Unauthorized: send a bearer token of the cluster")
        try:
            # The token itself is not stored.
            digest = hashlib.sha256(token.encode()).digest()
            user = await self._users.get((digest, audience), lambda: self._reviews.user_of(token, audience))
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
        if path:
            return await self._access.get(key, lambda: self._reviews.access(user, verb, path))
        return await self._access.get(key, lambda: self._reviews.resource_access(user, verb, resource))


def bearer_token(request: web.Request) -> str:
    """Return the token of the Authorization header, "" for none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class _ReviewCache(Generic[K, V]):
    """Cache of reviews; concurrent requests for the same key share one review. Errors are not cached."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cached: dict[K, tuple[float, V]] = {}
        self._in_progress: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, review: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the cached result of a review, or call ``review``.

        Raises:
            ServerUnavailableError: Too many reviews are in progress.
            ClusterWriteError: ``review`` raised it.
        """
        cached = self._cached.get(key)
        if cached is not None and self._clock.now() < cached[0]:
            return cached[1]
        task = self._in_progress.get(key)
        if task is None:
            if len(self._in_progress) >= _MAX_IN_PROGRESS:
                raise ServerUnavailableError(f"{_MAX_IN_PROGRESS} reviews are already in progress")
            task = self._in_progress[key] = asyncio.create_task(review(), name="access review")
            task.add_done_callback(lambda task: self._finished(key, task))
        # Shielded, because other callers may wait for it when this one disconnects.
        return await asyncio.shield(task)

    def _finished(self, key: K, task: asyncio.Task[V]) -> None:
        del self._in_progress[key]
        if task.cancelled() or task.exception() is not None:
            return
        # All results are valid for the same time, so the oldest is removed first.
        while len(self._cached) >= _MAX_CACHED:
            del self._cached[next(iter(self._cached))]
        self._cached.pop(key, None)
        self._cached[key] = (self._clock.now() + _CACHE_SECONDS, task.result())


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
        message: Reason, and what to do.
    """
    body = msgspec.json.encode(_StatusBody(message, _REASONS[code], code.value))
    headers = {"WWW-Authenticate": "Bearer"} if code is HTTPStatus.UNAUTHORIZED else None
    return web.Response(status=code.value, body=body, content_type="application/json", headers=headers)
