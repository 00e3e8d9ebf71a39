"""HTTP or HTTPS extender on loopback that records its calls and returns the responses that a test sets.

The server runs in its own thread, so that tests with and without an event loop can use it. Responses may be invalid.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from hack.controlplane.certificates import KeyPair
from hack.controlplane.probes import LOOPBACK, free_port

Json = Any
Rule = Callable[[Json], "Json | Reply"]


@dataclass(frozen=True)
class Call:
    """Received request.

    Attributes:
        verb: Path after the prefix.
        body: Decoded JSON body.
        headers: Headers with names in lower case.
        connection: Port of the client, which identifies the connection.
        client: Name in the client's certificate; "" for none.
    """

    verb: str
    body: Json
    headers: dict[str, str]
    connection: int
    client: str = ""


@dataclass(frozen=True)
class Reply:
    """Response other than JSON with status 200.

    Attributes:
        status: HTTP status.
        headers: Additional headers.
        gate: Event that delays the response until it is set.
        disconnect: Whether to close the connection instead of a response.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    gate: threading.Event | None = None
    disconnect: bool = False


class ExtenderServer:
    """Extender server; a context manager.

    Args:
        pair: Certificate and key for HTTPS; None for HTTP.
        directory: Directory for the certificate.
        trusted: Path of the authority that must have signed the client's certificate; None requires no certificate.

    Attributes:
        calls: Every request, in order of arrival.
        rules: Function that returns the response, by verb; the response to other verbs is 404.
        port: Port, which stays the same when the server is restarted.
    """

    def __init__(self, pair: KeyPair | None = None, directory: Path | None = None, trusted: Path | None = None) -> None:
        self.calls: list[Call] = []
        self.rules: dict[str, Rule] = {}
        self.port = free_port()
        self._ssl: ssl.SSLContext | None = None
        if pair is not None:
            assert directory is not None
            self._directory = directory
            self._ssl = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.serve_with(pair)
            if trusted is not None:
                self._ssl.load_verify_locations(trusted)
                self._ssl.verify_mode = ssl.CERT_REQUIRED
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop = asyncio.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def serve_with(self, pair: KeyPair) -> None:
        """Use a certificate for new connections; its key has the type of the previous one."""
        assert self._ssl is not None
        self._ssl.load_cert_chain(*pair.write(self._directory, "server"))

    @property
    def url(self) -> str:
        """Base URL."""
        return f"{'https' if self._ssl else 'http'}://{LOOPBACK}:{self.port}"

    def bodies(self, verb: str) -> list[Json]:
        """Return the bodies of the calls of a verb."""
        return [call.body for call in self.calls if call.verb == verb]

    def start(self) -> None:
        """Start the server, also again after :meth:`stop`."""
        listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(listening)), daemon=True)
        self._thread.start()
        assert listening.wait(60), "the extender server does not start"

    def stop(self) -> None:
        """Close all connections and the listening socket; do nothing if the server is stopped."""
        if self._thread is not None:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)
            self._thread = None

    async def _serve(self, listening: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/{verb:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, LOOPBACK, self.port, ssl_context=self._ssl, reuse_address=True)
        await site.start()
        listening.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        verb = request.match_info["verb"]
        body = await request.read()
        assert request.transport is not None
        port = request.transport.get_extra_info("peername")[1]
        headers = {name.lower(): value for name, value in request.headers.items()}
        subject = (request.transport.get_extra_info("peercert") or {}).get("subject", ())
        client = dict(pair for group in subject for pair in group).get("commonName", "")
        self.calls.append(Call(verb, json.loads(body) if body else None, headers, port, client))
        rule = self.rules.get(verb)
        if rule is None:
            return web.Response(status=404)
        reply = rule(self.calls[-1].body)
        if not isinstance(reply, Reply):
            return web.json_response(reply)
        if reply.gate is not None:
            await asyncio.to_thread(reply.gate.wait, 120)
        if reply.disconnect:
            request.transport.close()
        return web.Response(body=reply.body, status=reply.status, headers=reply.headers)


def names_of(body: Json) -> list[str]:
    """Return the candidate names of a filter or prioritize call, sent as names or as nodes."""
    if body["NodeNames"] is not None:
        return list(body["NodeNames"])
    return [node["metadata"]["name"] for node in body["Nodes"]["items"] or ()]


def passes_only(*names: str) -> Rule:
    """Return a filter rule that lets only these nodes pass; the response has names or nodes like the request."""

    def rule(body: Json) -> Json:
        passed = [name for name in names_of(body) if name in names]
        failed = {name: "not licensed" for name in names_of(body) if name not in names}
        if body["NodeNames"] is not None:
            return {"NodeNames": passed, "FailedNodes": failed}
        items = [node for node in body["Nodes"]["items"] or () if node["metadata"]["name"] in names]
        return {"Nodes": {"items": items}, "FailedNodes": failed}

    return rule


def scores(**by_name: int) -> Rule:
    """Return a prioritize rule with these scores, 0 for other nodes; ``_`` in keywords stands for ``-``."""
    known = {name.replace("_", "-"): score for name, score in by_name.items()}
    return lambda body: [{"Host": name, "Score": known.get(name, 0)} for name in names_of(body)]
