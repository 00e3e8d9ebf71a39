"""The network between the operator and the API server: latency and every fault.

The operator's real cluster I/O runs on it. A request that has been sent is processed even if its sender is gone, as on
a real network.
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
from bayplan.kube.http.api_errors import ResponseLostError, api_error
from bayplan.kube.http.connection import ApiConnection, ApiRequest, ClusterAccess, ConnectionOptions

from scheduler_core.errors import ServerUnavailableError, WriteTimeoutError
from tests.simulation.api_server import US, Answer, ApiServer, Change, Collection
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.request_kinds import COUNTED, kind_of
from tests.simulation.virtual_loop import LIFE, LoopClock, VirtualLoop

_AWAY = "the API server cannot be reached"
_LATENCY_SECONDS = 0.02


class Network:
    """The network and its current faults.

    Args:
        loop: Event loop with virtual time.
        server: The API server at the other end.
        counts: Counts faults that take effect.
        rng: Draws latencies.

    Attributes:
        away_until: Nothing is answered before this time.
        reads_failed_until: Until when reads of pods fail.
        trace: Lines of what was done.
        binds: Number of binds of a pod that were sent and not answered, by UID.
        twice: UIDs of pods that were sent a second bind before the first was answered.
        current_life: The running life of the operator; requests of an earlier one are still processed.
        rival: Binds a pod of this name before the operator does.
        on_answered: Called with the UID and the node of a bind that is answered but never performed.
    """

    def __init__(self, loop: VirtualLoop, server: ApiServer, counts: FaultCounts, rng: random.Random) -> None:
        self.loop = loop
        self.server = server
        self.counts = counts
        self.away_until = 0.0
        self.reads_failed_until = 0.0
        self.trace: list[str] = []
        self.binds: dict[str, int] = {}
        self.twice: list[str] = []
        self.current_life = 0
        self.rival: Callable[[str], None] = lambda _: None
        self.on_answered: Callable[[str, str], None] = lambda _, __: None
        self._rng = rng
        self._armed: dict[str, deque[str]] = {}
        self._stalled: dict[str, float] = {}
        self._streams: dict[str, list[_Stream]] = {}
        self._delivered = 0
        self._loses_answer = False
        self._refuses_streamed_lists = rng.random() < 0.2

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.loop.virtual_now:8.3f} {text}")

    # -- faults ---------------------------------------------------------------------------------------------------

    def arm(self, what: str, how: str, count: int) -> None:
        """Let the next ``count`` requests of a kind fail."""
        self._armed.setdefault(what, deque()).extend([how] * count)

    def stall(self, path: str, seconds: float) -> None:
        """Delay the events of one resource."""
        self._stalled[path] = max(self._stalled.get(path, 0.0), self.loop.virtual_now + seconds)
        self.counts.add("watch stalled")

    def drop(self, path: str, *, in_order: bool) -> None:
        """Break the watches of a resource, or let the server end them regularly."""
        streams = self._streams.get(path, ())
        for stream in list(streams):
            stream.end(None if in_order else ResponseLostError(f"WATCH {path}: the connection broke"))
        if streams:
            self.counts.add("watch ended" if in_order else "watch dropped")

    def expire(self, path: str) -> None:
        """Break the watches of a resource and compact its history."""
        for stream in list(self._streams.get(path, ())):
            stream.end(ResponseLostError(f"WATCH {path}: the connection broke"))
        self.server.compact(path)

    def go_away(self, seconds: float) -> None:
        """Answer nothing for a while, watches included."""
        self.away_until = self.reads_failed_until = self.loop.virtual_now + seconds
        self.counts.add("server away")
        for path in list(self._streams):
            for stream in list(self._streams[path]):
                stream.end(ResponseLostError(f"WATCH {path}: the connection broke"))

    def lose_answer(self) -> None:
        """Break the connection of the request that is being processed, before its answer."""
        self._loses_answer = True

    def heal(self) -> None:
        """Remove all faults."""
        self._armed.clear()
        self._stalled.clear()
        self.away_until = 0.0
        for streams in self._streams.values():
            for stream in streams:
                stream.hurry()

    @property
    def is_away(self) -> bool:
        """Whether the server answers nothing."""
        return self.loop.virtual_now < self.away_until

    # -- requests -----------------------------------------------------------------------------------------------

    async def carry(self, request: ApiRequest, deadline: float) -> tuple[int, float | None, bytes]:
        """Send one request and wait for its answer; see :meth:`ApiConnection._send`."""
        what = kind_of(request)
        how = self.next_fault(what)
        name = f"{request.method} {request.path}"
        if what not in ("event", "list"):
            self.say(f"sent {name}{f' ({how})' if how else ''}")
        outcome: asyncio.Future[Answer] = self.loop.create_future()
        latency = _LATENCY_SECONDS * self._rng.random()
        if how == "slow":
            latency += 4.0 * self._rng.random()
        if how == "unanswered":
            latency += 8.0 * self._rng.random()
        if how == "throttled":
            await asyncio.sleep(latency)
            return 429, 1.0, b""
        self._count_bind(request, 1)
        self.loop.call_later(latency, self._arrive, _Sent(request, how, LIFE.get()), outcome)
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
            self.twice.append(uid)

    def next_fault(self, what: str) -> str:
        """Return how the next request of a kind fails; "" if it does not."""
        armed = self._armed.get(what)
        if not armed:
            return ""
        how = armed.popleft()
        if what == "read":
            self.reads_failed_until = max(self.reads_failed_until, self.loop.virtual_now)
        if how == "throttled":
            self.counts.add("throttled")
        counted = COUNTED.get((what, how))
        if counted is not None:
            self.counts.add(counted)
        return how

    def _arrive(self, sent: _Sent, outcome: asyncio.Future[Answer]) -> None:
        request, how = sent.request, sent.how
        name = f"{request.method} {request.path}"
        if self.is_away or (sent.life != self.current_life and kind_of(request) == "claim"):
            # Of a killed process no write of a claim arrives after the next one has begun: the Lease outlasts it.
            _end(outcome, ServerUnavailableError(f"{name}: {_AWAY}"))
        elif how == "refused":
            _end(outcome, (500, b'{"message":"etcdserver: request timed out"}'))
        elif how == "conflict":
            _end(outcome, (409, b'{"message":"Operation cannot be fulfilled: try again"}'))
        elif how == "in name only":
            document = msgspec.json.decode(request.body or b"")
            self.on_answered(document["metadata"]["uid"], document["target"]["name"])
            _end(outcome, (201, b"{}"))
        elif how == "lost before":
            _end(outcome, ResponseLostError(f"{name}: the connection broke before the response"))
        else:
            if how == "rival":
                self.rival(request.path.split("/")[-2])
            who = US if sent.life == self.current_life else "a former life"
            answer = self.server.respond(request.method, request.path, request.body, who)
            if kind_of(request) not in ("event", "list"):
                self.say(f"did {name} -> {answer[0]}")
            if self._loses_answer:
                self._loses_answer, how = False, "lost after"
            if how == "failed":
                _end(outcome, (500, b'{"message":"etcdserver: leader changed"}'))
            elif how == "lost after":
                _end(outcome, ResponseLostError(f"{name}: the connection broke before the response"))
            elif how != "unanswered":
                latency = _LATENCY_SECONDS * self._rng.random()
                self.loop.call_later(latency, _end, outcome, answer)

    # -- watches ------------------------------------------------------------------------------------------------

    async def open(self, path: str, params: dict[str, str]) -> _Stream:
        """Open a watch."""
        await asyncio.sleep(_LATENCY_SECONDS * self._rng.random())
        if self.is_away:
            raise ServerUnavailableError(f"WATCH {path}: {_AWAY}")
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
        """Remove a watch that its reader has left."""
        self._streams[stream.path].remove(stream)
        stream.collection.listeners.remove(stream.on_change)

    def due(self, path: str) -> float:
        """Return when a change of now arrives at the watch of a resource."""
        now = self.loop.virtual_now
        return max(now + _LATENCY_SECONDS * self._rng.random(), self._stalled.get(path, 0.0))

    def delivered(self, version: int) -> None:
        """Note that an event has arrived."""
        if version < self._delivered:
            self.counts.add("watch reordered")
        self._delivered = max(self._delivered, version)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request on its way, its planned fault, and the life of the operator that sent it."""

    request: ApiRequest
    how: str
    life: int


