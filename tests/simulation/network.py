"""Simulated network between the operator and the API server, with latency and faults.

The operator's real cluster I/O runs on it. A request that was sent is processed even if its sender was killed, as on a
real network.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import aiohttp
import msgspec
from bayplan.kube.http.api_request import ResponseLostError, api_error
from bayplan.kube.http.connection import ApiConnection, ApiRequest, ClusterAccess, ConnectionOptions

from scheduler_core.errors import ServerUnavailableError, WriteTimeoutError
from tests.simulation.api_server import OPERATOR, ApiServer, Change, Collection, Response
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.virtual_loop import PROCESS, LoopClock, VirtualLoop

_UNAVAILABLE = "the API server cannot be reached"
_BEFORE_SUCCESSOR = ("claim", "evict", "plan")
"""Kinds of requests that no killed process sends to the server of its successor."""
_LATENCY_SECONDS = 0.02


class Network:
    """The network and its current faults.

    Args:
        loop: Event loop with virtual time.
        counts: Counts faults that take effect.
        rng: Random generator for latencies.
        lag: Delays the watch events of the operator's own writes; None for no delay.

    Attributes:
        unavailable_until: Time before which no request is answered.
        reads_failed_until: Time until which reads of pods fail.
        trace: Lines of the trace.
        binds: Number of binds in progress, by UID of the pod.
        double_binds: UIDs of pods for which a bind was sent while an earlier one was in progress.
        current_process: Number of the running operator process; requests of earlier ones are still processed.
        rival: Binds the pod of this name before the operator's bind arrives.
        on_false_success: Called with the UID and node of a bind that is acknowledged but not performed.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        server: ApiServer,
        counts: FaultCounts,
        rng: random.Random,
        lag: WatchLag | None = None,
    ) -> None:
        self.loop = loop
        self.server = server
        self.counts = counts
        self.unavailable_until = 0.0
        self.reads_failed_until = 0.0
        self.trace: list[str] = []
        self.binds: dict[str, int] = {}
        self.double_binds: list[str] = []
        self.current_process = 0
        self.rival: Callable[[str], None] = lambda _: None
        self.on_false_success: Callable[[str, str], None] = lambda _, __: None
        self._rng = rng
        self._lag = lag
        self._write_lag_seconds = 0.0
        self._armed: dict[str, deque[str]] = {}
        self._stalled: dict[str, float] = {}
        self._streams: dict[str, list[_Stream]] = {}
        self._delivered = 0
        self._loses_response = False
        self._refuses_streamed_lists = rng.random() < 0.2

    def log(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.loop.virtual_now:8.3f} {text}")

    # -- faults ---------------------------------------------------------------------------------------------------

    def arm(self, kind: str, fault: str, count: int) -> None:
        """Make the next ``count`` requests of a kind fail in one way."""
        self._armed.setdefault(kind, deque()).extend([fault] * count)

    def stall(self, path: str, seconds: float) -> None:
        """Delay the events of one resource."""
        self._stalled[path] = max(self._stalled.get(path, 0.0), self.loop.virtual_now + seconds)
        self.counts.add("watch stalled")

    def drop(self, path: str, *, graceful: bool) -> None:
        """Break the watches of a resource, or let the API server close them."""
        streams = self._streams.get(path, ())
        for stream in list(streams):
            stream.end(None if graceful else ResponseLostError(f"WATCH {path}: the connection broke"))
        if streams:
            self.counts.add("watch ended" if graceful else "watch dropped")

    def expire(self, path: str) -> None:
        """Break the watches of a resource and compact its history."""
        for stream in list(self._streams.get(path, ())):
            stream.end(ResponseLostError(f"WATCH {path}: the connection broke"))
        self.server.compact(path)

    def make_unavailable(self, seconds: float) -> None:
        """Answer no request for a while, and break all watches."""
        self.unavailable_until = self.reads_failed_until = self.loop.virtual_now + seconds
        self.counts.add("API server unavailable")
        for path in list(self._streams):
            for stream in list(self._streams[path]):
                stream.end(ResponseLostError(f"WATCH {path}: the connection broke"))

    def lose_response(self) -> None:
        """Break the connection of the request that is being processed before its response."""
        self._loses_response = True

    def heal(self) -> None:
        """Remove all faults."""
        self._armed.clear()
        self._stalled.clear()
        self.unavailable_until = 0.0
        self._lag = None
        for streams in self._streams.values():
            for stream in streams:
                stream.deliver_all()

    @property
    def is_unavailable(self) -> bool:
        """Whether the API server answers no request."""
        return self.loop.virtual_now < self.unavailable_until

    # -- requests -----------------------------------------------------------------------------------------------

    async def send(self, request: ApiRequest, deadline: float) -> tuple[int, float | None, bytes]:
        """Send one request and wait for its response; see :meth:`ApiConnection._send`."""
        kind = kind_of(request)
        fault = self.next_fault(kind)
        name = f"{request.method} {request.path}"
        if kind not in ("event", "list"):
            self.log(f"sent {name}{f' ({fault})' if fault else ''}")
        outcome: asyncio.Future[Response] = self.loop.create_future()
        latency = _LATENCY_SECONDS * self._rng.random()
        if fault == "slow":
            latency += 4.0 * self._rng.random()
        if fault == "no response":
            latency += 8.0 * self._rng.random()
        if fault == "throttled":
            await asyncio.sleep(latency)
            return 429, 1.0, b""
        self._count_bind(request, 1)
        self.loop.call_later(latency, self._arrive, _SentRequest(request, fault, PROCESS.get()), outcome)
        try:
            async with asyncio.timeout_at(deadline):
                status, body = await outcome
        except TimeoutError as error:
            raise WriteTimeoutError(f"{name}: no response in time") from error
        finally:
            self._count_bind(request, -1)
        return status, None, body

    def _count_bind(self, request: ApiRequest, change: int) -> None:
        if not request.path.endswith("/binding") or request.body is None:
            return
        uid: str = msgspec.json.decode(request.body)["metadata"]["uid"]
        self.binds[uid] = self.binds.get(uid, 0) + change
        if self.binds[uid] > 1:
            self.double_binds.append(uid)

    def next_fault(self, kind: str) -> str:
        """Return how the next request of a kind fails; "" if it does not fail."""
        armed = self._armed.get(kind)
        if not armed:
            return ""
        fault = armed.popleft()
        if kind == "read":
            self.reads_failed_until = max(self.reads_failed_until, self.loop.virtual_now)
        if fault == "throttled":
            self.counts.add("throttled")
        counted = COUNTED.get((kind, fault))
        if counted is not None:
            self.counts.add(counted)
        return fault

    def _arrive(self, sent: _SentRequest, outcome: asyncio.Future[Response]) -> None:
        request, fault = sent.request, sent.fault
        name = f"{request.method} {request.path}"
        if self.is_unavailable or (sent.process != self.current_process and kind_of(request) in _BEFORE_SUCCESSOR):
            # These writes of a killed process arrive before its successor starts, because the Lease expires later.
            _complete(outcome, ServerUnavailableError(f"{name}: {_UNAVAILABLE}"))
        elif fault == "error before":
            _complete(outcome, (500, b'{"message":"etcdserver: request timed out"}'))
        elif fault == "conflict":
            _complete(outcome, (409, b'{"message":"Operation cannot be fulfilled: try again"}'))
        elif fault == "acknowledged only":
            document = msgspec.json.decode(request.body or b"")
            self.on_false_success(document["metadata"]["uid"], document["target"]["name"])
            _complete(outcome, (201, b"{}"))
        elif fault == "request lost":
            _complete(outcome, ResponseLostError(f"{name}: the connection broke before the response"))
        else:
            if fault == "rival":
                self.rival(request.path.split("/")[-2])
            client = OPERATOR if sent.process == self.current_process else "previous process"
            response = self._respond(request, client)
            if kind_of(request) not in ("event", "list"):
                self.log(f"did {name} -> {response[0]}")
            if self._loses_response:
                self._loses_response, fault = False, "response lost"
            if fault == "error after":
                _complete(outcome, (500, b'{"message":"etcdserver: leader changed"}'))
            elif fault == "response lost":
                _complete(outcome, ResponseLostError(f"{name}: the connection broke before the response"))
            elif fault != "no response":
                latency = _LATENCY_SECONDS * self._rng.random()
                self.loop.call_later(latency, _complete, outcome, response)

    def _respond(self, request: ApiRequest, client: str) -> Response:
        if self._lag is not None:
            self._write_lag_seconds = self._lag.seconds(kind_of(request))
        try:
            return self.server.respond(request.method, request.path, request.body, client)
        finally:
            self._write_lag_seconds = 0.0

    # -- watches ------------------------------------------------------------------------------------------------

    async def open(self, path: str, params: dict[str, str]) -> _Stream:
        """Open a watch."""
        await asyncio.sleep(_LATENCY_SECONDS * self._rng.random())
        if self.is_unavailable:
            raise ServerUnavailableError(f"WATCH {path}: {_UNAVAILABLE}")
        if "sendInitialEvents" in params and self._refuses_streamed_lists:
            raise api_error(f"WATCH {path}", 422, b'{"message":"sendInitialEvents is forbidden"}')
        collection = self.server.collection(path)
        since = params.get("resourceVersion")
        if since is not None and int(since) < collection.compacted:
            self.counts.add("watch expired")
            raise api_error(f"WATCH {path}", 410, b'{"message":"too old resource version"}')
        stream = _Stream(self, path, collection)
        if since is None:
            stream.push(self.server.version, b"\n".join(self.server.initial_lines(path)))
        else:
            for change in collection.history:
                if change.version > int(since):
                    stream.on_change(change)
        self._streams.setdefault(path, []).append(stream)
        collection.listeners.append(stream.on_change)
        return stream

    def close(self, stream: _Stream) -> None:
        """Remove a watch that the operator has closed."""
        self._streams[stream.path].remove(stream)
        stream.collection.listeners.remove(stream.on_change)

    def due(self, path: str) -> float:
        """Return when a change that happens now arrives at the watches of a resource."""
        now = self.loop.virtual_now
        due = now + _LATENCY_SECONDS * self._rng.random() + self._write_lag_seconds
        if self._write_lag_seconds:
            self.counts.add("watch behind an own write")
        return max(due, self._stalled.get(path, 0.0))

    def delivered(self, version: int) -> None:
        """Record that an event has arrived."""
        if version < self._delivered:
            self.counts.add("watch reordered")
        self._delivered = max(self._delivered, version)


