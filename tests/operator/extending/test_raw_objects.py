"""JSON of pods, kept beside a real informer of a scripted server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from bayplan.extending.raw_objects import RawObjects, RawResource, Subscription
from bayplan.kube.connection import ApiConnection, ConnectionOptions
from bayplan.kube.informer import Informer, Resource

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.model.pod import Pod
from tests.support.fake_api import Answer, FakeApi, Hang, Stream, refusal
from tests.support.virtual_clock import VirtualClock

PODS = "/api/v1/pods"
ONE = "/api/v1/namespaces/n/pods/a"


def raw(name: str, version: int = 1, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}", "resourceVersion": str(version)}
    managed = [{"manager": "kubectl", "operation": "Update"}]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {**metadata, "managedFields": managed}, **more}


def shown(name: str, version: int = 1, **more: Any) -> dict[str, Any]:
    """The same as extenders are shown it."""
    whole = raw(name, version, **more)
    metadata = {key: value for key, value in whole["metadata"].items() if key != "managedFields"}
    return {"metadata": metadata, **more}


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


def end(version: int) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


class Nobody:
    """A sink that notes that something came."""

    def __init__(self) -> None:
        self.told = 0
        self.changed = asyncio.Event()

    def on_add(self, obj: Pod) -> None:
        self._note()

    def on_update(self, old: Pod, new: Pod) -> None:
        self._note()

    def on_delete(self, last_known: Pod) -> None:
        self._note()

    def on_synced(self) -> None: ...

    def _note(self) -> None:
        self.told += 1
        self.changed.set()


class World:
    """An informer whose watch the test writes, and what is kept of it."""

    def __init__(self, api: FakeApi, connection: ApiConnection) -> None:
        self.api = api
        self.clock = VirtualClock()
        self.sink = Nobody()
        self.informer: Informer[Pod] = Informer(connection, Resource("/watched"), Pod, self.sink, self.clock)
        self.objects = RawObjects(connection, RawResource(PODS, managed_fields=False, budget_bytes=1000), self.informer)
        self.task: asyncio.Task[None] | None = None

    async def watch(self, *lines: bytes, changes: int) -> None:
        """Run the informer until the sink was told of so many changes."""
        self.api.on("GET", "/watched", Stream(*lines, Hang()))
        self.task = asyncio.create_task(self.informer.run())
        async with asyncio.timeout(10):
            while self.sink.told < changes:
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


async def test_what_the_watch_tells_is_kept(world: World) -> None:
    """Lists, additions and changes, as kube-scheduler would write them; nothing is asked of the server for it."""
    world.objects.subscribe(EVERY)
    await world.watch(
        event("ADDED", raw("a")),
        end(5),
        event("ADDED", raw("b", 6)),
        event("MODIFIED", raw("b", 7, spec={"x": 1})),
        changes=3,
    )
    assert await world.read("a", "b") == {"n/a": shown("a"), "n/b": shown("b", 7, spec={"x": 1})}
    assert world.api.requests("GET", PODS) == []


async def test_what_goes_is_forgotten(world: World) -> None:
    """Deleted objects, and those that a wish is no longer about."""
    world.objects.subscribe(WAITING)
    await world.watch(
        event("ADDED", raw("a")),
        event("ADDED", raw("b")),
        end(5),
        event("DELETED", raw("a", 6)),
        event("MODIFIED", raw("b", 7, spec={"nodeName": "x"})),
        changes=4,
    )
    assert (len(world.objects), world.objects.stored_bytes) == (0, 0)


async def test_another_object_of_the_same_name_takes_its_place(world: World) -> None:
    """Its predecessor went while nobody looked."""
    world.objects.subscribe(EVERY)
    old, new = raw("a"), raw("a", 7)
    old["metadata"]["uid"] = "uid-before"
    await world.watch(event("ADDED", old), end(5), event("ADDED", new), changes=3)
    assert await world.read("a") == {"n/a": shown("a", 7)}
    assert world.api.requests("GET", ONE) == []


async def test_without_a_wish_nothing_is_kept(world: World) -> None:
    """Nor is anything done for it."""
    await world.watch(event("ADDED", raw("a")), end(5), changes=1)
    assert (world.informer.tap, len(world.objects)) == (None, 0)


async def test_what_came_before_the_wish_is_listed(world: World) -> None:
    """Page by page, with the wish's selector; what the watch told in another version is left to it."""
    await world.watch(event("ADDED", raw("a")), event("ADDED", raw("b", 9)), end(9), changes=2)
    first = Answer(body={"metadata": {"continue": "more"}, "items": [raw("a")]})
    world.api.on("GET", PODS, first, Answer(body={"metadata": {}, "items": [raw("b", 8), raw("c")]}))
    world.objects.subscribe(WAITING)
    assert await world.read("a") == {"n/a": shown("a")}
    assert len(world.objects) == 1
    assert [seen.query for seen in world.api.requests("GET", PODS)] == [
        {"limit": "500", "fieldSelector": "spec.nodeName="},
        {"limit": "500", "fieldSelector": "spec.nodeName=", "continue": "more"},
    ]


