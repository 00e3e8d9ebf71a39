"""Tests of the check of the API server's version and resources; a failed lookup never ends the operator."""

from __future__ import annotations

import asyncio
import logging

import pytest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.served_apis import ServerSupport, ServerWatch

from tests.operator.kube.conftest import InstantClock
from tests.support.fake_api import FakeApi, Response, error_response, serves
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

GANGS, DEVICES = "/apis/scheduling.k8s.io/v1beta1", "/apis/resource.k8s.io/v1"


def version(minor: str, patch: str = "0") -> Response:
    return Response(body={"major": "1", "minor": minor, "gitVersion": f"v1.{minor.rstrip('+')}.{patch}"})


def newest(api: FakeApi) -> None:
    """Script a server of the newest release, with every resource."""
    api.on("GET", "/version", version("37", "1"))
    api.on("GET", GANGS, serves("workloads", "podgroups"))
    api.on("GET", DEVICES, serves("resourceclaims"))


async def looked_up(connection: ApiConnection, *, reads_pages: bool = False) -> ServerSupport:
    """Return the result of one lookup."""
    watch = ServerWatch(connection, lambda: reads_pages, VirtualClock())
    await watch.look_up()
    return watch.support


async def test_the_newest_release_has_all_resources(api: FakeApi, connection: ApiConnection) -> None:
    """For the newest release only the version is reported."""
    newest(api)
    assert await looked_up(connection) == ServerSupport("v1.37.1", is_supported=True)


@table(
    "minor, is_supported",
    ("oldest", "35", True),
    ("vendor-suffix", "36+", True),
    ("older", "34", False),
    ("newer", "38", False),
)
async def test_releases(api: FakeApi, connection: ApiConnection, minor: str, is_supported: bool) -> None:
    """A release that Bayplan is not tested with is reported as unsupported."""
    newest(api)
    api.on("GET", "/version", version(minor))
    assert (await looked_up(connection)).is_supported is is_supported


async def test_missing_resources_are_reported(api: FakeApi, connection: ApiConnection) -> None:
    """Each missing resource is reported; a served API version without the resource counts as missing."""
    api.on("GET", "/version", version("35", "4"))
    api.on("GET", GANGS, error_response(404, "the server could not find the requested resource", "NotFound"))
    api.on("GET", DEVICES, serves("deviceclasses"))
    found = await looked_up(connection, reads_pages=True)
    assert [missing.partition(":")[0] for missing in found.missing] == [
        "podgroups of scheduling.k8s.io/v1beta1",
        "resourceclaims of resource.k8s.io/v1",
        "lists by watch (feature gate WatchList)",
    ]


@table(
    "response",
    ("forbidden", error_response(403, "forbidden", "Forbidden")),
    ("unavailable", error_response(503, "later", "ServiceUnavailable")),
    ("unreadable", Response(body=["no version"])),
)
async def test_the_version_is_logged_once_and_after_an_upgrade(
    api: FakeApi, connection: ApiConnection, clock: InstantClock, caplog: pytest.LogCaptureFixture, response: Response
) -> None:
    """A failed lookup is repeated, and an unchanged result is not logged again."""
    caplog.set_level(logging.INFO)
    newest(api)
    api.on("GET", "/version", response, version("36", "3"), version("36", "3"), version("37", "1"))
    watch = ServerWatch(connection, lambda: False, clock)
    running = asyncio.create_task(watch.run())
    await api.until(lambda: len(api.requests("GET", "/version")) > 5)
    assert not running.done()
    running.cancel()
    assert watch.support.version == "v1.37.1"
    messages = [record.getMessage() for record in caplog.records if record.name == "bayplan.kube.served_apis"]
    assert messages == ["The API server is Kubernetes v1.36.3", "The API server is Kubernetes v1.37.1"]