@dataclass(frozen=True, slots=True)
class _SentRequest:
    """A request in transit, its planned fault, and the number of the process that sent it."""

    request: ApiRequest
    fault: str
    process: int


class _Stream:
    """One watch: lines with their arrival times. The order of lines never changes."""

    def __init__(self, network: Network, path: str, collection: Collection) -> None:
        self.path = path
        self.collection = collection
        self._network = network
        self._lines: deque[tuple[float, int, bytes]] = deque()
        self._wakeup = asyncio.Event()
        self._ended = False
        self._fault: Exception | None = None

    def on_change(self, change: Change) -> None:
        """Queue a change of the resource."""
        self.push(change.version, change.line)

    def push(self, version: int, line: bytes) -> None:
        """Add a line."""
        due = self._network.due(self.path)
        if self._lines:
            due = max(due, self._lines[-1][0])
        self._lines.append((due, version, line))
        self._wakeup.set()

    def end(self, fault: Exception | None) -> None:
        """End with an error, or regularly; lines that have not arrived are lost."""
        self._ended, self._fault = True, fault
        self._lines.clear()
        self._wakeup.set()

    def deliver_all(self) -> None:
        """Deliver all queued lines now."""
        now = self._network.loop.virtual_now
        self._lines = deque((min(due, now), version, line) for due, version, line in self._lines)
        self._wakeup.set()

    async def readany(self) -> bytes:
        """Return the lines that have arrived; empty at the end."""
        while True:
            self._wakeup.clear()
            if self._ended:
                if self._fault is not None:
                    raise self._fault
                return b""
            now, arrived = self._network.loop.virtual_now, []
            while self._lines and self._lines[0][0] <= now:
                _, version, line = self._lines.popleft()
                self._network.delivered(version)
                arrived.append(line)
            if arrived:
                return b"\n".join(arrived) + b"\n"
            if self._lines:
                timer = self._network.loop.call_at(self._lines[0][0], self._wakeup.set)
                try:
                    await self._wakeup.wait()
                finally:
                    timer.cancel()
            else:
                await self._wakeup.wait()


