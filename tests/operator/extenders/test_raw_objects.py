"""Tests of RawObjects, which store the JSON of pods, with a real informer and a scripted server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from bayplan.extenders.raw_objects import RawObjects, RawResource, Subscription
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.watches.informer import Informer, Resource

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.model.pod import Pod
from tests.support.fake_api import FakeApi, Hang, Response, Stream, bookmark, error_response, watch_event
from tests.support.virtual_clock import VirtualClock

PODS = "/api/v1/pods"
ONE = "/api/v1/namespaces/n/pods/a"


def raw(name: str, version: int = 1, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}", "resourceVersion": str(version)}
    managed = [{"manager": "kubectl", "operation": "Update"}]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {**metadata, "managedFields": managed}, **more}


def sent_json(name: str, version: int = 1, **more: Any) -> dict[str, Any]:
    """Return the JSON that extenders get."""
    whole = raw(name, version, **more)
    metadata = {key: value for key, value in whole["metadata"].items() if key != "managedFields"}
    return {"metadata": metadata, **more}


class CountingSink:
    """Sink that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.changed = asyncio.Event()

    def on_add(self, obj: Pod) -> None:
        self._note()

    def on_update(self, old: Pod, new: Pod) -> None:
        self._note()

    def on_delete(self, last_known: Pod) -> None:
        self._note()

    def on_synced(self) -> None: ...

    def on_trouble(self, reason: str) -> None: ...

    def _note(self) -> None:
        self.calls += 1
        self.changed.set()


class World:
    """Informer whose watch the test scripts, and the stored objects."""

    def __init__(self, api: FakeApi, connection: ApiConnection) -> None:
        self.api = api
        self.clock = VirtualClock()
        self.sink = CountingSink()
        self.informer: Informer[Pod] = Informer(connection, Resource("/watched"), Pod, self.sink, self.clock)
        self.objects = RawObjects(connection, RawResource(PODS, managed_fields=False, budget_bytes=1000), self.informer)
        self.task: asyncio.Task[None] | None = None

    async def watch(self, *lines: bytes, changes: int) -> None:
        """Run the informer until the sink has this number of calls."""
        self.api.on("GET", "/watched", Stream(*lines, Hang()))
        self.task = asyncio.create_task(self.informer.run())
        async with asyncio.timeout(60):
            while self.sink.calls < changes:
                self.sink.changed.clear()
                await self.sink.changed.wait()

    async def read(self, *names: str) -> dict[str, Any]:
        found = await self.objects.read(("n", name, f"uid-{name}") for name in names)
        return {key: json.loads(text) for key, text in found.items()}

    async def end(self) -> None:
        await self.objects.close()
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError):
                await self.task


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), VirtualClock()) as connection:
        world = World(api, connection)
        yield world
        await world.end()


EVERY = Subscription[Pod](lambda _: True)
WAITING = Subscription[Pod](lambda pod: not pod.spec.node_name, "spec.nodeName=")


async def test_objects_of_the_watch_are_stored(world: World) -> None:
    """Objects of the watch are stored in kube-scheduler's format, without further requests."""
    world.objects.subscribe(EVERY)
    await world.watch(
        watch_event("ADDED", raw("a")),
        bookmark(5, end=True),
        watch_event("ADDED", raw("b", 6)),
        watch_event("MODIFIED", raw("b", 7, spec={"x": 1})),
        changes=3,
    )
    assert await world.read("a", "b") == {"n/a": sent_json("a"), "n/b": sent_json("b", 7, spec={"x": 1})}
    assert world.api.requests("GET", PODS) == []


async def test_deleted_objects_are_dropped(world: World) -> None:
    """Deleted objects and objects that no subscription matches any more are dropped."""
    world.objects.subscribe(WAITING)
    await world.watch(
        watch_event("ADDED", raw("a")),
        watch_event("ADDED", raw("b")),
        bookmark(5, end=True),
        watch_event("DELETED", raw("a", 6)),
        watch_event("MODIFIED", raw("b", 7, spec={"nodeName": "x"})),
        changes=4,
    )
    assert (len(world.objects), world.objects.stored_bytes) == (0, 0)


