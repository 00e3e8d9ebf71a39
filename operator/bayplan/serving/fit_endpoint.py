"""The endpoint that answers "would it fit?" on the state of the running scheduler.

Callers on the same host are answered, of which ``kubectl port-forward`` is one, and users with a token who have the
verb ``create`` on the resource ``fits.bayplan.dev`` in the namespaces of the pods. That resource exists only in roles,
so that a controller needs no right to create pods. A node that is copied needs ``get nodes``. ResourceClaimTemplates
are read in namespaces in which the user may get them. Names of victims are shown in namespaces in which the user may
list pods.

One pod of a short manifest is tried at once, in less than a batch of scheduling cycles; what takes longer is searched
in a copy of the process. Requests may use a twentieth of the time of the process; only their CPU time counts.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib import import_module
from math import ceil
from time import monotonic
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from bayplan.fit import FitBody
from bayplan.fit.claim_templates import NamesByNamespace, missing_templates, not_read
from bayplan.fit.request_reading import CLUSTER_SCOPED
from bayplan.kube.readiness import Readiness
from bayplan.process.copies import BackgroundDocuments, Document, charged, run_charged
from bayplan.serving import FIT_PATH
from bayplan.serving.authorization import Denial, HandlerAccess, Permission, read_body, refusal
from bayplan.serving.debug_endpoints import SUSPENDED, is_still_suspended
from scheduler_core.errors import ClusterWriteError, ConfigError, SchedulerCoreError
from scheduler_core.scheduler import Scheduler
from scheduler_core.step_counter import TimeBudget

MAX_BODY = 256 * 1024
"""Maximum length of a request in bytes."""
MOST_AT_ONCE = 8 * 1024
"""Maximum length of a request that is answered at once; to read and to validate 1 KiB takes up to 1 ms."""
_SHARE = 0.05
_STEPS_AT_ONCE = 1_000
"""Enough for a pod of 5,000 nodes that preempts: about 10 ms."""
_STEPS_IN_COPY = 500_000
MOST_READING = 64
MOST_READING_OF_USER = 16
"""Maximum number of bodies that are received from one user: no permission is needed until a body has arrived."""
_MOST_WAITING = 8
_MOST_SEARCHING = 4
"""Maximum number of requests that wait for a copy of the process: a search takes seconds, and other requests do not."""
_MOST_TURNS = 2 * _MOST_WAITING
"""Turns of the event loop that the waiting requests take: one to read a long body, one to evaluate it."""
BODY_SECONDS = 10.0
"""Maximum time from the headers of a request to the end of its body."""
MAX_OBJECTS = 2_000
"""Maximum number of manifests of a request: its pods have more than 128 bytes each."""
_LONGEST_WAIT_SECONDS = 10.0
_ANSWERS = "bayplan.fit.building"
_NAMES_TEMPLATES = b"resourceClaimTemplateName", b"\\u"
"""What a body contains that names ResourceClaimTemplates; letters may be escaped."""
_TOO_DEEP = "objects: are nested too deep; send manifests that the API server accepts"


T = TypeVar("T")
_Templates = tuple[list[dict[str, Any]], list[str]]

_decode = msgspec.json.Decoder(FitBody).decode


@dataclass(frozen=True, slots=True)
class FitSources:
    """What answers read.

    Attributes:
        is_suspended: Whether a cycle is suspended, which a dry run would disturb.
        priority_classes: Lists the PriorityClasses of the cluster, as manifests.
        documents: Builds answers in a copy of the process; None to build them at once.
        claim_templates: Reads ResourceClaimTemplates by namespace; returns manifests, and notices about those that may
            not be read. None to read none.
    """

    scheduler: Scheduler
    readiness: Readiness
    is_suspended: Callable[[], bool]
    priority_classes: Callable[[], Awaitable[list[dict[str, Any]]]]
    documents: BackgroundDocuments | None = None
    claim_templates: Callable[[NamesByNamespace], Awaitable[_Templates]] | None = None


@dataclass(frozen=True, slots=True)
class Sender:
    """Sender of a request that is being answered; its body had arrived at ``since``, by the monotonic clock."""

    caller: Caller
    since: float

    @property
    def is_gone(self) -> bool:
        """Whether the connection was cut: the handler runs on, although the response cannot be sent."""
        return self.caller.request.transport is None


class FitEndpoint:
    def __init__(self, sources: FitSources, access: FitAccess | None = None) -> None:
        self._sources = sources
        self._access = access or FitAccess()
        self._budget = TimeBudget(_SHARE, monotonic)
        self._reading = Counter[str]()
        self._waiting = 0
        self._searching = 0
        self._is_turn_taken = False

    @property
    def routes(self) -> list[web.RouteDef]:
        return [web.post(FIT_PATH, self._respond)]

    async def _respond(self, request: web.Request) -> web.Response:
        caller = await self._access.caller(request)
        if isinstance(caller, Denial):
            return denied(caller)
        self._sources.scheduler.expect_clients()
        if request.content_type != "application/json":
            return refusal(415, "Content-Type: must be application/json")
        body = await self._body(request, await self._access.username(request))
        if isinstance(body, web.Response):
            return body
        sender = Sender(caller, monotonic())
        found = await self._in_place(partial(self._given, body, sender))
        if isinstance(found, web.Response):
            return found
        given, namespaces = found
        # Without a place: reviews of users who may not request anything must not keep others waiting.
        denial = await caller.denial(*permissions_for(namespaces, copies_node=bool(given.node)))
        if denial is not None:
            return denied(denial)
        response = await self._in_place(partial(self._answered, given, body, namespaces, sender))
        return response if isinstance(response, web.Response) else await _shown_to(caller, response)

    async def _body(self, request: web.Request, user: str) -> bytes | web.Response:
        """Return the body, or the response to a request without one that can be read; "" is a local user."""
        if self._reading.total() >= MOST_READING:
            return _retry(429, f"the bodies of {MOST_READING} requests are being received; retry")
        if user and self._reading[user] >= MOST_READING_OF_USER:
            text = f'the bodies of {MOST_READING_OF_USER} requests of user "{user}" are being received; retry'
            return _retry(429, text)
        self._reading[user] += 1
        # Ends the read, without a task of its own for each request as a timeout of asyncio.
        late = asyncio.get_running_loop().call_later(BODY_SECONDS, request.content.set_exception, TimeoutError())
        try:
            body = await read_body(request, MAX_BODY)
        except TimeoutError:
            response = refusal(408, f"the request was not received within {BODY_SECONDS:g} s; send it again")
            # The rest of the body is not read.
            response.force_close()
            return response
        finally:
            late.cancel()
            self._reading[user] -= 1
            if not self._reading[user]:
                del self._reading[user]
        if len(body) > MAX_BODY:
            return refusal(413, f"the request must have at most {MAX_BODY // 1024} KiB")
        return body

    async def _in_place(self, work: Callable[[], Awaitable[T]]) -> T | web.Response:
        """Await some work on a request, or return the response if many others wait already."""
        if self._waiting >= _MOST_WAITING:
            return _retry(429, f"{_MOST_WAITING} requests wait already; retry")
        self._waiting += 1
        try:
            return await work()
        finally:
            self._waiting -= 1

    async def _given(self, body: bytes, sender: Sender) -> tuple[FitBody, AbstractSet[str]] | web.Response:
        """Return what a body requests, and the namespaces of its objects, or the response if that is invalid."""
        if len(body) <= MOST_AT_ONCE:
            given, namespaces = _read(body)
        else:
            refused = await self._until_credit(sender)
            if refused is not None:
                return refused
            with charged(self._charge):
                given, namespaces = _read(body)
        if isinstance(given, str):
            return refusal(400, given)
        if len(namespaces) > MAX_NAMESPACES:
            return refusal(
                400, f"objects: are in {len(namespaces)} namespaces; request at most {MAX_NAMESPACES} at once"
            )
        return given, namespaces

    async def _answered(
        self, given: FitBody, body: bytes, namespaces: AbstractSet[str], sender: Sender
    ) -> web.Response | bytes:
        """Return the document, or the response to a request without one.

        Args:
            body: The request as it was received.
            namespaces: Namespaces of the objects, for which the caller has the permissions.
        """
        is_short = len(body) <= MOST_AT_ONCE
        # Most processes answer no request, and its modules cost start-up time and memory.
        answering: Any = sys.modules.get(_ANSWERS) or await asyncio.to_thread(_import_answers)
        try:
            classes = await self._sources.priority_classes()
        except ClusterWriteError as error:
            return _retry(503, f"PriorityClasses cannot be listed: {error}; retry")
        try:
            names_some = any(each in body for each in _NAMES_TEMPLATES)
            missing = missing_templates(given.objects, given.namespace or "default") if names_some else {}
            # Requests to the API server wait for the share of the time, too.
            refused = await self._not_now(sender) if missing else None
            if refused is not None:
                return refused
            templates = await self._templates(missing, sender.caller)
        except ConfigError as error:
            return refusal(400, "; ".join(map(str, error.problems)))
        except ClusterWriteError as error:
            return _retry(503, f"ResourceClaimTemplates cannot be read: {error}; retry")
        answer = answering.OperatorAnswer(self._sources.scheduler, given, classes, namespaces, templates)

        def make(steps: int | None) -> Document:
            try:
                return Document(200, msgspec.json.encode(answer.document(steps)))
            except ConfigError as error:
                return Document(400, "; ".join(map(str, error.problems)).encode())
            except SchedulerCoreError as error:
                return Document(422, f"the request cannot be evaluated: {error}".encode())
            except RecursionError:
                return Document(400, _TOO_DEEP.encode())

        refused = await self._not_now(sender)
        if refused is not None:
            return refused
        if answer.is_single and is_short:
            built = run_charged(partial(make, _STEPS_AT_ONCE), self._charge)
            if not answer.was_given_up:
                return _content(built)
        documents = self._sources.documents
        if documents is None:
            return _content(make(None))
        if self._searching >= _MOST_SEARCHING:
            return _retry(429, f"{_MOST_SEARCHING} requests wait already for a search in a copy of the process; retry")
        background = self._sources.scheduler.context.background

        def make_there() -> Document:
            # If there is no copy, the limit of dry runs holds.
            return make(_STEPS_IN_COPY if background.is_copy else None)

        self._searching += 1
        try:
            return _content(
                await documents.build(
                    make_there, self._charge, lambda _: bool(answer.was_given_up), is_long=not is_short
                )
            )
        finally:
            self._searching -= 1

    async def _templates(self, missing: NamesByNamespace, caller: Caller) -> _Templates | None:
        """Return the templates of the cluster that the caller may get, and notices about others."""
        read = self._sources.claim_templates
        if read is None:
            return None
        denials = {each: await caller.denial(Permission("get", resource=TEMPLATES, namespace=each)) for each in missing}
        found, notices = await read({each: names for each, names in missing.items() if denials[each] is None})
        return found, [*(not_read(each, denial.message) for each, denial in denials.items() if denial), *notices]

    def _charge(self, seconds: float) -> None:
        self._budget.charge(seconds, 1)

    async def _not_now(self, sender: Sender) -> web.Response | None:
        """Return the response to a request that must not be answered now."""
        sources = self._sources
        refused = await self._until_credit(sender)
        if refused is not None:
            return refused
        missing = sources.readiness.missing
        if missing:
            return _retry(503, f"not ready: {'; '.join(missing)}; retry")
        if sources.readiness.role:
            return refusal(503, f"{sources.readiness.role}; send the request to the leader, or use --offline")
        return _retry(503, SUSPENDED) if await is_still_suspended(sources.is_suspended) else None

    async def _until_credit(self, sender: Sender) -> web.Response | None:
        """Wait until requests may take time again; return the response instead if that takes long.

        However many requests arrive at once, or wait for the share, one of them goes on in a turn of the event loop.
        """
        while True:
            await self._next_turn()
            if sender.is_gone:
                return refusal(503, "the connection was cut")
            debt = -self._budget.seconds
            if debt <= 0:
                return None
            seconds = debt / _SHARE
            if monotonic() - sender.since + seconds > _LONGEST_WAIT_SECONDS:
                return _retry(503, "fit requests have used their twentieth of the operator's time; retry", seconds)
            await asyncio.sleep(seconds)

    async def _next_turn(self) -> None:
        """Wait for a turn of the event loop that no other request has taken."""
        for _ in range(_MOST_TURNS):
            if not self._is_turn_taken:
                break
            await asyncio.sleep(0)
        self._is_turn_taken = True
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_turn_taken = False


def _read(body: bytes) -> tuple[FitBody | str, set[str]]:
    """Return what a body requests, and the namespaces of its objects; a text if it is invalid."""
    try:
        given = _decode(body)
        namespaces = namespaces_of(given.objects[: MAX_OBJECTS + 1], given.namespace)
    except msgspec.DecodeError as error:
        return f"the request cannot be read: {error}", set()
    except RecursionError:
        return _TOO_DEEP, set()
    if len(given.objects) > MAX_OBJECTS:
        return f"objects: are {len(given.objects)}; request at most {MAX_OBJECTS} at once", set()
    if not 1 <= given.max_new <= 1000 or (given.count is not None and given.count < 1):
        return "maxNew: must be from 1 to 1000; count: must be at least 1", set()
    if given.node and given.node_template is not None:
        return "node, nodeTemplate: specify one of them", set()
    if given.node_template_slices and given.node_template is None:
        return "nodeTemplateSlices: requires nodeTemplate", set()
    return given, namespaces


def _import_answers() -> Any:
    """Import the module, and build its decoders: otherwise each copy of the process would build its own."""
    answering = import_module(_ANSWERS)
    answering.build_decoders()
    return answering


def _content(built: Document) -> web.Response | bytes:
    return built.body if built.status == HTTPStatus.OK else refusal(built.status, built.body.decode())


async def _shown_to(caller: Caller, document: bytes) -> web.Response:
    """Return a document without the names of victims that the caller may not read."""
    if not caller.access.is_trusted(caller.request):
        document = await sys.modules[_ANSWERS].for_reader(document, caller.readable)
    return web.Response(body=document, content_type="application/json")


FITS = "fits.bayplan.dev"
"""Resource of the permission to send fit requests; no API serves it."""
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
MAX_NAMESPACES = 16
"""Maximum number of namespaces whose permissions are reviewed for one request."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Sender of a request; a local caller may see everything."""

    access: FitAccess
    request: web.Request

    async def denial(self, *permissions: Permission) -> Denial | None:
        """Return why the caller lacks one of some permissions; None if the caller has all."""
        return await self.access.denial(self.request, *permissions)

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