class ModelConnection(ApiConnection):
    """The operator's connection on the simulated network.

    Attributes:
        is_dead: Whether the process was killed.
    """

    def __init__(self, network: Network, clock: LoopClock) -> None:
        super().__init__(_NoAccess(), ConnectionOptions(), clock)
        self._network = network
        self.is_dead = False

    async def _send(self, request: ApiRequest, deadline: float) -> tuple[int, float | None, bytes]:
        if self.is_dead:
            raise ServerUnavailableError("the process was killed")
        self.requests += 1
        return await self._network.send(request, deadline)

    @asynccontextmanager
    async def stream(
        self, path: str, params: tuple[tuple[str, str], ...], idle_seconds: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a watch."""
        without_gates = await self._network.open(path, dict(params))
        try:
            yield cast("aiohttp.StreamReader", without_gates)
        finally:
            self._network.close(without_gates)


class _NoAccess(ClusterAccess):
    """Credentials that are never checked."""

    base_url = "http://model"
    ssl_context = None
    server_hostname = None
    proxy = None

    async def authorization(self) -> str | None:
        return None


def _complete(outcome: asyncio.Future[Response], result: Response | Exception) -> None:
    if outcome.done():
        return
    if isinstance(result, Exception):
        outcome.set_exception(result)
    else:
        outcome.set_result(result)


# -- kinds of requests, which fail independently of each other ---------------------------------------------------------


COUNTED = {
    ("bind", "error before"): "bind refused",
    ("bind", "error after"): "bind failed after it took effect",
    ("bind", "request lost"): "bind request lost",
    ("bind", "response lost"): "bind response lost",
    ("bind", "no response"): "bind timed out",
    ("bind", "conflict"): "bind conflict without cause",
    ("bind", "slow"): "bind slow",
    ("bind", "acknowledged only"): "bind acknowledged but not performed",
    ("read", "error before"): "read failed",
    ("read", "request lost"): "read failed",
    ("patch", "error before"): "patch failed",
    ("patch", "response lost"): "patch failed",
    ("delete", "error before"): "deletion failed",
    ("delete", "response lost"): "deletion failed",
    ("volume", "error before"): "volume bind failed",
    ("volume", "response lost"): "volume bind failed",
    ("claim", "error before"): "claim write failed",
    ("claim", "error after"): "claim write failed",
    ("claim", "request lost"): "claim write failed",
    ("claim", "response lost"): "claim write failed",
    ("claim", "no response"): "claim write failed",
    ("claim", "conflict"): "claim write conflict",
    ("group", "error before"): "PodGroup write failed",
    ("group", "error after"): "PodGroup write failed",
    ("group", "request lost"): "PodGroup write failed",
    ("group", "response lost"): "PodGroup write failed",
    ("group", "no response"): "PodGroup write failed",
    ("group", "conflict"): "PodGroup write failed",
}
"""Fault to count, by the kind of a request and how the request fails."""


def kind_of(request: ApiRequest) -> str:
    """Return the kind of a request."""
    path = request.path
    if path.endswith("/binding"):
        return "bind"
    if "/events.k8s.io/" in path:
        return "event"
    if "/resourceclaims" in path and request.method != "GET":
        return "claim"
    if path.endswith("/eviction"):
        return "evict"
    if "/rebalanceplans" in path:
        return "plan"
    if "/podgroups" in path:
        return "group"
    if "/persistentvolume" in path:
        return "volume" if request.method != "GET" else "list"
    if request.method == "PATCH":
        return "patch"
    if request.method == "DELETE":
        return "delete"
    return "read" if "/namespaces/" in path else "list"


# -- delay of the watch events of the operator's own writes ------------------------------------------------------------


LAGGING = ("bind", "patch", "delete", "claim", "volume")
"""Kinds of writes: binds, conditions and nominations, evictions, claims of devices, and volumes."""

_MAXIMA_SECONDS = (0.0, 0.0, 0.5, 2.0, 5.0)


class WatchLag:
    """Delays of one run; each kind of write has a maximum of its own.

    Between the response to a write and its watch event, the operator must act as if the event had arrived. An API
    server under load delivers events seconds after responses.

    Args:
        rng: Random generator, which nothing else uses.
        always: Whether every kind of write is delayed.

    Attributes:
        maxima: Longest delay in seconds by kind of write.
    """

    def __init__(self, rng: random.Random, *, always: bool = False) -> None:
        self._rng = rng
        choices = [each for each in _MAXIMA_SECONDS if each or not always]
        self.maxima = {kind: choices[rng.randrange(len(choices))] for kind in LAGGING}

    def seconds(self, kind: str) -> float:
        """Return the delay of the event of one write."""
        maximum = self.maxima.get(kind, 0.0)
        return maximum * self._rng.random() if maximum else 0.0