async def test_another_object_of_the_same_name_is_stored(world: World) -> None:
    """An object replaces a deleted object of its name."""
    world.objects.subscribe(EVERY)
    old, new = raw("a"), raw("a", 7)
    old["metadata"]["uid"] = "uid-before"
    await world.watch(watch_event("ADDED", old), bookmark(5, end=True), watch_event("ADDED", new), changes=3)
    assert await world.read("a") == {"n/a": sent_json("a", 7)}
    assert world.api.requests("GET", ONE) == []


async def test_without_a_subscription_nothing_is_stored(world: World) -> None:
    """Without a subscription no object is stored."""
    await world.watch(watch_event("ADDED", raw("a")), bookmark(5, end=True), changes=1)
    assert (world.informer._raw_handler, len(world.objects)) == (None, 0)


async def test_objects_from_before_the_subscription_are_listed(world: World) -> None:
    """Existing objects are listed in pages with the subscription's selector, but stored only in the watched version."""
    await world.watch(
        watch_event("ADDED", raw("a")), watch_event("ADDED", raw("b", 9)), bookmark(9, end=True), changes=2
    )
    first = Response(body={"metadata": {"continue": "more"}, "items": [raw("a")]})
    world.api.on("GET", PODS, first, Response(body={"metadata": {}, "items": [raw("b", 8), raw("c")]}))
    world.objects.subscribe(WAITING)
    assert await world.read("a") == {"n/a": sent_json("a")}
    assert len(world.objects) == 1
    assert [seen.query for seen in world.api.requests("GET", PODS)] == [
        {"limit": "500", "fieldSelector": "spec.nodeName="},
        {"limit": "500", "fieldSelector": "spec.nodeName=", "continue": "more"},
    ]


async def test_objects_that_are_not_stored_are_read(world: World) -> None:
    """Objects beyond the budget are read from the API server, and objects that are gone are omitted."""
    world.objects.subscribe(EVERY)
    await world.watch(watch_event("ADDED", raw("a", spec={"pad": "x" * 2000})), bookmark(5, end=True), changes=1)
    assert len(world.objects) == 0
    world.api.on("GET", ONE, Response(body=raw("a", 2)))
    assert await world.read("a", "b") == {"n/a": sent_json("a", 2)}


async def test_a_pod_with_another_uid_is_not_returned(world: World) -> None:
    """A pod with another UID is not returned for a pod that is gone."""
    world.objects.subscribe(EVERY)
    await world.watch(watch_event("ADDED", raw("a")), bookmark(5, end=True), changes=1)
    world.api.on("GET", ONE, Response(body=raw("a")))
    assert await world.objects.read([("n", "a", "uid-before")]) == {}
    assert await world.objects.read([("n", "a", "")]) != {}


async def test_a_failed_read_is_raised(world: World) -> None:
    """A failed read is raised, so that no request lacks the object."""
    world.objects.subscribe(EVERY)
    world.api.on("GET", ONE, error_response(503, "overloaded"))
    with pytest.raises(ServerUnavailableError):
        await world.read("a")


async def test_the_end_of_a_subscription_drops_its_objects(world: World) -> None:
    """The end of a subscription drops the objects that only it matched."""
    await world.watch(
        watch_event("ADDED", raw("a")),
        watch_event("ADDED", raw("b", spec={"nodeName": "x"})),
        bookmark(5, end=True),
        changes=2,
    )
    world.api.on("GET", PODS, Response(body={"metadata": {}, "items": [raw("a"), raw("b", spec={"nodeName": "x"})]}))
    other = Subscription[Pod](lambda _: True)
    world.objects.subscribe(WAITING)
    world.objects.subscribe(other)
    await world.read("a", "b")
    assert len(world.objects) == 2
    world.objects.unsubscribe(other)
    assert len(world.objects) == 1
    world.objects.unsubscribe(WAITING)
    assert (len(world.objects), world.objects.stored_bytes, world.informer._raw_handler) == (0, 0, None)


async def test_managed_fields_of_nodes_are_stored(world: World) -> None:
    """Managed fields of nodes are stored, as in kube-scheduler."""
    resource = RawResource("/api/v1/nodes", managed_fields=True)
    objects = RawObjects(world.objects._connection, resource, world.informer)
    objects.subscribe(EVERY)
    await world.watch(watch_event("ADDED", raw("a")), bookmark(5, end=True), changes=1)
    stored = json.loads((await objects.read([("n", "a", "")]))["n/a"])
    assert stored == {key: value for key, value in raw("a").items() if key not in {"kind", "apiVersion"}}
