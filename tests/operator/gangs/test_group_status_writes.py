"""Tests of the requests that write PodGroup statuses."""

from __future__ import annotations

import asyncio

import pytest
from bayplan.gangs.group_status import GroupStatusWrite, GroupStatusWrites
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, DispatcherOptions

from scheduler_core.model.pod_group import GroupKey, GroupSource
from tests.support.fake_api import FakeApi, Response
from tests.support.virtual_clock import VirtualClock


@pytest.mark.parametrize(
    ("source", "path", "content_type"),
    [
        pytest.param(
            GroupSource.BAYPLAN,
            "/apis/bayplan.dev/v1alpha1/namespaces/default/podgroups/train/status",
            "application/merge-patch+json",
            id="bayplan",
        ),
        pytest.param(
            GroupSource.NATIVE,
            "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/train/status",
            "application/strategic-merge-patch+json",
            id="native",
        ),
    ],
)
async def test_a_write_as_sent(source: GroupSource, path: str, content_type: str) -> None:
    """A write is one patch with the UID, computed when it is sent, and is not sent if it is empty."""
    clock = VirtualClock()
    dispatcher = ApiDispatcher(DispatcherOptions(), clock, lambda: False)
    ended: list[Exception | None] = []
    all_ended = asyncio.Event()

    def end(error: Exception | None) -> None:
        ended.append(error)
        if len(ended) == 2:
            all_ended.set()

    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), clock) as connection:
        api.on("PATCH", path, Response())
        writes = GroupStatusWrites(connection, dispatcher)
        key = GroupKey(source, "default", "train")
        writes.write(GroupStatusWrite(key, "uid-1", dict, end))
        writes.write(GroupStatusWrite(key, "uid-1", lambda: {"phase": "Pending"}, end))
        async with asyncio.timeout(60):
            await all_ended.wait()
        await dispatcher.close()
    assert ended == [None, None]
    (request,) = api.requests("PATCH")
    assert request.json == {"metadata": {"uid": "uid-1"}, "status": {"phase": "Pending"}}
    assert request.headers["Content-Type"] == content_type
