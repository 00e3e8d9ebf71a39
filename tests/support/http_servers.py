"""The operator's HTTP server on a free port of loopback: in the test's event loop, or in a thread of its own.

Tests of commands use the thread, because commands run their own event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web
from bayplan.kube.readiness import Readiness
from bayplan.serving import FIT_PATH
from bayplan.serving.authorization import RequestAuthorization, Reviews
from bayplan.serving.deferred_server import Listener
from bayplan.serving.fit_endpoint import FitAccess, FitEndpoint, FitSources
from bayplan.serving.http_server import HealthServer, Protection
from prometheus_client import CollectorRegistry

from scheduler_core.ports import Clock


@asynccontextmanager
async def served(
    routes: Iterable[web.RouteDef] = (),
    readiness: Readiness | None = None,
    protection: Protection | None = None,
    metrics: CollectorRegistry | None = None,
) -> AsyncIterator[HealthServer]:
    """Serve routes in the running event loop; a process is ready unless a readiness is given."""
    server = HealthServer(
        Listener(("127.0.0.1", 0)), readiness or Readiness(()), metrics or CollectorRegistry(), routes, protection
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def authorized_fit(sources: FitSources, reviews: Reviews, clock: Clock) -> AsyncIterator[HealthServer]:
    """Serve requests of "would it fit?" by a server that trusts no caller, not even a local one."""

    def untrusted(_: object) -> bool:
        return False

    authorization = RequestAuthorization(reviews, clock, untrusted, own_paths=(FIT_PATH,))
    endpoint = FitEndpoint(sources, FitAccess(authorization, untrusted))
    async with served(endpoint.routes, sources.readiness, Protection(authorization=authorization)) as server:
        yield server


@contextmanager
def serve_in_thread(
    readiness: Readiness, routes: Iterable[web.RouteDef], protection: Protection | None = None
) -> Iterator[HealthServer]:
    """Serve routes in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = served(routes, readiness, protection)
    server = asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(60)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
