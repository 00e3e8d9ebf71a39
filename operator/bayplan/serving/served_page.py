"""Builds the page of the operator from its parts."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from math import ceil
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import hdrs, web

from bayplan.introspection.status_building import profile_states
from bayplan.kube.leader_election import LeaderState
from bayplan.kube.readiness import Readiness
from bayplan.page.page_documents import PageDocuments, Viewer, ViewersLimitError
from bayplan.page.page_sources import PageSources
from bayplan.page.report_documents import ReportDocuments, operator_documents
from bayplan.page.room import MAX_MANIFEST, RoomError, read_room_query
from bayplan.process.copies import BackgroundDocuments, Document
from bayplan.serving import PAGE_PATH
from bayplan.serving.authorization import Handler, HandlerAccess, Permission, RequestAuthorization, is_local, read_body
from bayplan.serving.debug_endpoints import SOURCES, SUSPENDED, is_still_suspended, work_document, work_problem
from bayplan.serving.deferred_server import ServedParts
from bayplan.settings.operator_settings import ServingSettings
from bayplan.texts.document_formats import error_text
from bayplan.texts.report_sections import ASSETS
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.step_counter import TimeBudget

PERMISSIONS = (
    Permission("get", path="/page/data"),
    Permission("list", resource="pods"),
    Permission("list", resource="nodes"),
)


class PageAccess(HandlerAccess):
    not_accepted = (
        "requests from other hosts are not accepted; use kubectl port-forward to the port of localAddress, or set "
        "authorizeRequests"
    )
    remedy = "; bind the ClusterRole of the page, see docs/operate/page.md"


HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_JSON = "application/json"
_MANIFESTS = frozenset((_JSON, "application/yaml"))
_LOOK_SECONDS = 1.0
"""Interval at which a closed connection is noticed."""
_WRITE_SECONDS = 60.0
"""Maximum time for which a viewer may stop reading."""
_SHARE = 0.1
"""Share of the time of the process that explanations for viewers may use."""
_REVIEW_SECONDS = 60.0
"""Interval at which the permissions of a viewer are reviewed again."""


class PageEndpoints:
    def __init__(
        self,
        *,
        documents: PageDocuments,
        assets: Mapping[str, AssetFile],
        access: PageAccess,
        readiness: Readiness,
        leader: Callable[[], LeaderState],
        is_suspended: Callable[[], bool],
        background: BackgroundDocuments | None = None,
    ) -> None:
        self._documents = documents
        self._background = background
        self._assets = assets
        self._access = access
        self._readiness = readiness
        self._leader = leader
        self._is_suspended = is_suspended
        self._budget = TimeBudget(_SHARE, monotonic)

    @property
    def routes(self) -> list[web.RouteDef]:
        data = {"work": self._work, "room": self._room, "node": self._node, "{panel}": self._panel}
        return [
            web.get("/", _protected(self._redirect)),
            web.get(PAGE_PATH, _protected(self._redirect)),
            web.get(f"{PAGE_PATH}/", _protected(self._index)),
            web.get(f"{PAGE_PATH}/assets/{{path:.+}}", _protected(self._asset)),
            *(web.get(f"{PAGE_PATH}/data/{name}", _protected(self._data(answer))) for name, answer in data.items()),
            # Another site cannot send these content types without a preflight request, which is refused.
            web.post(f"{PAGE_PATH}/data/room", _protected(self._data(self._room))),
            web.get(f"{PAGE_PATH}/events", _protected(self._data(self._events))),
        ]

    # -- static files -------------------------------------------------------------------------------------------

    async def _redirect(self, _: web.Request) -> web.Response:
        # Relative, so that it works behind the API server's proxy.
        return web.Response(status=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": "page/"})

    async def _index(self, request: web.Request) -> web.Response:
        return self._file(request, INDEX)

    async def _asset(self, request: web.Request) -> web.Response:
        return self._file(request, request.match_info["path"])

    def _file(self, request: web.Request, path: str) -> web.Response:
        found = self._assets.get(path)
        if found is None:
            return _error(HTTPStatus.NOT_FOUND, f"{path} is not a file of the page")
        headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if found.etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        headers["Content-Type"] = found.content_type
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=found.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=found.body, headers=headers)

    # -- data ---------------------------------------------------------------------------------------------------

    def _data(self, answer: Handler) -> Handler:
        """Return a handler that authorizes the request first, and rejects it unless this process schedules."""

        async def authorized(request: web.Request) -> web.StreamResponse:
            denial = await self._access.denial(request, *PERMISSIONS)
            if denial is not None:
                headers = {"WWW-Authenticate": "Bearer"} if denial.code is HTTPStatus.UNAUTHORIZED else None
                return _error(denial.code, denial.message, headers=headers)
            response = self._unavailable(request) or await answer(request)
            if isinstance(response, web.Response) and isinstance(response.body, bytes):
                self._documents.stream.sent_bytes += len(response.body)
            return response

        return authorized

    def _unavailable(self, request: web.Request) -> web.Response | None:
        if self._readiness.role:
            leader = self._leader()
            url = "" if leader.endpoint is None else leader.endpoint.url
            text = (
                f"this replica is a standby: {leader.holder or 'no replica'} leads (Lease {leader.lease}); open the "
                "page of the leader"
            )
            found: dict[str, Any] = {"standby": True, "lease": leader.lease, "holder": leader.holder, "url": url}
            if is_local(request) and request.transport is not None:
                # The replicas of a Deployment listen on the same ports.
                found["localPort"] = request.transport.get_extra_info("sockname")[1]
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, text, found)
        missing = self._readiness.missing
        if missing:
            text = f"not ready: {'; '.join(missing)}; retry"
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, text, {"notReady": missing})
        return None

    async def _panel(self, request: web.Request) -> web.Response:
        name = request.match_info["panel"]
        if name not in self._documents.stream.names:
            return _error(HTTPStatus.NOT_FOUND, f'there is no panel "{name}"; {self._usage()}')
        try:
            return _json(await self._documents.stream.document(name))
        except Exception as error:  # noqa: BLE001 - logged; the page shows it in the panel
            text = f"the panel {name} cannot be built: {error_text(f'the panel {name}', error)}"
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, text)

    async def _work(self, request: web.Request) -> web.Response:
        query = request.query
        namespace, pod, group, api = (query.get(name, "") for name in ("namespace", "pod", "podgroup", "api"))
        problem = work_problem(query)
        if problem:
            return _error(HTTPStatus.BAD_REQUEST, problem)
        refusal = await self._not_now()
        if refusal is not None:
            return refusal
        what = f"PodGroup {namespace}/{group}" if group else f"pod {namespace}/{pod}"

        explain = partial(
            self._documents.read_work, namespace, pod or group, is_gang=bool(group), source=SOURCES.get(api)
        )
        return _response(await self._built(partial(work_document, what, explain)))

    async def _not_now(self) -> web.Response | None:
        """Return the response to a request for a dry run that must not be made now."""
        if await is_still_suspended(self._is_suspended):
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, SUSPENDED)
        debt = -self._budget.seconds
        if debt > 0:
            # Viewers are not trusted with the operator's time: dry runs of a large gang take some of it.
            return _error(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "explanations for viewers have used their tenth of the operator's time; retry",
                headers={"Retry-After": str(ceil(debt / _SHARE))},
            )
        return None

    async def _built(self, make: Callable[[], Document]) -> Document:
        """Build a document, and charge the viewers for the time in which nothing else ran because of it."""

        def charge(seconds: float) -> None:
            self._budget.charge(seconds, 1)

        if self._background is not None:
            return await self._background.build(make, charge)
        began = monotonic()
        try:
            return make()
        finally:
            charge(monotonic() - began)

    async def _room(self, request: web.Request) -> web.Response:
        manifest = ""
        if request.method == hdrs.METH_POST:
            if request.content_type not in _MANIFESTS:
                text = f"Content-Type: must be one of {', '.join(sorted(_MANIFESTS))}"
                return _error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
            manifest = (await read_body(request, MAX_MANIFEST)).decode(errors="replace")
        try:
            query = read_room_query(request.query, manifest)
        except RoomError as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error))
        refusal = await self._not_now()
        if refusal is not None:
            return refusal
        await self._documents.update_nodes()

        def make() -> Document:
            try:
                return Document(HTTPStatus.OK, msgspec.json.encode(self._documents.read_room(query)))
            except RoomError as error:
                return Document(HTTPStatus.BAD_REQUEST, str(error).encode(errors="replace"))
            except SchedulerCoreError as error:
                return Document(HTTPStatus.UNPROCESSABLE_ENTITY, f"the pod cannot be evaluated: {error}".encode())

        return _response(await self._built(make))

    async def _node(self, request: web.Request) -> web.Response:
        name = request.query.get("name", "")
        found = await self._documents.read_node(name)
        if found is None:
            return _error(HTTPStatus.NOT_FOUND, f"node {name} not found")
        return _json(msgspec.json.encode(found))

    # -- events -------------------------------------------------------------------------------------------------

    async def _events(self, request: web.Request) -> web.StreamResponse:
        names = self._documents.stream.names
        panels = [name for name in request.query.get("panels", "").split(",") if name] or list(names)
        unknown = [name for name in panels if name not in names]
        if unknown:
            return _error(HTTPStatus.BAD_REQUEST, f'there is no panel "{unknown[0]}"; {self._usage()}')
        stream = self._documents.stream
        try:
            viewer = stream.join(panels)
        except ViewersLimitError:
            text = f"{stream.limit} browsers read the page already; close one, or raise pageViewers"
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, text, {"viewers": stream.limit})
        try:
            return await self._follow(request, viewer)
        finally:
            stream.leave(viewer)

    async def _follow(self, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers={**HEADERS, **headers})
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        reviewed = loop.time()
        with contextlib.suppress(ConnectionError, TimeoutError):
            async for chunk in viewer.events(_LOOK_SECONDS):
                if request.transport is None or request.transport.is_closing():
                    break
                if loop.time() - reviewed >= _REVIEW_SECONDS:
                    reviewed = loop.time()
                    denial = await self._access.denial(request, *PERMISSIONS)
                    if denial is not None and denial.code is not HTTPStatus.SERVICE_UNAVAILABLE:
                        break
                if chunk:
                    async with asyncio.timeout(_WRITE_SECONDS):
                        await response.write(chunk)
                    self._documents.stream.sent_bytes += len(chunk)
        return response

    def _usage(self) -> str:
        return f"panels: {', '.join(self._documents.stream.names)}"


def _protected(handler: Handler) -> Handler:
    """Return a handler whose responses have the headers of the page."""

    async def protected(request: web.Request) -> web.StreamResponse:
        response = await handler(request)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    return protected


def _response(built: Document) -> web.Response:
    if built.status != HTTPStatus.OK:
        return _error(HTTPStatus(built.status), built.body.decode())
    return _json(built.body)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=_JSON, headers={"Cache-Control": "no-store"})


def _error(
    code: HTTPStatus, text: str, more: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    body = msgspec.json.encode({"error": text, **(more or {})})
    return web.Response(
        status=code.value, body=body, content_type=_JSON, headers={"Cache-Control": "no-store", **(headers or {})}
    )


if TYPE_CHECKING:
    from bayplan.serving.operator_server import Endpoints


class PageBuilder:
    """Builder of the page; its construction reads files, so it is done in a thread."""

    def __init__(self, settings: ServingSettings) -> None:
        self._viewers = settings.page_viewers
        self._assets = read_assets()

    def __call__(
        self, parts: ServedParts, endpoints: Endpoints, authorization: RequestAuthorization | None
    ) -> tuple[PageEndpoints, PageDocuments]:
        """Return the endpoints of the page, and its documents, which must be started."""
        documents = PageDocuments(page_sources(parts, endpoints), self._viewers)
        page = PageEndpoints(
            documents=documents,
            assets=self._assets,
            access=PageAccess(authorization),
            readiness=parts.readiness,
            leader=endpoints.leader,
            is_suspended=lambda: parts.scheduler.context.suspension.is_on,
            background=parts.background,
        )
        return page, documents


def page_sources(parts: ServedParts, endpoints: Endpoints) -> PageSources:
    """Return what the documents of the page are built from."""
    context = parts.scheduler.context
    return PageSources(
        scheduler=parts.scheduler,
        readiness=parts.readiness,
        clock=parts.clock,
        started=parts.started,
        attempts=AttemptHistory() if parts.attempts is None else parts.attempts,
        writes=parts.writer.calls,
        find_pod=parts.informers.pods.known.get,
        explain_pod=endpoints.explain_named,
        explain_gang=endpoints.explain_gang_named,
        profile_states=lambda: profile_states(context, endpoints.extenders),
        profile_readings=parts.profiles.readings,
        server=parts.support,
        informers=parts.informers.by_resource,
        reservations=None if parts.reservations is None else parts.reservations.readings,
        plans=parts.plans,
    )


async def read_documents(parts: ServedParts, endpoints: Endpoints) -> ReportDocuments:
    """Return the documents of the page of an operator that does not serve it; rates are not measured."""
    return await operator_documents(page_sources(parts, endpoints), None)


INDEX = "index.html"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_OTHER_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class AssetFile:
    """A static file, plain and with gzip; ``etag`` is the hash of the content."""

    body: bytes
    compressed: bytes
    content_type: str
    etag: str


def read_assets(directory: Path = ASSETS) -> Mapping[str, AssetFile]:
    """Return all files of a directory by their path in it, such as ``panels/pending.mjs``; raises OSError."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            body = path.read_bytes()
            found[path.relative_to(directory).as_posix()] = AssetFile(
                body=body,
                compressed=gzip.compress(body, mtime=0),
                content_type=_TYPES.get(path.suffix, _OTHER_TYPE),
                etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            )
    return found
