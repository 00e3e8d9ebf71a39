"""Tests of lists in pages, against a scripted API server."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.object_lists import list_objects

from scheduler_core.errors import ClusterWriteError, ForbiddenError
from scheduler_core.model.pod import Pod
from tests.support.fake_api import Answer, FakeApi, refusal

PODS = "/api/v1/pods"


def page(*names: Any, token: str = "") -> Answer:
    """Return a page of a list."""
    items = [{"metadata": {"name": name, "namespace": "shop"}} for name in names]
    return Answer(body={"metadata": {"continue": token}, "items": items})


async def test_all_pages_are_read(api: FakeApi, connection: ApiConnection) -> None:
    """In the server's order, each page with the token of the previous one."""
    api.on("GET", PODS, page("a", "b", token="more"), page("c"))
    pods, unreadable = await list_objects(connection, PODS, Pod)
    assert ([pod.metadata.name for pod in pods], unreadable) == (["a", "b", "c"], 0)
    assert [seen.query.get("continue") for seen in api.requests("GET", PODS)] == [None, "more"]


async def test_what_cannot_be_read_is_counted(api: FakeApi, connection: ApiConnection) -> None:
    """One unreadable object does not hide the others."""
    api.on("GET", PODS, page("a", 5))
    pods, unreadable = await list_objects(connection, PODS, Pod)
    assert ([pod.metadata.name for pod in pods], unreadable) == (["a"], 1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(refusal(403, "no"), ForbiddenError, id="not allowed"),
        pytest.param(Answer(body=b"<html>"), ClusterWriteError, id="no list"),
    ],
)
async def test_refusals_are_raised(
    api: FakeApi, connection: ApiConnection, answer: Answer, error: type[Exception]
) -> None:
    """The caller decides how to continue."""
    api.on("GET", PODS, answer)
    with pytest.raises(error):
        await list_objects(connection, PODS, Pod)