class FitAccess(HandlerAccess):
    not_accepted = (
        "requests from other hosts are not accepted; use kubectl port-forward to the port of localAddress and connect "
        "to 127.0.0.1, or set authorizeRequests"
    )
    remedy = "; bind the role edit, or a role with this right, see docs/would-it-fit.md"

    async def caller(self, request: web.Request) -> Caller | Denial:
        """Return the authenticated sender of a request, or why it is rejected."""
        return await self.denial(request) or Caller(self, request)


def permissions_for(namespaces: Iterable[str], *, copies_node: bool) -> tuple[Permission, ...]:
    """Return the permissions that a request needs; one that names a node of the cluster as template may get nodes."""
    found = [Permission("create", resource=FITS, namespace=each) for each in sorted(namespaces)]
    return (*found, Permission("get", resource="nodes")) if copies_node else tuple(found)


def namespaces_of(objects: Iterable[Mapping[str, Any]], default: str) -> set[str]:
    """Return the namespaces of manifests; those without one are in the default one."""
    found = set()
    for each in objects:
        if str(each.get("kind")) not in CLUSTER_SCOPED:
            meta = each.get("metadata")
            own = meta.get("namespace") if isinstance(meta, dict) else None
            found.add(str(own or default or "default"))
    return found


def _retry(status: int, text: str, seconds: float = 1.0) -> web.Response:
    """Return the response to a request that is to be sent again after some seconds."""
    response = refusal(status, text)
    response.headers["Retry-After"] = str(ceil(seconds))
    return response


def denied(denial: Denial) -> web.Response:
    """Return the response to a request that is rejected."""
    if denial.code is HTTPStatus.SERVICE_UNAVAILABLE:
        return _retry(denial.code, denial.message)
    response = refusal(denial.code, denial.message)
    if denial.code is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