async def test_what_is_not_kept_is_read(world: World) -> None:
    """Beyond the budget, and where a list failed; what is gone is left out."""
    world.objects.subscribe(EVERY)
    await world.watch(event("ADDED", raw("a", spec={"pad": "x" * 2000})), end(5), changes=1)
    assert len(world.objects) == 0
    world.api.on("GET", ONE, Answer(body=raw("a", 2)))
    assert await world.read("a", "b") == {"n/a": shown("a", 2)}


async def test_a_pod_of_the_same_name_is_another_one(world: World) -> None:
    """It is not shown in the place of the one that is gone."""
    world.objects.subscribe(EVERY)
    await world.watch(event("ADDED", raw("a")), end(5), changes=1)
    world.api.on("GET", ONE, Answer(body=raw("a")))
    assert await world.objects.read([("n", "a", "uid-before")]) == {}
    assert await world.objects.read([("n", "a", "")]) != {}


async def test_a_read_that_fails_is_told(world: World) -> None:
    """What would be sent without it would be wrong."""
    world.objects.subscribe(EVERY)
    world.api.on("GET", ONE, refusal(503, "overloaded"))
    with pytest.raises(ServerUnavailableError):
        await world.read("a")


async def test_the_last_wish_ends(world: World) -> None:
    """Each takes what only it was about; with the last one everything goes and the informer is left alone."""
    await world.watch(event("ADDED", raw("a")), event("ADDED", raw("b", spec={"nodeName": "x"})), end(5), changes=2)
    world.api.on("GET", PODS, Answer(body={"metadata": {}, "items": [raw("a"), raw("b", spec={"nodeName": "x"})]}))
    other = Subscription[Pod](lambda _: True)
    world.objects.subscribe(WAITING)
    world.objects.subscribe(other)
    await world.read("a", "b")
    assert len(world.objects) == 2
    world.objects.unsubscribe(other)
    assert len(world.objects) == 1
    world.objects.unsubscribe(WAITING)
    assert (len(world.objects), world.objects.stored_bytes, world.informer.tap) == (0, 0, None)


async def test_managed_fields_are_kept_of_nodes(world: World) -> None:
    """As kube-scheduler does, which trims its pods only."""
    resource = RawResource("/api/v1/nodes", managed_fields=True)
    objects = RawObjects(world.objects._connection, resource, world.informer)
    objects.subscribe(EVERY)
    await world.watch(event("ADDED", raw("a")), end(5), changes=1)
    kept = json.loads((await objects.read([("n", "a", "")]))["n/a"])
    assert kept == {key: value for key, value in raw("a").items() if key not in {"kind", "apiVersion"}}
