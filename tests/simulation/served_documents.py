"""All documents of a simulated operator process, each built without letting any other task run.

The documents are enumerated by the routes of the operator's server: a route without a row here fails.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import bayplan.fit.building  # noqa: F401 - a request would import it in a thread
import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from bayplan.extenders.extender_clients import ExtenderClients
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from bayplan.page.page_documents import DocumentStream
from bayplan.profiles.profile_sources import ProfileSource
from bayplan.serving.deferred_server import Listener, ServedParts
from bayplan.serving.http_server import HealthServer
from bayplan.serving.operator_server import operator_server
from bayplan.serving.served_page import PageBuilder
from bayplan.settings.feature_gates import FeatureGates
from bayplan.settings.operator_settings import ServingSettings

from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupSource
from scheduler_core.ports import Clock
from tests.simulation.operator_process import OperatorProcess

_LOOPBACK = "127.0.0.1"
_OTHER = {
    "/debug/status": (404,),  # no shadow runs
    "/debug/profile": (403,),
    "/v1/fit": (503,),  # a cycle waits for an extender
    "/debug/explain": (404, 503),  # deleted meanwhile, or a cycle waits for an extender
    "/page/data/work": (404, 503),
    "/": (308,),
    "/page": (308,),
    "/page/data/node": (404,),
    "/page/data/room": (400, 422, 503),  # no such profile, or a cycle waits for an extender
}
"""Statuses other than 200 that the simulated operator may return, by route."""


class _NoProfiles(ProfileSource):
    """Profiles that are not custom resources."""

    def activate(self) -> None: ...


class _OwnLists:
    """Connection that answers lists from what the process has received."""

    def __init__(self, process: OperatorProcess) -> None:
        self._process = process

    async def request(self, request: Any) -> bytes:
        """Return a collection."""
        resource = request.path.rpartition("/")[2]
        if resource == "priorityclasses":
            return msgspec.json.encode({"metadata": {}, "items": []})
        known = self._process.informers.by_resource[resource].known
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
            profiles=_NoProfiles(),
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
        served = {(route.method, route.resource.canonical) for route in self._routes()}
        requests, sent = self._requests(), self._sent()
        rows = {("GET", canonical) for canonical in requests} | {("POST", canonical) for canonical in sent}
        assert served == rows, f"routes without a row in _requests() or _sent(), or the reverse: {served ^ rows}"
        for canonical, paths in requests.items():
            for path in paths:
                yield self._answered(canonical, self._request(path))
        for canonical, bodies in sent.items():
            for body in bodies:
                yield self._answered(canonical, self._request(canonical, body))
        yield from self._streamed()

    def _answered(self, canonical: str, request: web.Request) -> str:
        response = _driven(self._app._handle(request))
        is_allowed = response is None or response.status == 200 or response.status in _OTHER.get(canonical, ())
        assert is_allowed, (request.path_qs, response.status, response.body)
        return request.path_qs

    def _request(self, path: str, body: bytes | None = None) -> web.Request:
        headers = {"Host": "localhost", "Content-Type": "application/json"}
        transport = _Transport(self._port)
        if body is None:
            return make_mocked_request("GET", path, headers=headers, transport=transport)
        return make_mocked_request("POST", path, headers=headers, transport=transport, payload=_Body(body))  # type: ignore[arg-type]  # read() is called, and set_exception() if it is late

    def _routes(self) -> Iterator[Any]:
        return (route for route in self._app.router.routes() if route.method != "HEAD")

    def _requests(self) -> dict[str, tuple[str, ...]]:
        pods, groups = self._subjects()
        explained = (*(f"namespace={space}&pod={name}" for space, name in pods), *groups)
        nodes = [name for name in self._process.scheduler.context.cache.columns.names if name]
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
            "/": ("/",),
            "/page": ("/page",),
            "/page/": ("/page/",),
            "/page/assets/{path}": ("/page/assets/index.html",),
            "/page/data/work": tuple(f"/page/data/work?{each}" for each in explained),
            "/page/data/room": ("/page/data/room?requests=cpu=1,memory=1Gi&count=2&key=topology.kubernetes.io/zone",),
            "/page/data/node": tuple(f"/page/data/node?name={name}" for name in (*nodes[:2], "unknown")),
            "/page/data/{panel}": tuple(f"/page/data/{name}" for name in self._stream.names),
            "/page/events": (),  # _streamed()
        }

    def _sent(self) -> dict[str, tuple[bytes, ...]]:
        """Return bodies by path: manifests of pods for whose room is looked, or that would be created."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pasted", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
        }
        names = (next(iter(self._process.scheduler.context.profiles.live), "default-scheduler"), "unknown")
        return {
            "/page/data/room": tuple(
                msgspec.json.encode({**pod, "spec": {**pod["spec"], "schedulerName": name}})  # type: ignore[dict-item]
                for name in names
            ),
            "/v1/fit": tuple(map(msgspec.json.encode, self._fit_requests(pod, names[0]))),
        }

    def _fit_requests(self, pod: dict[str, Any], profile: str) -> Iterator[dict[str, Any]]:
        """Return requests for a pod, for pods that evict others, and for a gang with new nodes."""
        spec = {**pod["spec"], "schedulerName": profile, "priority": 100}
        template = {"metadata": {"labels": {POD_GROUP_LABELS[GroupSource.BAYPLAN]: "fit"}}, "spec": spec}
        group = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "fit"}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fit"}}
        gang = [{**group, "spec": {"minMember": 3}}, {**job, "spec": {"parallelism": 3, "template": template}}]
        yield {"objects": [{**pod, "spec": {**spec, "priority": 0}}]}
        yield {"objects": [{**pod, "spec": spec}], "count": 4}
        nodes = [name for name in self._process.scheduler.context.cache.columns.names if name]
        yield {"objects": gang, "node": nodes[0], "maxNew": 3} if nodes else {"objects": gang}

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


class _Body:
    """Body of a request, which arrives in two parts."""

    def __init__(self, body: bytes) -> None:
        self._parts = [body[:20], body[20:]]

    async def read(self, _: int) -> bytes:
        return self._parts.pop(0) if self._parts else b""

    def set_exception(self, error: BaseException) -> None:
        """Fail: the body arrives in time."""
        raise error


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
