"""The kopf part of the operator: event handlers, the admission webhook, settings, credentials and kopf's lifetime.

kopf runs as its documentation embeds it: in an event loop of its own, in a thread. Only ``on.event`` handlers: they add
no finalizer or annotation and see every change at once. They hand the objects to the scheduler's loop, which stores
them; kopf does not retry handlers, so the controller retries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import kopf
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from bayplan.kube.http.api_request import ClusterAccess
from bayplan.kube.http.deep_json import shallow
from bayplan.kube.timing import jittered
from bayplan.kube.watches.watch_stream import LineSplitter
from bayplan.resources.conditions import problems_message
from bayplan.resources.object_store import Body, Watcher
from bayplan.resources.resource_model import GROUP, VERSION, CustomResource
from scheduler_core.errors import Problem
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

R = TypeVar("R")

_RETRY_SECONDS = 1.0
_RESTART_SECONDS = 0.5
"""Short, as the one before, because what is deleted while kopf does not watch is noticed with its next list."""
_STOP_SECONDS = 1.0
_SERVE_AGAIN_SECONDS = 5.0
_REVIEW_SECONDS = 2.0
_UNPROCESSABLE = 422

# The operator handles signals itself; kopf warns at each start that it does not. A refusal is reported to its user.
logging.getLogger("kopf._core.reactor.running").addFilter(lambda line: not line.getMessage().startswith("OS signals"))
logging.getLogger("kopf.objects").addFilter(lambda line: not line.getMessage().startswith("Webhook "))


@dataclass(frozen=True, slots=True)
class Watched:
    """Receiver of a kind's events.

    Attributes:
        request_list: Called after kopf listed the kind: kopf does not report what was deleted while its watch was
            interrupted, so the operator lists the kind, too.
    """

    watcher: Watcher
    request_list: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Result of the review of an object; it is refused if there are problems."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


Review = Callable[
    [Body, Body | None, Callable[[], Sequence[Body]], Callable[[CustomResource], Sequence[Problem]]], Reviewed
]
"""Reviews an object, with its old version (None if it is created); called in a thread.

The functions return the stored PluginConfigs, and a warning for each name in an object that does not exist.
"""


@dataclass(frozen=True, slots=True)
class Webhook:
    """The validating admission webhook.

    Attributes:
        files: Returns the files of the certificate and of its key when they can be served.
        plugin_configs: Returns the stored PluginConfigs; called in the scheduler's loop, as ``files``.
        missing: Returns a warning for each name in an object that does not exist; called in that loop too.
        others: Further kinds that are reviewed and not watched.
    """

    address: tuple[str, int]
    files: Callable[[], Coroutine[Any, Any, tuple[Path, Path]]]
    review: Review
    plugin_configs: Callable[[], Sequence[Body]]
    missing: Callable[[CustomResource], Sequence[Problem]] = lambda _: ()
    others: tuple[type[CustomResource], ...] = ()


class EndlessBackoff:
    """Endless sequence of delays between kopf's attempts, in seconds: an unreachable server must not end a watch."""

    def __iter__(self) -> Iterator[float]:
        while True:
            yield jittered(_RETRY_SECONDS)


