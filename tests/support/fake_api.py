"""HTTP server on loopback with scripted responses, for tests of API clients.

Chunks, disconnects and missing responses reach the client as from kube-apiserver. The responses of a method and path
are sent in order; the last one repeats.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from tests.support.background import AwaitedState


@dataclass(frozen=True)
class ReceivedRequest:
    """Received request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Body decoded as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Response:
    """Complete response.

    Attributes:
        status: HTTP status.
        body: Bytes, or a value that is encoded as JSON.
        headers: Additional headers.
        gate: Event that delays the response until it is set.
        disconnect: Whether to close the connection instead of a response.
    """

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    gate: asyncio.Event | None = None
    disconnect: bool = False

    @property
    def content(self) -> bytes:
        """Bytes of the body."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Hang:
    """Step of a stream: send nothing until the client disconnects or the server stops."""


class Disconnect:
    """Step of a stream: close the connection in the middle of the body."""


Step = bytes | asyncio.Event | Hang | Disconnect


class Stream:
    """Body of a watch response; bytes are sent as one chunk each, events are awaited, then the body ends."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps


Script = Response | Stream | Callable[[ReceivedRequest], Response | Stream]


def error_response(status: int, message: str, reason: str = "") -> Response:
    """Return an error response with a Status object."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return Response(status, {**body, "code": status})


def watch_event(kind: str, obj: Mapping[str, Any]) -> bytes:
    """Return a line of a watch."""
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


def bookmark(version: int, *, end: bool = False) -> bytes:
    """Return a bookmark; *end* marks the end of a streamed list."""
    annotations = {"k8s.io/initial-events-end": "true"} if end else {}
    return watch_event("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


def listed(*objects: Mapping[str, Any], version: int = 9) -> list[bytes]:
    """Return a complete streamed list."""
    return [*(watch_event("ADDED", each) for each in objects), bookmark(version, end=True)]


def serves(*names: str) -> Response:
    """Return the discovery document of a version."""
    return Response(body={"kind": "APIResourceList", "resources": [{"name": name, "verbs": []} for name in names]})


class FakeApi(AwaitedState):
    """Scripted API server; an asynchronous context manager.

    Attributes:
        received: Every request, in order of arrival.
        max_concurrent: Maximum number of concurrent requests by method.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: list[ReceivedRequest] = []
        self.max_concurrent: dict[str, int] = defaultdict(int)
        self._scripts: dict[tuple[str, str], list[Script]] = {}
        self._concurrent: dict[str, int] = defaultdict(int)
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._base_url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        address = self._runner.addresses[0]
        self._base_url = f"http://127.0.0.1:{address[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        assert self._runner is not None
        await self._runner.cleanup()

    def on(self, method: str, path: str, *scripts: Script) -> None:
        """Set the responses to requests with a method and path, in order; the last one repeats."""
        self._scripts[method, path] = list(scripts)

    def requests(self, method: str, path: str | None = None) -> list[ReceivedRequest]:
        """Return the received requests with a method, and with a path if it is given."""
        return [each for each in self.received if each.method == method and path in (None, each.path)]

    # -- bayplan.kube.http.connection.ClusterAccess --------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """Base URL."""
        return self._base_url

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """None, because the server uses HTTP."""
        return None

    @property
    def server_hostname(self) -> str | None:
        """None, because the server has no certificate."""
        return None

    @property
    def proxy(self) -> str | None:
        """None: requests need no proxy."""
        return None

    async def authorization(self) -> str | None:
        """Return a constant token."""
        return "Bearer fake"

    # -- responses ----------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        received = ReceivedRequest(request.method, request.path, dict(request.query), dict(request.headers), body)
        self.received.append(received)
        self._concurrent[request.method] += 1
        self.max_concurrent[request.method] = max(self.max_concurrent[request.method], self._concurrent[request.method])
        self._changed.set()
        try:
            scripts = self._scripts.get((request.method, request.path))
            if not scripts:
                answer = error_response(404, f"no response is scripted for {request.method} {request.path}")
                return web.Response(status=404, body=answer.content)
            script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
            if not isinstance(script, Response | Stream):
                script = script(received)
            if isinstance(script, Stream):
                return await self._stream(request, script)
            return await self._respond(request, script)
        finally:
            self._concurrent[request.method] -= 1
            self._changed.set()

    async def _respond(self, request: web.Request, scripted: Response) -> web.Response:
        if scripted.gate is not None:
            await self._wait(scripted.gate)
        if scripted.disconnect:
            assert request.transport is not None
            request.transport.close()
        return web.Response(
            status=scripted.status, body=scripted.content, headers=scripted.headers, content_type="application/json"
        )

    async def _stream(self, request: web.Request, stream: Stream) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for step in stream.steps:
            if isinstance(step, bytes):
                await response.write(step)
            elif isinstance(step, asyncio.Event):
                await self._wait(step)
            elif isinstance(step, Hang):
                await self._stopping.wait()
            else:
                assert request.transport is not None
                request.transport.close()
                return response
        await response.write_eof()
        return response

    async def _wait(self, gate: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(gate.wait()), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class IgnoringSink:
    """Sink of an informer that ignores every event."""

    def on_add(self, obj: object) -> None: ...

    def on_update(self, old: object, new: object) -> None: ...

    def on_delete(self, last_known: object) -> None: ...

    def on_synced(self) -> None: ...

    def on_trouble(self, reason: str) -> None: ...
