"""Tests of the start and stop of the operator without a cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from bayplan import app
from bayplan.app import Operator
from bayplan.kube.credentials import ConfiguredAccess, Credentials
from bayplan.kube.http.connection import ApiRequest, Lane
from bayplan.kube.leader_election import NotLeadingError
from bayplan.profiles.profile_sources import ProfileSource
from bayplan.settings.operator_settings import load_settings
from bayplan.wiring import build_parts

from scheduler_core.config.profile_config import Extender
from scheduler_core.errors import ExtenderError
from scheduler_core.ports import Binding
from scheduler_core.queueing.scheduling_queue import QueueReadings
from tests.support.fake_api import FakeApi
from tests.support.tables import table


async def fail() -> None:
    """Raise an error, as a faulty core task does."""
    raise RuntimeError("a fault")


def access_to(url: str = "http://127.0.0.1:1") -> ConfiguredAccess:
    """Return access with credentials that never change; by default to a server that does not exist."""

    async def reload() -> None: ...

    credentials = Credentials()
    credentials.host = url
    return ConfiguredAccess(credentials, reload)


async def test_a_failed_core_task_ends_the_process(caplog: pytest.LogCaptureFixture) -> None:
    """A failed core task ends the process with exit code 1, a log message and a bounded shutdown."""
    limits: list[float] = []
    async with FakeApi() as api:
        settings = load_settings({"serve_address": "", "graceful_stop_seconds": 3})
        parts = build_parts(settings, access_to(api.base_url))
        operator = Operator(parts, settings, limits.append)
        operator._spawn("scheduler", fail())
        with caplog.at_level(logging.CRITICAL):
            assert await operator.run() == 1
    assert limits == [3.0]
    assert "The scheduler failed unexpectedly" in caplog.text


async def test_probes_are_served_without_an_api_server() -> None:
    """Without an API server the HTTP server starts at its deadline, and the process is alive and not ready."""
    settings = load_settings({"serve_address": "127.0.0.1:0", "graceful_stop_seconds": 3})
    parts = build_parts(settings, access_to())
    assert parts.http is not None
    url = f"http://127.0.0.1:{parts.http.port}"
    running = asyncio.create_task(Operator(parts, settings, lambda _: None).run())
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as client,
        client.get(f"{url}/livez") as alive,
        client.get(f"{url}/readyz") as ready,
    ):
        assert (alive.status, ready.status) == (200, 503)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0


class NoProfiles(ProfileSource):
    """Source without profiles that records when the custom resources are watched."""

    def __init__(self) -> None:
        self.watched = asyncio.Event()

    def activate(self) -> None: ...

    def watches(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        self.watched.set()
        return {}


@table("is_busy, deadline", ("no pending pods", False, 3600.0), ("always pending pods", True, 0.1))
async def test_custom_resources_are_watched(monkeypatch: pytest.MonkeyPatch, is_busy: bool, deadline: float) -> None:
    """Custom resources are watched when the first pods are scheduled, or at a deadline if the queue is never empty."""
    monkeypatch.setattr(app, "_BACKLOG_SECONDS", deadline)
    monkeypatch.setattr(QueueReadings, "is_idle", property(lambda _: not is_busy))
    settings = load_settings({"serve_address": "", "graceful_stop_seconds": 3})
    profiles = NoProfiles()
    parts = replace(build_parts(settings, access_to()), profiles=profiles)
    parts.informers.synced.set()
    for groups in parts.groups.served:
        groups.settled.set()
    running = asyncio.create_task(Operator(parts, settings, lambda _: None).run())
    async with asyncio.timeout(60):
        await profiles.watched.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0


async def test_a_process_without_the_lease_writes_nothing() -> None:
    """Without the Lease the process sends no write and calls no extender to bind."""
    settings = load_settings({"serve_address": "", "leader_election": {"leader_elect": True}})
    parts = build_parts(settings, access_to())
    with pytest.raises(NotLeadingError):
        await parts.connection.request(ApiRequest("POST", "/binding", b"{}", lane=Lane.BINDS))
    client = parts.extenders.make("batch", Extender(url_prefix="http://127.0.0.1:1", bind_verb="bind"))
    with pytest.raises(ExtenderError, match="does not hold Lease"):
        await client.bind(Binding("default", "p", "uid-p", "n"))
    await client.close()
    await parts.extenders.close()
    await parts.connection.close()
