"""Tests of kopf's settings, credentials and handlers."""

from __future__ import annotations

import inspect
import itertools
import ssl
from pathlib import Path
from typing import Any

import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from bayplan.kube.credentials import Credentials
from bayplan.kube.kubeconfig_access import ConfiguredAccess
from bayplan.profiles.kopf_handlers import EndlessBackoff, handler_registry, kopf_session, operator_settings
from bayplan.resources.object_store import Body
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile

from tests.support.certificates import Authority


def test_settings_of_kopf() -> None:
    """With these settings kopf records no events, never exits the process, and retries without end."""
    settings = operator_settings()
    assert not settings.posting.enabled
    assert settings.process.ultimate_exiting_timeout is None
    assert settings.queueing.worker_limit is None
    assert isinstance(settings.networking.error_backoffs, EndlessBackoff)


def test_backoffs_are_bounded_and_endless() -> None:
    """Delays grow up to a bound and never end."""
    delays = list(itertools.islice(EndlessBackoff(), 1000))
    assert len(delays) == 1000
    assert delays[0] <= 0.5
    assert 4 <= delays[-1] <= 8


class Watcher:
    """Watcher that records its events."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, type[CustomResource], Body]] = []

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        self.calls.append(("seen", kind, body))

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        self.calls.append(("gone", kind, body))


def _access(credentials: Credentials) -> ConfiguredAccess:
    async def reload() -> None:
        """Do nothing, because the credentials never change."""

    return ConfiguredAccess(credentials, reload)


@pytest.mark.parametrize(
    ("event", "call"),
    [
        pytest.param(None, "seen", id="listed"),
        pytest.param("ADDED", "seen", id="new"),
        pytest.param("MODIFIED", "seen", id="changed"),
        pytest.param("DELETED", "gone", id="gone"),
    ],
)
@pytest.mark.parametrize("kind", [SchedulerProfile, PluginConfig, PodGroup])
async def test_every_event_goes_to_the_watcher_of_its_kind(
    kind: type[CustomResource], event: str | None, call: str
) -> None:
    """Each event is delivered to the watcher of its resource, and only to that watcher."""
    watchers = {each: Watcher() for each in (SchedulerProfile, PluginConfig, PodGroup)}
    registry = handler_registry(_access(Credentials()))
    (handler,) = (
        handler
        for handler in registry._watching.get_all_handlers()
        if handler.selector is not None and kind.definition.plural in str(handler.selector)
    )
    body = {"metadata": {"name": "x"}}
    handle: Any = handler.fn
    # kopf runs a plain function in a thread, beside the reconcile that reads what it stores.
    assert inspect.iscoroutinefunction(handle)
    await handle(event={"type": event, "object": body}, memo=kopf.Memo(watchers=watchers))
    assert {each: watcher.calls for each, watcher in watchers.items() if watcher.calls} == {kind: [(call, kind, body)]}


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
    session = kopf_session(access, await access.authorization())
    async with session.aiohttp_session as client, client.get(f"{session.server}/version") as response:
        assert await response.text() == "Bearer secret"
    await server.close()
