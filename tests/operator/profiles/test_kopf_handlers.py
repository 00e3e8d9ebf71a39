"""Tests of kopf's settings, credentials and handlers."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import kopf
import pytest
from bayplan.kube.credentials import Credentials
from bayplan.kube.kubeconfig_access import ConfiguredAccess
from bayplan.profiles.kopf_handlers import EndlessBackoff, connection_info, handler_registry, operator_settings
from bayplan.resources.object_store import Body
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile

from tests.support.certificates import Authority


def test_kopf_neither_posts_nor_gives_up() -> None:
    """It writes no events, never kills the process, and its retries never end."""
    settings = operator_settings()
    assert not settings.posting.enabled
    assert settings.process.ultimate_exiting_timeout is None
    assert settings.queueing.worker_limit is None
    assert isinstance(settings.networking.error_backoffs, EndlessBackoff)


def test_backoffs_grow_to_a_bound_and_never_end() -> None:
    """After a thousand attempts there is another one, and none waits long."""
    delays = list(itertools.islice(EndlessBackoff(), 1000))
    assert len(delays) == 1000
    assert delays[0] <= 0.5
    assert 4 <= delays[-1] <= 8


class Watcher:
    """Records the events that it receives."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, type[CustomResource], Body]] = []

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        self.calls.append(("seen", kind, body))

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        self.calls.append(("gone", kind, body))


def _access(credentials: Credentials) -> ConfiguredAccess:
    async def reload() -> None:
        """Do nothing: there is nothing to reload."""

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
    """PodGroups go to the receiver of groups, profiles to that of profiles, and no event goes to both."""
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


async def test_kopf_uses_the_operators_credentials() -> None:
    """Its connection goes to the same server, with the same token."""
    credentials = Credentials()
    credentials.host = "http://127.0.0.1:1"
    credentials.api_key = {"BearerToken": "Bearer secret"}
    credentials.verify_ssl = False
    info = await connection_info(_access(credentials))
    assert (info.server, info.scheme, info.token, info.insecure) == ("http://127.0.0.1:1", "Bearer", "secret", True)


async def test_kopf_verifies_with_an_inline_authority() -> None:
    """A certificate authority that is inline in the kubeconfig verifies kopf's connection too."""
    credentials = Credentials(host="https://127.0.0.1:1", ca_cert_data=Authority().certificate)
    info = await connection_info(_access(credentials))
    assert len(info.as_ssl_context().get_ca_certs()) == 1
