"""The operator's HTTP server in a separate thread, for tests of commands, which run their own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from aiohttp import web
from bayplan.kube.readiness import Readiness
from bayplan.serving.deferred_server import Listener
from bayplan.serving.http_server import HealthServer, Protection
from prometheus_client import CollectorRegistry


@contextmanager
def serve_in_thread(
    readiness: Readiness, routes: Iterable[web.RouteDef], protection: Protection | None = None
) -> Iterator[HealthServer]:
    """Serve routes on a free port of loopback in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> HealthServer:
        server = HealthServer(Listener(("127.0.0.1", 0)), readiness, CollectorRegistry(), routes, protection)
        await server.start()
        return server

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
