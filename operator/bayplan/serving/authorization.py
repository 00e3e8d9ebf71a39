"""Who may ask the operator: callers on its own host, and those whose bearer token the API server accepts for the path.

Owns the order of the questions, how long answers hold and how refusals look. It must not know how the API server is
asked. Follows kube-scheduler v1.36.3, whose delegated authentication and authorization are those of k8s.io/apiserver
v0.36.3, ``pkg/server/options``: answers hold ten seconds, health is for all, ``system:masters`` may do all.

    health, loopback ─▶ answered
    no token ─▶ 401      token unknown ─▶ 401      no right to get the path ─▶ 403      the API server is away ─▶ 503

A command that follows the leader from the pod of a standby comes from another host. It is accepted for the paths of
``command_paths`` with a token of the audience ``bayplan.dev``, which the API server itself does not accept. A token for
the API server is not accepted there, so a right to get all paths, such as scrapers often have, shows no pods.

Three differences. There, no token is the user ``system:anonymous``, who is asked about; here one without costs
the API server nothing. There, a caller on the same host needs a token as well; here ``bayplan explain`` in the pod
needs none, since whoever may exec or port-forward into it was asked about by the API server. And there, an API server
that is away makes 401 or 500; here the answer says what is the matter.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Container, Coroutine, Hashable
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar

from aiohttp import web
from aiohttp.typedefs import Middleware

from bayplan.kube.access_reviews import Access, User
from bayplan.serving.local_callers import AUTHORIZED_COMMAND, Handler, is_on_this_host
from bayplan.serving.statuses import status_response
from scheduler_core.errors import ClusterWriteError, ServerUnavailableError
from scheduler_core.ports import Clock

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/livez"})
"""Asked by the kubelet, which has no token."""
COMMAND_AUDIENCE = "bayplan.dev"
"""Audience of the tokens of commands that follow the leader; the chart mounts such a token."""
_MASTERS = "system:masters"
_SECONDS = 10.0
_MOST_KEPT = 1024
_MOST_UNDER_WAY = 64

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Reviews(Protocol):
    """Who answers for users and rights."""

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """Return the user of a token for an audience, "" for the API server; None for a token that is not known."""

    async def access(self, user: User, verb: str, path: str) -> Access:
        """Whether a user may do something to a path."""


class RequestAuthorization:
    """Lets requests through, or refuses them.

    Args:
        reviews: Who knows.
        clock: Time.
        is_trusted: Whether whoever asks from an address need not show a token.
        command_paths: Paths that are for commands, which show a token of their own audience.
    """

    def __init__(
        self,
        reviews: Reviews,
        clock: Clock,
        is_trusted: Callable[[str | None], bool] = is_on_this_host,
        command_paths: Container[str] = (),
    ) -> None:
        self._reviews = reviews
        self._is_trusted = is_trusted
        self._command_paths = command_paths
        self._users: _Answers[tuple[bytes, str], User | None] = _Answers(clock)
        self._access: _Answers[tuple[str, ...], Access] = _Answers(clock)

    @property
    def middleware(self) -> Middleware:
        """What to put before a server's handlers."""

        @web.middleware
        async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path not in OPEN_PATHS and not self._is_trusted(request.remote):
                refusal = await self._refusal(request)
                if refusal is not None:
                    return refusal
                request[AUTHORIZED_COMMAND] = request.path in self._command_paths
            return await handler(request)

        return authorize

    async def _refusal(self, request: web.Request) -> web.Response | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        # A token is ASCII; what is no text at all could not even be asked about.
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return status_response(HTTPStatus.UNAUTHORIZED, "Unauthorized: send a bearer token of the cluster")
        verb, path = request.method.lower(), request.path
        audience = COMMAND_AUDIENCE if path in self._command_paths else ""
        try:
            # The token itself is not kept.
            digest = hashlib.sha256(token.encode()).digest()
            user = await self._users.of((digest, audience), lambda: self._reviews.user_of(token, audience))
            if user is None:
                wanted = f" of the audience {audience}" if audience else ""
                text = f"Unauthorized: the API server does not know this token{wanted}"
                return status_response(HTTPStatus.UNAUTHORIZED, text)
            if _MASTERS in user.groups:
                return None
            extra = (part for name, values in sorted(user.extra.items()) for part in (name, *values))
            key = (verb, path, user.username, user.uid, *sorted(user.groups), "", *extra)
            access = await self._access.of(key, lambda: self._reviews.access(user, verb, path))
        except ClusterWriteError as error:
            text = f"whether this may be answered cannot be asked of the API server: {error}; ask again"
            return status_response(HTTPStatus.SERVICE_UNAVAILABLE, text)
        if access.allowed:
            return None
        why = f": {access.reason}" if access.reason else ""
        text = f'forbidden: User "{user.username}" cannot {verb} path "{path}"{why}'
        return status_response(HTTPStatus.FORBIDDEN, text)


class _Answers(Generic[K, V]):
    """Answers that hold for a while; who asks for the same one meanwhile waits for it too. Errors are not kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[K, tuple[float, V]] = {}
        self._under_way: dict[K, asyncio.Task[V]] = {}

    async def of(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Give the answer, asking for it if none is kept.

        Raises:
            ServerUnavailableError: Too many are being asked for.
            ClusterWriteError: As ``ask`` raises it.
        """
        kept = self._kept.get(key)
        if kept is not None and self._clock.now() < kept[0]:
            return kept[1]
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= _MOST_UNDER_WAY:
                raise ServerUnavailableError(f"{_MOST_UNDER_WAY} questions wait for an answer already")
            task = self._under_way[key] = asyncio.create_task(ask(), name="access review")
            task.add_done_callback(lambda task: self._answered(key, task))
        # Shielded: others may wait for it when this caller hangs up.
        return await asyncio.shield(task)

    def _answered(self, key: K, task: asyncio.Task[V]) -> None:
        del self._under_way[key]
        if task.cancelled() or task.exception() is not None:
            return
        # Oldest first: all hold equally long.
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept.pop(key, None)
        self._kept[key] = (self._clock.now() + _SECONDS, task.result())
