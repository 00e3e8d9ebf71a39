"""Tests of kopf's settings, credentials and handlers."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionError, web
from aiohttp.test_utils import TestServer
from bayplan.kube.credentials import ConfiguredAccess, Credentials
from bayplan.profiles.kopf_handlers import EndlessBackoff, KopfOperator, Watched, operator_settings
from bayplan.resources.object_store import Body
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile

from hack.controlplane.certificates import Authority
from tests.support.tables import table


def test_settings_of_kopf() -> None:
    """With these settings kopf records no events, never exits the process, and retries without end."""
    settings = operator_settings()
    assert not settings.posting.enabled
    assert settings.process.ultimate_exiting_timeout is None
    assert settings.queueing.worker_limit is None
    assert isinstance(settings.networking.error_backoffs, EndlessBackoff)


def test_backoffs_are_bounded_and_endless() -> None:
    """Delays never end, and none is longer than a second: a deletion is noticed with the next list."""
    delays = list(itertools.islice(EndlessBackoff(), 1000))
    assert len(delays) == 1000
    assert all(0.5 <= delay <= 1.0 for delay in delays)


KINDS: tuple[type[CustomResource], ...] = (SchedulerProfile, PluginConfig, PodGroup)


def _nothing() -> None: ...


class Watcher:
    """Watcher that records its events and their threads."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, type[CustomResource], Body]] = []
        self.threads: list[threading.Thread] = []

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        self._record("seen", kind, body)

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        self._record("gone", kind, body)

    def _record(self, call: str, kind: type[CustomResource], body: Body) -> None:
        self.calls.append((call, kind, body))
        self.threads.append(threading.current_thread())


def _access(credentials: Credentials) -> ConfiguredAccess:
    async def reload() -> None:
        """Do nothing, because the credentials never change."""

    return ConfiguredAccess(credentials, reload)


@table(
    "event, call",
    ("listed", None, "seen"),
    ("new", "ADDED", "seen"),
    ("changed", "MODIFIED", "seen"),
    ("gone", "DELETED", "gone"),
)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_event_goes_to_the_watcher_of_its_kind(
    kind: type[CustomResource], event: str | None, call: str
) -> None:
    """Each event is delivered in the scheduler's thread to the watcher of its resource, and only to that watcher."""
    watchers = {each: Watcher() for each in KINDS}
    operator = KopfOperator(_access(Credentials()), {each: Watched(watchers[each], _nothing) for each in KINDS})
    (handler,) = (
        handler
        for handler in operator.registry()._watching.get_all_handlers()
        if handler.selector is not None and kind.definition.plural in str(handler.selector)
    )
    body = {"metadata": {"name": "x"}}
    handle: Any = handler.fn
    # kopf runs a plain function in a thread of its own, in which events overtake each other.
    assert inspect.iscoroutinefunction(handle)
    await asyncio.to_thread(asyncio.run, handle(event={"type": event, "object": body}, param=handler.param))
    await asyncio.sleep(0)
    assert {each: watcher.calls for each, watcher in watchers.items() if watcher.calls} == {kind: [(call, kind, body)]}
    assert watchers[kind].threads == [threading.current_thread()]


async def test_kopf_uses_the_operators_credentials(tmp_path: Path) -> None:
    """The client of kopf uses the operator's server, token, certificate authority and TLS server name."""
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("kube.example", "192.0.2.1").write(tmp_path, "tls"))

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=request.headers["Authorization"])

    app = web.Application()
    app.router.add_get("/version", echo)
    server = TestServer(app)
    await server.start_server(ssl=context)
    credentials = Credentials(
        host=f"https://127.0.0.1:{server.port}",
        api_key={"BearerToken": "Bearer secret"},
        ca_cert_data=authority.certificate,
        tls_server_name="kube.example",
    )
    access = _access(credentials)
    session = KopfOperator(access, {}).session(await access.authorization())
    async with session.aiohttp_session as client, client.get(f"{session.server}/version") as response:
        assert await response.text() == "Bearer secret"
    await server.close()


async def test_a_session_ends_with_its_certificates(tmp_path: Path) -> None:
    """After a renewal no request is sent with the earlier certificates."""
    authority = tmp_path / "ca.crt"
    authority.write_text(Authority().certificate)
    access = _access(Credentials(host="https://127.0.0.1:1", ssl_ca_cert=str(authority)))
    async with KopfOperator(access, {}).session(None).aiohttp_session as client:
        with pytest.raises(ClientConnectionError, match="Cannot connect"):
            await client.get("https://127.0.0.1:1/")
        authority.write_text(Authority().certificate)
        await access.authorization()
        with pytest.raises(ClientConnectionError, match="renewed"):
            await client.get("https://127.0.0.1:1/")
