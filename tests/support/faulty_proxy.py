"""TLS proxy in front of a real API server that injects faults into single requests and watches.

A seed and the kind of a request determine its faults. The server behind the proxy is real, so tests compare what a
client assumes after a fault with what the server did.
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

from hack.controlplane.certificates import Authority
from hack.controlplane.credentials import write_kubeconfig
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK
from tests.support.proxied_requests import ProxiedRequest, RequestFault, faults_of, request_kind

_HANG_SECONDS = 30.0  # longer than any client timeout
_HANG_SECONDS_AFTER_FAULTS = 3.0
_MAX_DELAY_SECONDS = 1.5
_MEAN_WATCH_SECONDS = 2.5
_STALL_SECONDS = (0.5, 4.0)
_START_SECONDS = 60.0
_DROPPED_HEADERS = {"host", "connection", "content-length", "transfer-encoding", "keep-alive"}
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
_REASONS |= {504: "Timeout"}


class WatchFault(StrEnum):
    """Way in which an open watch ends."""

    PARTIAL_LINE_AND_RESET = "partial line, then reset"
    PARTIAL_LINE_AND_END = "partial line, then end of stream"
    EXPIRED = "410 as an ERROR event"
    FAILED = "500 as an ERROR event"
    STALL = "silence, then reset"
    RESET = "reset"


class FaultyProxy:
    """Proxy of an API server; a context manager.

    Args:
        directory: Directory for the kubeconfig and the certificates.

    Attributes:
        kubeconfig: Kubeconfig of the administrator with the proxy's address.
        fault_counts: Number of injected faults by kind of request and fault.
    """

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig-of-the-proxy"
        self.fault_counts: Counter[tuple[str, str]] = Counter()
        self._plane = plane
        self._upstream = plane.url
        self._directory = directory
        self._rate = 0.0
        self._watch_lag_seconds = 0.0
        self._deletion_lag_seconds = 0.0
        self._generators: dict[str, random.Random] = {}
        self._seed = 0
        self._watches: set[_Watch] = set()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._faults_stopped = asyncio.Event()
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
        """Inject faults into a share *rate* of the requests, and end every watch after a random time."""
        self._loop.call_soon_threadsafe(self._set_faults, seed, rate)

    def stop_faults(self) -> None:
        """Inject no more faults; requests without a response are reset after 3 s."""
        self._loop.call_soon_threadsafe(self._set_faults, 0, 0.0)

    def lag(self, watch_seconds: float, deletion_seconds: float) -> None:
        """Delay all events of watches, and the responses to deletions of pods, from the next watch and request on."""
        self._watch_lag_seconds, self._deletion_lag_seconds = watch_seconds, deletion_seconds

    def _set_faults(self, seed: int, rate: float) -> None:
        self._seed, self._rate = seed, rate
        self._generators.clear()
        if not rate:
            self._faults_stopped.set()
            return
        self._faults_stopped.clear()
        for watch in self._watches:
            self._schedule_end(watch)

    def _random(self, kind: str) -> random.Random:
        if kind not in self._generators:
            self._generators[kind] = random.Random(f"{self._seed} {kind}")
        return self._generators[kind]

    def _run(self) -> None:
        # The runner finishes cancelled requests before it closes the loop; otherwise their sockets would leak.
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
        proxied = ProxiedRequest(request.method, request.path, "watch" in request.query)
        kind = request_kind(proxied)
        fault, generator = None, self._random(kind)
        if generator.random() < self._rate:
            fault = generator.choice(faults_of(kind))
            self.fault_counts[kind, fault] += 1
        body = await request.read()
        if fault is None:
            response = await (self._watch(request) if proxied.is_watch else self._forward(request, body))
            if self._deletion_lag_seconds and request.method == "DELETE" and "/pods/" in request.path:
                await asyncio.sleep(self._deletion_lag_seconds)
            return response
        if fault.status and not fault.is_applied:
            return _error_response(fault.status)
        if fault is RequestFault.RESET:
            return _reset(request)
        if fault is RequestFault.DELAYED:
            await asyncio.sleep(generator.uniform(0.05, _MAX_DELAY_SECONDS))
            return await (self._watch(request) if proxied.is_watch else self._forward(request, body))
        await self._forward(request, body)
        if fault is RequestFault.APPLIED_AND_SILENT:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._faults_stopped.wait(), _HANG_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _HANG_SECONDS_AFTER_FAULTS)
        return _error_response(fault.status) if fault.status else _reset(request)

    def _upstream_request(self, request: web.Request, body: bytes | None) -> aiohttp.client._RequestContextManager:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED_HEADERS}
        url = URL(self._upstream + request.raw_path, encoded=True)
        return self._session.request(request.method, url, headers=headers, data=body or None)

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        async with self._upstream_request(request, body) as upstream:
            return web.Response(status=upstream.status, body=await upstream.read(), headers=_response_headers(upstream))

    # -- watches ------------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        async with self._upstream_request(request, None) as upstream:
            response = web.StreamResponse(status=upstream.status, headers=_response_headers(upstream))
            await response.prepare(request)
            watch = _Watch(request, response, upstream.content, self._watch_lag_seconds)
            self._watches.add(watch)
            if self._rate:
                self._schedule_end(watch)
            try:
                fault = await watch.run()
                if fault is not None:
                    self.fault_counts["watch", fault] += 1
                    await self._end_watch(watch, fault)
            finally:
                self._watches.discard(watch)
            return response

    def _schedule_end(self, watch: _Watch) -> None:
        generator = self._random("open watch")
        fault = generator.choice(list(WatchFault))
        self._loop.call_later(generator.expovariate(1.0 / _MEAN_WATCH_SECONDS), self._end_if_faulty, watch, fault)

    def _end_if_faulty(self, watch: _Watch, fault: WatchFault) -> None:
        if self._rate:
            watch.end(fault)

    async def _end_watch(self, watch: _Watch, fault: WatchFault) -> None:
        if fault is WatchFault.STALL:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._faults_stopped.wait(), self._random("stall").uniform(*_STALL_SECONDS))
        if fault in (WatchFault.EXPIRED, WatchFault.FAILED) and watch.at_line_start:
            status = 410 if fault is WatchFault.EXPIRED else 500
            event = {"type": "ERROR", "object": json.loads(_status_body(status))}
            await watch.response.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
            await watch.response.write_eof()
        elif fault is WatchFault.PARTIAL_LINE_AND_END:
            await watch.response.write_eof()
        else:
            _reset(watch.request)


class _Watch:
    """Forwarded watch, until the server, the client or a fault ends it."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, source: aiohttp.StreamReader, lag_seconds: float
    ) -> None:
        self.request = request
        self.response = response
        self.at_line_start = True
        self._source = source
        self._lag_seconds = lag_seconds
        self._arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._fault: WatchFault | None = None
        self._fault_set = asyncio.Event()

    def end(self, fault: WatchFault) -> None:
        """End the watch with a fault; a partial line is written when the next line arrives."""
        self._fault = fault
        self._fault_set.set()

    async def run(self) -> WatchFault | None:
        """Forward the watch; return the fault that ended it, None if the server ended it."""
        fault_set = asyncio.ensure_future(self._fault_set.wait())
        pumping = asyncio.ensure_future(self._pump())
        reading = asyncio.ensure_future(self._next())
        try:
            while True:
                await asyncio.wait({reading, fault_set}, return_when=asyncio.FIRST_COMPLETED)
                is_partial = self._fault in (WatchFault.PARTIAL_LINE_AND_RESET, WatchFault.PARTIAL_LINE_AND_END)
                if self._fault is not None and not is_partial:
                    return self._fault
                chunk = await reading
                reading = asyncio.ensure_future(self._next())
                if not chunk:
                    await self.response.write_eof()
                    return None
                await self.response.write(chunk[: len(chunk) // 2] if is_partial else chunk)
                if is_partial:
                    return self._fault
                self.at_line_start = chunk.endswith(b"\n")
        finally:
            fault_set.cancel()
            reading.cancel()
            pumping.cancel()
            await asyncio.gather(fault_set, reading, pumping, return_exceptions=True)

    async def _pump(self) -> None:
        """Read all chunks as they arrive, with the time at which each is forwarded."""
        loop, chunk = asyncio.get_running_loop(), b" "
        while chunk:
            try:
                chunk = await self._source.readany()
            except aiohttp.ClientError:
                chunk = b""
            self._arrived.put_nowait((loop.time() + self._lag_seconds, chunk))

    async def _next(self) -> bytes:
        due, chunk = await self._arrived.get()
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        return chunk


def _response_headers(upstream: aiohttp.ClientResponse) -> dict[str, str]:
    # The API server compresses large lists, such as the list of CustomResourceDefinitions.
    names = ("Content-Type", "Content-Encoding", "Retry-After")
    return {name: upstream.headers[name] for name in names if name in upstream.headers}


def _status_body(status: int) -> bytes:
    reason = _REASONS[status]
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "injected fault",
        "reason": reason,
    }
    return json.dumps(document | {"code": status}).encode()


def _error_response(status: int) -> web.Response:
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.Response(status=status, body=_status_body(status), headers=headers, content_type="application/json")


def _reset(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