class _Stream:
    """One watch: lines, each with its arrival time; the order of lines never changes."""

    def __init__(self, network: Network, path: str, collection: Collection) -> None:
        self.path = path
        self.collection = collection
        self._network = network
        self._lines: deque[tuple[float, int, bytes]] = deque()
        self._news = asyncio.Event()
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
        self._news.set()

    def end(self, fault: Exception | None) -> None:
        """Break, or end regularly; what has not arrived is lost."""
        self._ended, self._fault = True, fault
        self._lines.clear()
        self._news.set()

    def hurry(self) -> None:
        """Deliver everything now."""
        now = self._network.loop.virtual_now
        self._lines = deque((min(due, now), version, line) for due, version, line in self._lines)
        self._news.set()

    async def readany(self) -> bytes:
        """Return what has arrived; empty at the end."""
        while True:
            self._news.clear()
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
                timer = self._network.loop.call_at(self._lines[0][0], self._news.set)
                try:
                    await self._news.wait()
                finally:
                    timer.cancel()
            else:
                await self._news.wait()


class ModelConnection(ApiConnection):
    """The operator's connection on top of the simulated network.

    Attributes:
        is_dead: Whether the process is gone.
    """

    def __init__(self, network: Network, clock: LoopClock) -> None:
        super().__init__(_NoAccess(), ConnectionOptions(), clock)
        self._network = network
        self.is_dead = False

    async def _send(self, request: ApiRequest, deadline: float) -> tuple[int, float | None, bytes]:
        if self.is_dead:
            raise ServerUnavailableError("the process is gone")
        self.requests += 1
        return await self._network.carry(request, deadline)

    @asynccontextmanager
    async def stream(
        self, path: str, params: tuple[tuple[str, str], ...], idle_seconds: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a watch."""
        del idle_seconds
        opened = await self._network.open(path, dict(params))
        try:
            yield cast("aiohttp.StreamReader", opened)
        finally:
            self._network.close(opened)


class _NoAccess(ClusterAccess):
    """Credentials that are never checked."""

    base_url = "http://model"
    ssl_context = None
    proxy = None

    async def authorization(self) -> str | None:
        return None


def _end(outcome: asyncio.Future[Answer], result: Answer | Exception) -> None:
    if outcome.done():
        return
    if isinstance(result, Exception):
        outcome.set_exception(result)
    else:
        outcome.set_result(result)
