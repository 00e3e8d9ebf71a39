"""A proxy before a real API server that lets single requests go wrong, in every way that a network and a server know.

Owns a TLS server on loopback, in a thread, which passes on what it is asked, and a seeded plan of what goes wrong. It
must not know what the objects mean. Why a proxy and not a fake server: what a client believes after a fault is compared
with what a real server did.

    calm --go_wrong(seed)--> faulty: a share of the requests, and every watch sooner or later --calm()--> calm
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import threading
from collections import Counter
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

from hack.controlplane.credentials import write_kubeconfig
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK
from tests.support.certificates import Authority
from tests.support.proxied_requests import ProxiedRequest, RequestFault, faults_of, request_kind

_HANG_SECONDS = 30.0  # longer than any client waits
_HANG_SECONDS_WHEN_CALM = 3.0
_LONGEST_DELAY_SECONDS = 1.5
_WATCH_LIVES_SECONDS = 2.5
_STALL_SECONDS = (0.5, 4.0)
_START_SECONDS = 60.0
_NOT_PASSED_ON = {"host", "connection", "content-length", "transfer-encoding", "keep-alive"}
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
_REASONS |= {504: "Timeout"}


class WatchFault(StrEnum):
    """How an open watch ends."""

    HALF_A_LINE_AND_RESET = "half a line, then reset"
    HALF_A_LINE_AND_END = "half a line, then a clean end"
    EXPIRED = "410 as an ERROR event"
    FAILED = "500 as an ERROR event"
    STALL = "silence, then reset"
    RESET = "reset"


class FaultyProxy:
    """The proxy; a context manager.

    Args:
        plane: Whose API server is asked.
        directory: Where the kubeconfig and certificates are written.

    Attributes:
        kubeconfig: Of the administrator, through the proxy.
        fault_counts: How often each ill befell each kind of request.
    """

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig-of-the-proxy"
        self.fault_counts: Counter[tuple[str, str]] = Counter()
        self._plane = plane
        self._upstream = plane.url
        self._directory = directory
        self._rate = 0.0
        self._plans: dict[str, random.Random] = {}
        self._seed = 0
        self._watches: set[_Watch] = set()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._calmed = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_START_SECONDS), "the proxy does not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def inject_faults(self, seed: int, rate: float) -> None:
        """From now on a share of the requests goes wrong, as the seed has it for each kind of request."""
        self._loop.call_soon_threadsafe(self._begin, seed, rate)

    def stop_faults(self) -> None:
        """Stop all faults; requests whose response was dropped wait 3 s more."""
        self._loop.call_soon_threadsafe(self._begin, 0, 0.0)

    def _begin(self, seed: int, rate: float) -> None:
        self._seed, self._rate = seed, rate
        self._plans.clear()
        if not rate:
            self._calmed.set()
            return
        self._calmed.clear()
        for watch in self._watches:
            self._arrange_end(watch)

    def _plan(self, kind: str) -> random.Random:
        if kind not in self._plans:
            self._plans[kind] = random.Random(f"{self._seed} {kind}")
        return self._plans[kind]

    def _run(self) -> None:
        # The runner ends what is left of cancelled requests before it closes the loop; their sockets would leak.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        authority = Authority()
        certificate, key = authority.issue("localhost").write(self._directory, "proxy")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0, ssl_context=tls).start()
        url = f"https://{LOOPBACK}:{runner.addresses[0][1]}"
        write_kubeconfig(self.kubeconfig, url, authority.certificate, self._plane.admin)
        trust = ssl.create_default_context(cafile=str(self._plane.state_dir / "certs" / "apiserver.crt"))
        connector = aiohttp.TCPConnector(limit=0, ssl=trust)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        ) as self._session:
            self._ready.set()
            await self._stopping.wait()
            for watch in self._watches:
                watch.end(WatchFault.RESET)
            await runner.cleanup()

    # -- single requests ----------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = ProxiedRequest(request.method, request.path, "watch" in request.query)
        kind = request_kind(asked)
        ill, draw = None, self._plan(kind)
        if draw.random() < self._rate:
            ill = draw.choice(faults_of(kind))
            self.fault_counts[kind, ill] += 1
        body = await request.read()
        if ill is None:
            return await (self._watch(request) if asked.watches else self._pass_on(request, body))
        if ill.status and not ill.is_done:
            return _refusal(ill.status)
        if ill is RequestFault.RESET:
            return _reset(request)
        if ill is RequestFault.DELAYED:
            await asyncio.sleep(draw.uniform(0.05, _LONGEST_DELAY_SECONDS))
            return await (self._watch(request) if asked.watches else self._pass_on(request, body))
        await self._pass_on(request, body)
        if ill is RequestFault.DONE_AND_SILENT:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._calmed.wait(), _HANG_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _HANG_SECONDS_WHEN_CALM)
        return _refusal(ill.status) if ill.status else _reset(request)

    def _forwarded(self, request: web.Request, body: bytes | None) -> aiohttp.client._RequestContextManager:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        url = URL(self._upstream + request.raw_path, encoded=True)
        return self._session.request(request.method, url, headers=headers, data=body or None)

    async def _pass_on(self, request: web.Request, body: bytes) -> web.Response:
        async with self._forwarded(request, body) as answer:
            return web.Response(status=answer.status, body=await answer.read(), headers=_passed_back(answer))

    # -- watches ------------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        async with self._forwarded(request, None) as answer:
            response = web.StreamResponse(status=answer.status, headers=_passed_back(answer))
            await response.prepare(request)
            watch = _Watch(request, response, answer.content)
            self._watches.add(watch)
            if self._rate:
                self._arrange_end(watch)
            try:
                ill = await watch.run()
                if ill is not None:
                    self.fault_counts["watch", ill] += 1
                    await self._end_watch(watch, ill)
            finally:
                self._watches.discard(watch)
            return response

    def _arrange_end(self, watch: _Watch) -> None:
        plan = self._plan("open watch")
        ill = plan.choice(list(WatchFault))
        self._loop.call_later(plan.expovariate(1.0 / _WATCH_LIVES_SECONDS), self._end_if_faulty, watch, ill)

    def _end_if_faulty(self, watch: _Watch, ill: WatchFault) -> None:
        if self._rate:
            watch.end(ill)

    async def _end_watch(self, watch: _Watch, ill: WatchFault) -> None:
        if ill is WatchFault.STALL:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._calmed.wait(), self._plan("stall").uniform(*_STALL_SECONDS))
        if ill in (WatchFault.EXPIRED, WatchFault.FAILED) and watch.at_line_start:
            status = 410 if ill is WatchFault.EXPIRED else 500
            event = {"type": "ERROR", "object": json.loads(_status_body(status))}
            await watch.response.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
            await watch.response.write_eof()
        elif ill is WatchFault.HALF_A_LINE_AND_END:
            await watch.response.write_eof()
        else:
            _reset(watch.request)


class _Watch:
    """A watch that is passed on, until the server, the client or an ill ends it."""

    def __init__(self, request: web.Request, response: web.StreamResponse, source: aiohttp.StreamReader) -> None:
        self.request = request
        self.response = response
        self.at_line_start = True
        self._source = source
        self._ill: WatchFault | None = None
        self._struck = asyncio.Event()

    def end(self, ill: WatchFault) -> None:
        """Let it end like that; half a line needs a line first."""
        self._ill = ill
        self._struck.set()

    async def run(self) -> WatchFault | None:
        """Pass on; what has struck it, None when it ended by itself."""
        struck = asyncio.ensure_future(self._struck.wait())
        reading = asyncio.ensure_future(self._source.readany())
        try:
            while True:
                await asyncio.wait({reading, struck}, return_when=asyncio.FIRST_COMPLETED)
                halves = self._ill in (WatchFault.HALF_A_LINE_AND_RESET, WatchFault.HALF_A_LINE_AND_END)
                if self._ill is not None and not halves:
                    return self._ill
                chunk = await reading
                reading = asyncio.ensure_future(self._source.readany())
                if not chunk:
                    await self.response.write_eof()
                    return None
                await self.response.write(chunk[: len(chunk) // 2] if halves else chunk)
                if halves:
                    return self._ill
                self.at_line_start = chunk.endswith(b"\n")
        finally:
            struck.cancel()
            reading.cancel()
            await asyncio.gather(struck, reading, return_exceptions=True)


def _passed_back(answer: aiohttp.ClientResponse) -> dict[str, str]:
    # The API server compresses large lists, such as that of all definitions.
    passed = ("Content-Type", "Content-Encoding", "Retry-After")
    return {name: answer.headers[name] for name in passed if name in answer.headers}


def _status_body(status: int) -> bytes:
    reason = _REASONS[status]
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "by the plan", "reason": reason}
    return json.dumps(document | {"code": status}).encode()


def _refusal(status: int) -> web.Response:
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.Response(status=status, body=_status_body(status), headers=headers, content_type="application/json")


def _reset(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
