"""Tests of list_objects against a scripted API server."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.informer import list_objects

from scheduler_core.errors import ClusterWriteError, ForbiddenError
from scheduler_core.model.pod import Pod
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table

PODS = "/api/v1/pods"


def page(*names: Any, token: str = "") -> Response:
    items = [{"metadata": {"name": name, "namespace": "shop"}} for name in names]
    return Response(body={"metadata": {"continue": token}, "items": items})


async def test_all_pages_are_read(api: FakeApi, connection: ApiConnection) -> None:
    """Pages are read in the server's order, each with the token of the previous page."""
    api.on("GET", PODS, page("a", "b", token="more"), page("c"))
    pods, unreadable = await list_objects(connection, PODS, Pod)
    assert ([pod.metadata.name for pod in pods], unreadable) == (["a", "b", "c"], 0)
    assert [seen.query.get("continue") for seen in api.requests("GET", PODS)] == [None, "more"]


async def test_unreadable_objects_are_counted(api: FakeApi, connection: ApiConnection) -> None:
    """An unreadable object is counted and does not hide the other objects."""
    api.on("GET", PODS, page("a", 5))
    pods, unreadable = await list_objects(connection, PODS, Pod)
    assert ([pod.metadata.name for pod in pods], unreadable) == (["a"], 1)


@table(
    "response, error",
    ("forbidden", error_response(403, "no"), ForbiddenError),
    ("not a list", Response(body=b"<html>"), ClusterWriteError),
)
async def test_error_responses_are_raised(
    api: FakeApi, connection: ApiConnection, response: Response, error: type[Exception]
) -> None:
    """An error response is raised to the caller."""
    api.on("GET", PODS, response)
    with pytest.raises(error):
        await list_objects(connection, PODS, Pod)
