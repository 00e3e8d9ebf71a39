"""Tests of ResourceLists, which list custom resources in addition to the watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from bayplan.kube.readiness import Readiness
from bayplan.profiles.profile_sources import GROUPS, PROFILES, ResourceLists
from bayplan.resources.object_store import Body
from bayplan.resources.resource_model import CustomResource

from scheduler_core.errors import ClusterWriteError, NotFoundError, ServerUnavailableError
from tests.support.manifests import profile_manifest
from tests.support.virtual_clock import VirtualClock


class Server:
    """API server with one profile and no PluginConfig, which raises scripted failures."""

    def __init__(self) -> None:
        self.failures: list[ClusterWriteError] = []
        self.requests = 0

    async def list(self, plural: str) -> tuple[list[dict[str, Any]], str]:
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)
        return ([profile_manifest()] if plural == "schedulerprofiles" else []), "7"


class Receiver:
    """Receiver that records the lists."""

    def __init__(self) -> None:
        self.lists: list[tuple[str, int, str]] = []

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        self.lists.append((kind.definition.plural, len(list(bodies)), resource_version))


async def run_loop(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_plugin_configs_are_listed_first() -> None:
    """PluginConfigs are listed before the profiles that refer to them."""
    receiver = Receiver()
    await ResourceLists(PROFILES, Server(), receiver, VirtualClock()).list_once()
    assert receiver.lists == [("pluginconfigs", 0, "7"), ("schedulerprofiles", 1, "7")]


async def test_groups_are_listed_separately() -> None:
    """Groups are listed separately, so a list of profiles does not read thousands of groups."""
    receiver = Receiver()
    await ResourceLists(GROUPS, Server(), receiver, VirtualClock()).list_once()
    assert receiver.lists == [("podgroups", 0, "7")]


async def test_lists_are_periodic_and_on_request() -> None:
    """Lists are periodic or on request, and a failed list is retried soon."""
    server, receiver, clock = Server(), Receiver(), VirtualClock()
    lists = ResourceLists(PROFILES, server, receiver, clock)
    running = asyncio.create_task(lists.run())
    await run_loop()
    assert server.requests == 0
    clock.advance(15)
    await run_loop()
    assert server.requests == 2
    server.failures.append(ServerUnavailableError("away"))
    lists.request()
    await run_loop()
    assert server.requests == 3
    clock.advance(1)
    await run_loop()
    assert len(receiver.lists) == 4
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def test_missing_crds_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A missing CRD is logged once with the remedy."""
    lists = ResourceLists(PROFILES, Server(), Receiver(), VirtualClock())
    with caplog.at_level(logging.ERROR):
        lists.log_failure(NotFoundError("404"))
        lists.log_failure(NotFoundError("404"))
    (record,) = caplog.records
    assert "kubectl apply -f crds/" in record.getMessage()


async def test_why_profiles_are_not_read_is_a_reason_of_readiness() -> None:
    """Until the profiles are read, readiness has the reason of the last failure, such as CRDs that are missing."""
    server = Server()
    server.failures = [NotFoundError("404 page not found")]
    lists = ResourceLists(PROFILES, server, Receiver(), VirtualClock())
    readiness = Readiness(("profiles are being read",))
    readiness.explain("profiles are being read", lambda: lists.last_failure)
    assert readiness.missing == ["profiles are being read"]
    with pytest.raises(NotFoundError) as caught:
        await lists.list_once()
    lists.log_failure(caught.value)
    (missing,) = readiness.missing
    assert missing.startswith("profiles are being read: Bayplan's custom resources are not installed in this cluster;")
    await lists.list_once()
    assert readiness.missing == ["profiles are being read"]
