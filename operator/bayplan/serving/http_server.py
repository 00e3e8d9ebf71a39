"""The HTTP server: ``/livez``, ``/healthz``, ``/readyz``, ``/metrics`` and additional routes.

It runs in the scheduler's event loop, so a response proves that the loop runs. Health never depends on a request to the
API server, so that an API server that hangs does not fail the probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.leader_election import LeaderEndpoint, endpoint_problem, endpoint_url
from bayplan.kube.readiness import Check, Readiness
from bayplan.serving import COMMAND_PATHS, FIT_PATH, PAGE_PATH
from bayplan.serving.authorization import AccessReviews, RequestAuthorization, local_marker
from bayplan.serving.deferred_server import Listener, ServedCertificate
from bayplan.settings.operator_settings import ServingSettings
from scheduler_core.ports import Clock

IDLE_SECONDS = 90.0
"""Maximum time that a connection may be without a complete request: before the first, during, or after the last.

kube-scheduler v1.37.1 has the same idle timeout (``apiserver/pkg/server/secure_serving.go``). aiohttp has only one
timer for all three cases.
"""


@dataclass(frozen=True, slots=True)
class Protection:
    """Certificate for HTTPS, with a clock for reloads, and authorization; without them plain HTTP for everyone."""

    certificate: ServedCertificate | None = None
    authorization: RequestAuthorization | None = None
    clock: Clock | None = None


def protection_of(
    settings: ServingSettings, certificate: ServedCertificate | None, connection: ApiConnection, clock: Clock
) -> Protection:
    own_paths = (FIT_PATH, *(("/", PAGE_PATH) if settings.serve_page else ()))
    return Protection(
        certificate,
        RequestAuthorization(AccessReviews(connection), clock, command_paths=COMMAND_PATHS, own_paths=own_paths)
        if settings.authorize_requests
        else None,
        clock,
    )


class _RequestLogger(logging.LoggerAdapter[logging.Logger]):
    """Log of aiohttp's server. A request that is not HTTP is no error of this process: anyone can send one."""

    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log an error with its traceback, but malformed requests only at level DEBUG."""
        if isinstance(kwargs.get("exc_info"), HttpProcessingError):
            self.debug(msg, *args, **kwargs)
        else:
            super().exception(msg, *args, **kwargs)


class Background(Protocol):
    """What runs while the server does."""

    def start(self) -> None:
        """Start the tasks."""

    async def stop(self) -> None:
        """End the tasks, and responses that do not end by themselves."""


class HealthServer:
    """Server of health, metrics and additional routes; it closes the sockets of ``listener`` when it stops."""

    def __init__(
        self,
        listener: Listener,
        readiness: Readiness,
        metrics: CollectorRegistry,
        routes: Iterable[web.RouteDef] = (),
        protection: Protection | None = None,
        *,
        background: Background | None = None,
    ) -> None:
        self._background = background
        self._protection = protection = protection or Protection()
        self._renewal: asyncio.Task[None] | None = None
        self._listener = listener
        self.port = listener.port
        self._readiness = readiness
        self._metrics = metrics
        authorization = protection.authorization
        middlewares = [local_marker(listener.local_names, is_authorized=authorization is not None)]
        if authorization is not None:
            middlewares.append(authorization.middleware)
        app = web.Application(middlewares=middlewares)
        app.router.add_get("/livez", self._alive)
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._scrape)
        app.router.add_routes(routes)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_RequestLogger(logging.getLogger("aiohttp.server"), {}),
            shutdown_timeout=0.5,
            keepalive_timeout=IDLE_SECONDS,
        )

    async def start(self) -> None:
        certificate, clock = self._protection.certificate, self._protection.clock
        context = None if certificate is None else certificate.context
        await self._runner.setup()
        for each in self._listener.sockets:
            await web.SockSite(self._runner, each, ssl_context=context).start()
        if certificate is not None and clock is not None:
            self._renewal = asyncio.create_task(certificate.run(clock), name="renewal of the certificate")
        if self._background is not None:
            self._background.start()

    def endpoint(self, address: str) -> LeaderEndpoint | None:
        """Return where other replicas reach this server; None if they must not connect to it."""
        certificate = self._protection.certificate
        scheme, fingerprint = ("http", "") if certificate is None else ("https", certificate.fingerprint)
        endpoint = LeaderEndpoint(endpoint_url(scheme, address, self.port), fingerprint)
        return None if endpoint_problem(endpoint) else endpoint

    async def stop(self) -> None:
        """Stop listening; requests in progress may take another half second."""
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
        if self._background is not None:
            await self._background.stop()
        await self._runner.cleanup()
        self._listener.close()

    async def _alive(self, request: web.Request) -> web.Response:
        if "verbose" in request.query:
            return _verbose(request.path.strip("/"), [Check("event loop", is_passed=True)])
        return web.Response(text="ok\n")

    async def _ready(self, request: web.Request) -> web.Response:
        if "verbose" in request.query:
            return _verbose("readyz", self._readiness.checks)
        failures = self._readiness.failures
        if failures:
            return web.Response(status=503, text="".join(f"not ready: {reason}\n" for reason in failures))
        role = self._readiness.role
        warnings = "".join(f"warning: {text}\n" for text in self._readiness.warnings(names_all=False))
        return web.Response(text=(f"ok: {role}\n" if role else "ok\n") + warnings)

    async def _scrape(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics), headers={"Content-Type": content_type})


def _line(check: Check) -> str:
    if not check.is_passed:
        return f"[-]{check.name} failed: {check.why}"
    return f"[+]{check.name}: {check.why}" if check.why else f"[+]{check.name} ok"


def _verbose(name: str, checks: Iterable[Check]) -> web.Response:
    """Return each check on its own line, as the API server does."""
    checks = list(checks)
    lines = [_line(check) for check in checks]
    is_passed = all(check.is_passed for check in checks)
    lines.append(f"{name} check {'passed' if is_passed else 'failed'}\n")
    return web.Response(status=200 if is_passed else 503, text="\n".join(lines))
