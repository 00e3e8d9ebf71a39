"""The HTTP server: ``/livez``, ``/healthz``, ``/readyz`` and ``/metrics``.

Owns the listening socket and the answers. It must not know the scheduler: readiness and metrics are handed in. It runs
in the scheduler's loop, so that an answer proves that the loop turns.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from bayplan.serving.readiness import Readiness
from scheduler_core.errors import ConfigError, Problem


class HealthServer:
    """Serves health and metrics; an asynchronous context manager.

    Args:
        address: Host and port; port 0 takes a free one.
        readiness: What ``/readyz`` tells.
        metrics: What ``/metrics`` tells.
        routes: What else is served.

    Attributes:
        port: The port that is listened on.
    """

    def __init__(
        self,
        address: tuple[str, int],
        readiness: Readiness,
        metrics: CollectorRegistry,
        routes: Iterable[web.RouteDef] = (),
    ) -> None:
        self._host, self.port = address
        self._readiness = readiness
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/livez", self._alive)
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._scrape)
        app.router.add_routes(routes)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self.port).start()
        except OSError as error:
            await self._runner.cleanup()
            message = f"{self._host}:{self.port} cannot be listened on ({error}); choose another with --serve-address"
            raise ConfigError([Problem("serveAddress", message)]) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening; requests under way are given half a second."""
        await self._runner.cleanup()

    async def _alive(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        missing = self._readiness.missing
        if missing:
            return web.Response(status=503, text="".join(f"not ready: {condition}\n" for condition in missing))
        role = self._readiness.role
        return web.Response(text=f"ok: {role}\n" if role else "ok\n")

    async def _scrape(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics), headers={"Content-Type": content_type})
