"""Who may send requests: local callers, and others by bearer tokens, which the API server reviews.

A request is local if it arrived at a socket that listens on loopback, directly. The address of the peer alone proves
nothing: a sidecar proxy forwards the requests of other hosts from loopback. A Host header that is no loopback address
comes from a web site whose name resolves to 127.0.0.1, and headers that only proxies set come from a proxy. ``kubectl
port-forward`` comes from the pod's own loopback, and the API server authorizes it. A pod with ``hostNetwork`` shares
loopback with every process on its node.

Local requests need no token. Endpoints that name pods and nodes of every namespace accept only them, because permission
to get ``/debug`` is often granted unintentionally together with all paths. Follows kube-scheduler v1.37.1, whose
delegated authentication and authorization are those of k8s.io/apiserver v0.37.1, ``pkg/server/options``: reviews are
cached for ten seconds, health is open to all, ``system:masters`` may do everything.

    health, local requests ─▶ accepted
    no token ─▶ 401   unknown token ─▶ 401   no permission to get the path ─▶ 403   API server unavailable ─▶ 503

A command that follows the leader from the pod of a standby comes from another host. It is accepted for the paths of
``command_paths`` with a token of the audience ``bayplan.dev``, which the API server itself does not accept. A token for
the API server is not accepted there, so permission to get all paths, which scrapers often have, does not expose pods.

The API server authenticates and authorizes every caller (TokenReview, SubjectAccessReview): it supports every kind of
token, and an operator that evaluated roles itself would need the right to read all of them.

Three differences from the reference. There, a request without a token is reviewed as the user ``system:anonymous``;
here it causes no request to the API server. There, a caller on the same host needs a token as well; here ``bayplan
explain`` in the pod needs none, since the API server has authorized its exec or port-forward. There, an unavailable API
server causes 401 or 500; here the response has the reason.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine, Hashable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from bayplan.kube.http.api_request import TokenBucket
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import ClusterWriteError, ServerUnavailableError
from scheduler_core.ports import Clock, Timer

AUTHORIZED_COMMAND = web.RequestKey("AUTHORIZED_COMMAND", bool)
"""Whether a request from another host was accepted as one of a command that follows the leader."""

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
    """Restrict a handler to local requests and to commands of other replicas; others get 403."""

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
    """Return whether an address of a peer is loopback, which does not make a request local, see :func:`is_local`."""
    try:
        address = ip_address((remote or "").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


_CACHE_SECONDS = 10.0
_MAX_CACHED = 1024
_CONCURRENT_REVIEWS = 4
"""Below the connections for reviews, so that one is free for callers that were accepted before."""
_REVIEWS_PER_SECOND, _BURST = 20.0, 40
_MAX_WAITING_OF_ORIGIN, _MAX_WAITING = 256, 1024
_MAX_WAIT_SECONDS = 6.0
"""Together with the timeout of a review within the usual scrape timeout of ten seconds."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ReviewQueue:
    """Callers that wait for a review."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free = _CONCURRENT_REVIEWS
        self._bucket: TokenBucket | None = None
        # Origins in the order of their turns; each has at least one waiting caller.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._count = 0
        self._timer: Timer | None = None

    @asynccontextmanager
    async def turn(self, origin: str) -> AsyncIterator[None]:
        """Wait for a turn of an origin and keep it until the block ends; raises ServerUnavailableError if many wait."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(origin, turn)
        too_late = ServerUnavailableError("too many reviews wait")
        deadline = self._clock.call_later(_MAX_WAIT_SECONDS, lambda: _fail(turn, too_late))
        self._start_next()
        try:
            await turn
        finally:
            deadline.cancel()
        try:
            yield
        finally:
            self._free += 1
            self._start_next()

    def _add(self, origin: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.setdefault(origin, deque())
        waiting.append(turn)
        self._count += 1
        if len(waiting) > _MAX_WAITING_OF_ORIGIN:
            longest = waiting
        elif self._count > _MAX_WAITING:
            longest = max(self._waiting.values(), key=len)
        else:
            return
        self._count -= 1
        _fail(longest.pop(), ServerUnavailableError("too many reviews wait"))

    def _start_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and self._waiting:
            origin, waiting = next(iter(self._waiting.items()))
            while waiting and waiting[0].done():
                waiting.popleft()  # failed or cancelled while it waited
                self._count -= 1
            if not waiting:
                del self._waiting[origin]
                continue
            if self._bucket is None:
                self._bucket = TokenBucket(_REVIEWS_PER_SECOND, _BURST, self._clock)
            seconds = self._bucket.try_take()
            if seconds:
                # A shorter time may add nothing to the clock's time.
                self._timer = self._clock.call_later(max(seconds, 0.001), self._start_next)
                return
            self._free -= 1
            self._count -= 1
            waiting.popleft().set_result(None)
            del self._waiting[origin]
            if waiting:
                self._waiting[origin] = waiting


class ReviewCache(Generic[K, V]):
    """Cache of reviews, without errors; requests for a key share one, and unaccepted keys take turns in ``queue``."""

    def __init__(self, clock: Clock, queue: ReviewQueue, is_accepted: Callable[[V], bool]) -> None:
        self._clock = clock
        self._queue = queue
        self._is_accepted = is_accepted
        # Separate, so that rejected keys displace no accepted ones.
        self._accepted: dict[K, tuple[float, V]] = {}
        self._rejected: dict[K, tuple[float, V]] = {}
        self._in_progress: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, origin: str, review: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the cached result of a review, or call ``review``; raises ServerUnavailableError if too many wait."""
        cached = self._accepted.get(key) or self._rejected.get(key)
        if cached is not None and self._clock.now() < cached[0]:
            return cached[1]
        task = self._in_progress.get(key)
        if task is None:
            task = self._in_progress[key] = asyncio.create_task(self._review(key, origin, review), name="access review")
            task.add_done_callback(lambda task: self._finished(key, task))
        # Shielded, because other callers may wait for it when this one disconnects.
        return await asyncio.shield(task)

    async def _review(self, key: K, origin: str, review: Callable[[], Coroutine[Any, Any, V]]) -> V:
        if key in self._accepted:
            return await review()
        async with self._queue.turn(origin):
            return await review()

    def _finished(self, key: K, task: asyncio.Task[V]) -> None:
        del self._in_progress[key]
        if task.cancelled() or task.exception() is not None:
            return
        self._accepted.pop(key, None)
        self._rejected.pop(key, None)
        results = self._accepted if self._is_accepted(task.result()) else self._rejected
        # All results are valid for the same time, so the oldest is removed first.
        while len(results) >= _MAX_CACHED:
            del results[next(iter(results))]
        results[key] = (self._clock.now() + _CACHE_SECONDS, task.result())


def _fail(turn: asyncio.Future[None], error: Exception) -> None:
    if not turn.done():
        turn.set_exception(error)


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

    async def resource_access(self, user: User, verb: str, resource: str, namespace: str = "") -> Access:
        """Return whether a user may use a verb on a resource in a namespace; "" for all namespaces."""


class Permission(msgspec.Struct, frozen=True):
    """Permission that a request needs: a verb on a path, or on a resource in a namespace.

    Attributes:
        resource: Name of the resource, with its API group after a dot unless it is the core API's.
        namespace: "" for all namespaces.
    """

    verb: str
    path: str = ""
    resource: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        if self.path:
            return f'{self.verb} path "{self.path}"'
        where = f'in namespace "{self.namespace}"' if self.namespace else "in all namespaces"
        return f"{self.verb} {self.resource} {where}"


class Denial(msgspec.Struct, frozen=True):
    """Why a request is rejected: 401, 403 or 503, and the reason with what to do."""

    code: HTTPStatus
    message: str


class RequestAuthorization:
    """Accepts or rejects requests.

    Args:
        command_paths: Paths for commands, which send a token of their own audience.
        own_paths: Paths at and below which handlers authorize requests themselves, with :meth:`denial`; "/" is only
            the root, which redirects to the page.
    """

    def __init__(
        self,
        reviews: Reviews,
        clock: Clock,
        is_trusted: Callable[[web.Request], bool] = is_local,
        command_paths: Container[str] = (),
        own_paths: Sequence[str] = (),
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
        if path in OPEN_PATHS or path in self._own_paths:
            return True
        return any(own != "/" and path.startswith(f"{own}/") for own in self._own_paths)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        verb, path = request.method.lower(), request.path
        audience = COMMAND_AUDIENCE if path in self._command_paths else ""
        denial = await self.denial(bearer_token(request), (Permission(verb, path),), audience, request.remote or "")
        return None if denial is None else _status_response(denial.code, denial.message)

    async def denial(
        self, token: str, permissions: Sequence[Permission], audience: str = "", origin: str = ""
    ) -> Denial | None:
        """Return why a token does not authorize a request, None if it does; addresses (``origin``) take turns."""
        # A token is ASCII; other bytes could not be sent to the API server.
        if not token or not token.isascii():
            return Denial(HTTPStatus.UNAUTHORIZED, "Unauthorized: send a bearer token of the cluster")
        try:
            user = await self._user_of(token, audience, origin)
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

    async def username(self, token: str, origin: str = "") -> str:
        """Return the name of the user of a token that :meth:`denial` has accepted."""
        user = await self._user_of(token, "", origin)
        return "" if user is None else user.username

    async def _user_of(self, token: str, audience: str, origin: str) -> User | None:
        # The token itself is not stored.
        digest = hashlib.sha256(token.encode()).digest()
        return await self._users.get((digest, audience), origin, lambda: self._reviews.user_of(token, audience))

    async def _review(self, user: User, permission: Permission) -> Access:
        verb, path, resource, namespace = permission.verb, permission.path, permission.resource, permission.namespace
        extra = (part for name, values in sorted(user.extra.items()) for part in (name, *values))
        key = (verb, path, resource, namespace, user.username, user.uid, *sorted(user.groups), "", *extra)
        origin = f"user {user.username}"
        if path:
            return await self._access.get(key, origin, lambda: self._reviews.access(user, verb, path))
        return await self._access.get(
            key, origin, lambda: self._reviews.resource_access(user, verb, resource, namespace)
        )


def _is_user(user: User | None) -> bool:
    return user is not None


def _is_allowed(access: Access) -> bool:
    return access.allowed


def bearer_token(request: web.Request) -> str:
    """Return the token of the Authorization header, "" for none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


TOKEN_HEADER = "X-Bayplan-Token"  # noqa: S105 - the name of a header
"""Header of a token behind the API server's proxy, which removes the Authorization header."""


def proxied_token(request: web.Request) -> str:
    """Return the token of ``TOKEN_HEADER``, or that of the Authorization header; "" for none."""
    return request.headers.get(TOKEN_HEADER, "").strip() or bearer_token(request)


class HandlerAccess:
    """Authorization of requests by a handler; without ``authorization`` callers from other hosts are rejected.

    Attributes:
        not_accepted: Why callers from other hosts are rejected then, and what to do.
        remedy: What to do if a permission is missing.
    """

    not_accepted: ClassVar[str]
    remedy: ClassVar[str]

    def __init__(
        self, authorization: RequestAuthorization | None = None, is_trusted: Callable[[web.Request], bool] = is_local
    ) -> None:
        self._authorization = authorization
        self.is_trusted = is_trusted

    async def denial(self, request: web.Request, *permissions: Permission) -> Denial | None:
        """Return why a request is rejected; None if it is accepted."""
        if self.is_trusted(request):
            return None
        if self._authorization is None:
            return Denial(HTTPStatus.FORBIDDEN, self.not_accepted)
        found = await self._authorization.denial(proxied_token(request), permissions, origin=request.remote or "")
        remedies = {HTTPStatus.UNAUTHORIZED: "; kubectl create token creates one", HTTPStatus.FORBIDDEN: self.remedy}
        return None if found is None else Denial(found.code, found.message + remedies.get(found.code, ""))

    async def username(self, request: web.Request) -> str:
        """Return the user of a request that is accepted; "" for a trusted one."""
        if self._authorization is None or self.is_trusted(request):
            return ""
        try:
            return await self._authorization.username(proxied_token(request), request.remote or "")
        except ClusterWriteError:
            return ""


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
    """Return a response that rejects a request with 401, 403 or 503."""
    body = msgspec.json.encode(_StatusBody(message, _REASONS[code], code.value))
    headers = {"WWW-Authenticate": "Bearer"} if code is HTTPStatus.UNAUTHORIZED else None
    return web.Response(status=code.value, body=body, content_type="application/json", headers=headers)


_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_SECONDS = 4.0
"""Timeout of a review: both reviews of a request end before the usual scrape timeout of ten seconds."""


class User(msgspec.Struct, frozen=True, rename="camel"):
    """Authenticated user of a TokenReview; authenticators pass ``extra`` to authorizers."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Access(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessReview(msgspec.Struct, frozen=True):
    status: Access = Access()


R = TypeVar("R", _TokenReview, _AccessReview)


class AccessReviews:
    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._tokens = ObjectJsonDecoder(_TokenReview)
        self._access = ObjectJsonDecoder(_AccessReview)

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """Return the user of a token of an audience, "" for the API server's; None if that does not accept it."""
        spec: dict[str, Any] = {"token": token, **({"audiences": [audience]} if audience else {})}
        review = await self._review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec, self._tokens)
        status = review.status
        # An authenticator that ignores audiences accepts any token and returns no audiences.
        is_for_audience = not audience or audience in status.audiences
        return status.user if status.authenticated and is_for_audience else None

    async def access(self, user: User, verb: str, path: str) -> Access:
        """Review access to a non-resource path; ``verb`` is the HTTP method in lower case."""
        return await self._access_of(user, {"nonResourceAttributes": {"path": path, "verb": verb}})

    async def resource_access(self, user: User, verb: str, resource: str, namespace: str = "") -> Access:
        """Review access to a resource, whose API group follows the name after a dot, in a namespace; "" for all."""
        name, _, group = resource.partition(".")
        attributes = {"verb": verb, "group": group, "version": "*" if group else "v1", "resource": name}
        return await self._access_of(user, {"resourceAttributes": {**attributes, "namespace": namespace}})

    async def _access_of(self, user: User, attributes: dict[str, Any]) -> Access:
        spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra, **attributes}
        kind = "SubjectAccessReview"
        return (await self._review(_ACCESS, "authorization.k8s.io/v1", kind, spec, self._access)).status

    async def _review(
        self, path: str, version: str, kind: str, spec: dict[str, Any], decoder: ObjectJsonDecoder[R]
    ) -> R:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        request = ApiRequest("POST", path, body, timeout=_SECONDS, lane=Lane.REVIEWS, from_any_replica=True)
        answer = await self._connection.request(request)
        try:
            return decoder.decode(answer)
        except msgspec.DecodeError as error:
            # Without the decoder's text, which may repeat the request.
            raise ClusterWriteError(
                f"POST {path}: the response is not a {kind}; is this a Kubernetes API server?"
            ) from error
