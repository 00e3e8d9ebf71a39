"""Lists of the custom resources beside the watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from bayplan.object_store import Body
from bayplan.resource_lists import GROUPS, PROFILES, ResourceLists
from bayplan.resources.resource_model import CustomResource

from scheduler_core.errors import ClusterWriteError, NotFoundError, ServerUnavailableError
from tests.support.manifests import profile_manifest
from tests.support.virtual_clock import VirtualClock


class Server:
    """Lists one profile and no PluginConfig, or fails as told."""

    def __init__(self) -> None:
        self.failures: list[ClusterWriteError] = []
        self.asked = 0

    async def list(self, plural: str) -> tuple[list[dict[str, Any]], str]:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return ([profile_manifest()] if plural == "schedulerprofiles" else []), "7"


class Taker:
    """Notes the lists."""

    def __init__(self) -> None:
        self.lists: list[tuple[str, int, str]] = []

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        self.lists.append((kind.definition.plural, len(list(bodies)), resource_version))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_plugin_configs_come_first() -> None:
    """A profile that refers to a PluginConfig is never judged before it is known."""
    taker = Taker()
    await ResourceLists(PROFILES, Server(), taker, VirtualClock()).take()
    assert taker.lists == [("pluginconfigs", 0, "7"), ("schedulerprofiles", 1, "7")]


async def test_groups_are_listed_for_themselves() -> None:
    """Thousands of groups are not read for the sake of a profile."""
    taker = Taker()
    await ResourceLists(GROUPS, Server(), taker, VirtualClock()).take()
    assert taker.lists == [("podgroups", 0, "7")]


async def test_lists_are_repeated_and_taken_when_asked() -> None:
    """Between them nothing is asked of the API server; a failure is repeated soon."""
    server, taker, clock = Server(), Taker(), VirtualClock()
    lists = ResourceLists(PROFILES, server, taker, clock)
    running = asyncio.create_task(lists.run())
    await turns()
    assert server.asked == 0
    clock.advance(15)
    await turns()
    assert server.asked == 2
    server.failures.append(ServerUnavailableError("away"))
    lists.ask()
    await turns()
    assert server.asked == 3
    clock.advance(1)
    await turns()
    assert len(taker.lists) == 4
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def test_missing_definitions_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The message says what to install, and is not repeated while nothing changes."""
    lists = ResourceLists(PROFILES, Server(), Taker(), VirtualClock())
    with caplog.at_level(logging.ERROR):
        lists.tell(NotFoundError("404"))
        lists.tell(NotFoundError("404"))
    (record,) = caplog.records
    assert "kubectl apply -f crds/" in record.getMessage()
