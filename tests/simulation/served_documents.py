"""All documents of a simulated operator process, each built without letting any other task run.

The documents are enumerated by the routes of the operator's server: a route without a row here fails.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from bayplan.extenders.extender_clients import ExtenderClients
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from bayplan.page.document_stream import DocumentStream
from bayplan.serving.deferred_server import Listener, ServedParts
from bayplan.serving.http_server import HealthServer
from bayplan.serving.operator_server import operator_server
from bayplan.serving.served_page import PageBuilder
from bayplan.settings.feature_gates import FeatureGates
from bayplan.settings.operator_settings import ServingSettings

from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.ports import Clock
from tests.simulation.operator_process import OperatorProcess

_LOOPBACK = "127.0.0.1"
_OTHER = {
    "/debug/status": (404,),  # no shadow runs
    "/debug/profile": (403,),
    "/debug/explain": (404, 503),  # deleted meanwhile, or a cycle waits for an extender
    "/page/data/work": (404, 503),
    "/page": (308,),
}
"""Statuses other than 200 that the simulated operator may return, by route."""


class _NoProfiles:
    """Profiles that are not custom resources."""

    def reconciles(self) -> dict[tuple[str, str], int]:
        return {}

    def conditions(self) -> tuple[()]:
        return ()

    def readings(self) -> None:
        return None


class _OwnLists:
    """Connection that answers lists from what the process has received."""

    def __init__(self, process: OperatorProcess) -> None:
        self._process = process

    async def request(self, request: Any) -> bytes:
        """Return a collection."""
        known = self._process.informers.by_resource[request.path.rpartition("/")[2]].known
        return msgspec.json.encode({"metadata": {}, "items": list(known.values())})


class _StillClock:
    """Clock that reads the time of another without advancing it, and does not sleep."""

    def __init__(self, now: Callable[[], float], clock: Clock) -> None:
        self.now = now
        self.wall = clock.wall
        self.call_later = clock.call_later

    async def sleep(self, seconds: float) -> None:
        """Return at once."""


class ServedDocuments:
    """The documents of one process.

    Args:
        process: The process.
        now: Returns the time.
        listener: Listening sockets that accept no connection.
        rng: Selects what is explained.
    """

    def __init__(
        self, process: OperatorProcess, now: Callable[[], float], listener: Listener, rng: random.Random
    ) -> None:
        self._process = process
        self._rng = rng
        scheduler = process.scheduler
        clock = _StillClock(now, scheduler.context.clock)
        parts = ServedParts(
            scheduler=scheduler,
            informers=process.informers,
            readiness=Readiness(()),
            connection=_OwnLists(process),  # type: ignore[arg-type]  # only lists are requested
            clock=clock,
            writer=process.writer,
            extenders=ExtenderClients(None, clock),  # type: ignore[arg-type]  # opens no client
            gates=FeatureGates(),
            profiles=_NoProfiles(),  # type: ignore[arg-type]  # only what the server reads
            election=None,
            started=0.0,
            is_profiling_enabled=False,
            selector="",
            serves=lambda _: None,
            support=ServerSupport,
            attempts=AttemptHistory(),
        )
        built: list[Any] = []
        page = PageBuilder(ServingSettings())

        def build_page(*args: Any) -> Any:
            built.extend(page(*args))
            return tuple(built)

        self._server: HealthServer = operator_server(listener, ServingSettings(), parts, None, build_page)  # type: ignore[arg-type]  # as a builder
        self._stream: DocumentStream = built[1].stream
        self._port = listener.port
        self._app = self._server._runner.app
        self._app.freeze()

    def build(self) -> Iterator[str]:
        """Build every document, and yield the path of each."""
        served = {route.resource.canonical for route in self._routes()}
        requests = self._requests()
        assert served == requests.keys(), "a route has no row in _requests(), or a row has no route"
        for canonical, paths in requests.items():
            for path in paths:
                response = _driven(self._app._handle(self._request(path)))
                is_allowed = response is None or response.status == 200 or response.status in _OTHER.get(canonical, ())
                assert is_allowed, (path, response.status, response.body)
                yield path
        yield from self._streamed()

    def _request(self, path: str) -> web.Request:
        return make_mocked_request("GET", path, headers={"Host": "localhost"}, transport=_Transport(self._port))

    def _routes(self) -> Iterator[Any]:
        return (route for route in self._app.router.routes() if route.method == "GET")

    def _requests(self) -> dict[str, tuple[str, ...]]:
        pods, groups = self._subjects()
        explained = (*(f"namespace={space}&pod={name}" for space, name in pods), *groups)
        return {
            "/livez": ("/livez?verbose",),
            "/healthz": ("/healthz?verbose",),
            "/readyz": ("/readyz?verbose",),
            "/metrics": ("/metrics",),
            "/debug": ("/debug",),
            "/debug/status": ("/debug/status?limit=0&panels=true", "/debug/status?shadow=shadow"),
            "/debug/cache": ("/debug/cache",),
            "/debug/leader": ("/debug/leader",),
            "/debug/tasks": ("/debug/tasks",),
            "/debug/profile": ("/debug/profile",),
            "/debug/explain": tuple(f"/debug/explain?{each}" for each in explained),
            "/page": ("/page",),
            "/page/": ("/page/",),
            "/page/assets/{path}": ("/page/assets/index.html",),
            "/page/data/work": tuple(f"/page/data/work?{each}" for each in explained),
            "/page/data/room": ("/page/data/room?requests=cpu=1,memory=1Gi&count=2&key=topology.kubernetes.io/zone",),
            "/page/data/{panel}": tuple(f"/page/data/{name}" for name in self._stream.names),
            "/page/events": (),  # _streamed()
        }

    def _subjects(self) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
        """Return some pods, most of them waiting, and a gang of each API; it may belong to a tree."""
        queue, rng = self._process.scheduler.context.queue, self._rng
        waiting = [(pod.info.pod.metadata.namespace, pod.info.pod.metadata.name) for _, pod in queue.readings.places()]
        known = [(key.partition("/")[0], key.partition("/")[2]) for key in self._process.informers.pods.known]
        pods = rng.sample(waiting, min(2, len(waiting))) + rng.sample(known, min(1, len(known)))
        gangs = [gang.key for gang in sorted(queue.gangs, key=lambda gang: bool(gang.waiting))]
        rng.shuffle(gangs)
        chosen = {key.source: key for key in gangs}.values()
        names = tuple(f"namespace={key.namespace}&podgroup={key.name}&api={key.source.value}" for key in chosen)
        return pods, names

    def _streamed(self) -> Iterator[str]:
        """Build the documents that the stream sends."""
        viewer = self._stream.join(self._stream.names)
        try:
            _driven(self._stream.refresh())
        finally:
            self._stream.leave(viewer)
        assert self._stream._logged == {}
        yield "/page/events"


class _Transport:
    """Transport of a request from this host, to a port on loopback."""

    def __init__(self, port: int) -> None:
        self._names = {"peername": (_LOOPBACK, 40000), "sockname": (_LOOPBACK, port)}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._names.get(name, default)

    def is_closing(self) -> bool:
        return False


def _driven(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end at once; None if it waits for something, after which it is closed."""
    try:
        while True:
            awaited = work.send(None)
            if awaited is not None:
                asyncio.Future.cancel(awaited)
                work.close()
                return None
    except StopIteration as end:
        return end.value