def operator_settings() -> kopf.OperatorSettings:
    """Return kopf's settings for a process that also schedules."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.error_backoffs = EndlessBackoff()
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 2.0
    settings.queueing.worker_limit = None  # idle workers count too
    settings.process.ultimate_exiting_timeout = None  # it would kill the process some time after kopf ends
    return settings


class KopfOperator:
    """kopf, in a thread of its own; it calls the receivers of events in the loop that constructs this object."""

    def __init__(
        self, access: ClusterAccess, watched: Mapping[type[CustomResource], Watched], webhook: Webhook | None = None
    ) -> None:
        self._access = access
        self._watched = watched
        self._webhook = webhook
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()

    async def run(self, clock: Clock) -> None:
        while True:
            fault = await self._run_once()
            log.warning("kopf ended%s; restarting the watch of custom resources", f" ({fault})" if fault else "")
            await clock.sleep(jittered(_RESTART_SECONDS))

    async def _run_once(self) -> BaseException | None:
        """Run kopf in a thread until it ends or this task is cancelled; return the exception that ended its thread."""
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        self._stop = stop
        ended: asyncio.Future[BaseException | None] = self._loop.create_future()

        def end(fault: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(fault)

        # kopf logs its failures itself; what asyncio adds are tasks that kopf leaves behind when it ends.
        loop.set_exception_handler(lambda _, context: log.debug("kopf left behind: %s", context))
        # kopf waits up to 5 s for its other watches if one failed, but delivers nothing after its cleanup.
        registry, settings = self.registry(on_cleanup=lambda: self._call(end, None)), operator_settings()
        if self._webhook is not None:
            settings.admission.server = partial(self._serve, self._webhook)

        def run() -> None:
            fault = None
            try:
                with asyncio.Runner(loop_factory=lambda: loop) as runner:
                    runner.run(
                        kopf.operator(
                            registry=registry, settings=settings, standalone=True, clusterwide=True, stop_flag=stop
                        )
                    )
            except BaseException as error:  # noqa: BLE001 - whatever ends the thread is reported to the other one
                fault = error
            self._call(end, fault)

        threading.Thread(target=run, name="kopf", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):  # the loop is closed: kopf has just ended
                loop.call_soon_threadsafe(stop.set)
            _, late = await asyncio.wait([ended], timeout=_STOP_SECONDS)
            if late:
                log.warning("kopf does not stop and is abandoned")
            raise

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the scheduler's loop, which may have ended without waiting for kopf."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def registry(self, on_cleanup: Callable[[], None] = lambda: None) -> kopf.OperatorRegistry:
        """Return a registry with all handlers; ``on_cleanup`` is called in kopf's thread when its tasks have ended."""
        registry = kopf.OperatorRegistry()

        # Coroutines although few await: kopf runs plain functions in further threads, which would reorder events.
        @kopf.on.login(registry=registry, backoff=_RETRY_SECONDS)
        async def login(**_: Any) -> kopf.AiohttpSession:
            authorization = asyncio.run_coroutine_threadsafe(self._access.authorization(), self._loop)
            return self.session(await asyncio.wrap_future(authorization))

        @kopf.on.cleanup(registry=registry)
        async def clean_up(**_: Any) -> None:
            on_cleanup()

        async def deliver(*, event: kopf.RawEvent, param: Any = None, **_: Any) -> None:
            watcher = self._watched[param].watcher
            self._call(watcher.gone if event["type"] == "DELETED" else watcher.seen, param, event["object"])

        for kind in self._watched:
            kopf.on.event(GROUP, VERSION, kind.definition.plural, registry=registry, param=kind)(deliver)
        if self._webhook is not None:
            for kind in (*self._watched, *self._webhook.others):
                # The chart registers the webhook, and the id is its path; kopf manages no configuration.
                kopf.on.validate(
                    GROUP, VERSION, kind.definition.plural, registry=registry, id="validate", side_effects=False
                )(partial(self._validate, self._webhook))
        return registry

    def _validate(
        self, webhook: Webhook, *, body: Body, warnings: list[str], old: Body | None = None, **_: Any
    ) -> None:
        """Review an object; kopf runs this plain function in a thread, since plugins are built for it."""

        async def called(function: Callable[[], Sequence[R]]) -> Sequence[R]:
            return function()

        def in_loop(function: Callable[[], Sequence[R]]) -> Sequence[R]:
            return asyncio.run_coroutine_threadsafe(called(function), self._loop).result(_REVIEW_SECONDS)

        def missing(resource: CustomResource) -> Sequence[Problem]:
            return in_loop(partial(webhook.missing, resource))

        try:
            reviewed = webhook.review(body, old, partial(in_loop, webhook.plugin_configs), missing)
        except Exception:
            # As with failurePolicy Ignore: the operator checks the object again when it reconciles it.
            log.exception("The admission review failed, and the object is admitted; please report this bug")
            return
        warnings += reviewed.warnings
        if reviewed.problems:
            raise kopf.AdmissionError(problems_message(reviewed.problems), code=_UNPROCESSABLE)

    async def _serve(self, webhook: Webhook, review: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        """Serve the webhook; without a certificate or port it is retried, and kopf continues."""
        (host, port), logged = webhook.address, ""
        while True:
            files = asyncio.run_coroutine_threadsafe(webhook.files(), self._loop)
            certificate, key = await asyncio.wrap_future(files)
            # It loads changed files. ``cadata`` is for configurations that kopf manages.
            server = kopf.WebhookServer(addr=host, port=port, certfile=certificate, pkeyfile=key, cadata=b"")
            try:
                async with server:
                    async for config in server(review):
                        log.info("Serving the admission webhook on port %d", port)
                        yield config
            except OSError as error:
                if str(error) != logged:
                    log.warning("The admission webhook cannot be served, retrying: %s", error)
                logged = str(error)
            await asyncio.sleep(_SERVE_AGAIN_SECONDS)

    def session(self, authorization: str | None) -> kopf.AiohttpSession:
        """Open a session for kopf, which closes it, with the current TLS context and this Authorization header."""
        access = self._access
        tls = access.ssl_context
        lists = {f"/apis/{GROUP}/{VERSION}/{kind.definition.plural}": kind for kind in self._watched}

        async def send(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
            if access.ssl_context is not tls:
                # A session keeps its TLS context, so kopf starts again with the new one.
                self._stop.set()
                raise aiohttp.ClientConnectionError("the certificates were renewed")
            request.server_hostname = access.server_hostname
            response = await handler(request)
            response.content = _ShallowLines(response.content)  # type: ignore[assignment]  # read by kopf as one
            kind = next((kind for path, kind in lists.items() if request.url.path.endswith(path)), None)
            if kind is not None and "watch" not in request.url.query and response.status == 200:
                self._call(self._watched[kind].request_list)
            return response

        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True),
            headers={"Authorization": authorization} if authorization else None,
            proxy=access.proxy,
            middlewares=(send,),
        )
        return kopf.AiohttpSession(server=access.base_url, aiohttp_session=session)


class _ShallowLines:
    """Body of a response whose JSON has a bounded nesting depth; other attributes are those of the wrapped body.

    kopf 1.45.2 parses with the standard library's decoder, whose RecursionError ends the watch, and copies each object
    recursively, which fails at a few hundred levels. So depth is cut before kopf reads a body.
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self) -> bytes:
        return shallow(await self._content.read())

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        splitter = LineSplitter()
        async for chunk in self._content.iter_chunked(size):
            for line in splitter.feed(chunk):
                yield shallow(line) + b"\n"
