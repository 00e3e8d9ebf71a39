"""Tests of Informer against a scripted API server: lists, watches, and their failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.informer import Informer, InformerOptions, Resource, list_objects

from scheduler_core.errors import ClusterWriteError, ForbiddenError
from scheduler_core.model.pod import Pod
from tests.operator.kube.conftest import InstantClock
from tests.support.background import AwaitedState, running
from tests.support.fake_api import (
    Disconnect,
    FakeApi,
    Hang,
    Response,
    Step,
    Stream,
    bookmark,
    error_response,
    watch_event,
)
from tests.support.tables import table

PODS = "/api/v1/pods"


class RecordingSink(AwaitedState):
    """Sink that records its calls and lets a test wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.failing = ""

    def on_add(self, obj: Pod) -> None:
        self._record(f"+{obj.metadata.name}@{obj.metadata.resource_version}")

    def on_update(self, old: Pod, new: Pod) -> None:
        self._record(f"{old.metadata.name}@{old.metadata.resource_version}>{new.metadata.resource_version}")

    def on_delete(self, last_known: Pod) -> None:
        self._record(f"-{last_known.metadata.name}@{last_known.metadata.resource_version}")

    def on_synced(self) -> None:
        self._record("synced")

    def on_trouble(self, reason: str) -> None: ...

    def _record(self, what: str) -> None:
        self.calls.append(what)
        self._changed.set()
        if what == self.failing:
            raise RuntimeError("the sink has a bug")

    async def until_called(self, what: str) -> None:
        await self.until(lambda: what in self.calls)


def pod(name: str, version: int, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "n", "uid": more.pop("uid", f"uid-{name}"), "resourceVersion": str(version)}
    return {"metadata": meta, **more}


def added(name: str, version: int, **more: Any) -> bytes:
    return watch_event("ADDED", pod(name, version, **more))


def page(version: int, *pods: dict[str, Any], token: str = "") -> Response:
    return Response(body={"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(pods)})


EXPIRED = watch_event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
HANG = Hang()


class World:
    """API server with pods, and an informer of them that calls a recording sink."""

    def __init__(self, api: FakeApi, connection: ApiConnection, clock: InstantClock) -> None:
        self.api = api
        self.connection = connection
        self.clock = clock
        self.sink = RecordingSink()

    def serve(self, *responses: Response | Stream) -> None:
        """Script the responses to the requests of the informer."""
        self.api.on("GET", PODS, *responses)

    @asynccontextmanager
    async def running(
        self, options: InformerOptions | None = None, resource: Resource | None = None
    ) -> AsyncIterator[Informer[Pod]]:
        """Run an informer until the block ends."""
        options = options or InformerOptions(seed=1)
        informer = Informer(self.connection, resource or Resource(PODS), Pod, self.sink, self.clock, options=options)
        async with running(informer.run()):
            yield informer


@pytest.fixture
def world(api: FakeApi, connection: ApiConnection, clock: InstantClock) -> World:
    return World(api, connection, clock)


async def test_streamed_list_then_watch(world: World) -> None:
    """The initial events are the list; the same stream continues as the watch."""
    gate = asyncio.Event()
    world.serve(
        Stream(
            added("a", 1),
            added("b", 2),
            bookmark(5, end=True),
            gate,
            watch_event("MODIFIED", pod("a", 6)),
            watch_event("DELETED", pod("b", 7)),
            added("c", 8),
            HANG,
        ),
    )
    async with world.running() as informer:
        await world.sink.until_called("synced")
        assert world.sink.calls == ["+a@1", "+b@2", "synced"]
        assert informer.resource_version == "5"
        gate.set()
        await world.sink.until_called("+c@8")
        assert world.sink.calls[3:] == ["a@1>6", "-b@2", "+c@8"]
        assert sorted(informer.known) == ["n/a", "n/c"]
        assert (informer.resource_version, informer.synced, informer.restarts) == ("8", True, 0)
    [seen] = world.api.received
    assert seen.query["sendInitialEvents"] == "true"
    assert seen.query["resourceVersionMatch"] == "NotOlderThan"
    assert seen.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(seen.query["timeoutSeconds"]) <= 600


@pytest.mark.parametrize("cut", [pytest.param(size, id=f"{size}-byte-chunks") for size in (7, 64, 1000)])
async def test_chunks_cut_objects_anywhere(world: World, cut: int) -> None:
    """Objects are decoded wherever the server cuts its chunks."""
    text = added("a", 1) + added("b", 2) + bookmark(3, end=True) + watch_event("MODIFIED", pod("a", 4))
    chunks: list[Step] = [text[at : at + cut] for at in range(0, len(text), cut)]
    world.serve(Stream(*chunks, HANG))
    async with world.running():
        await world.sink.until_called("a@1>4")
    assert world.sink.calls == ["+a@1", "+b@2", "synced", "a@1>4"]


async def test_huge_object(world: World) -> None:
    """An object of 20 MiB is read, far above the stream reader's line limit."""
    huge = added("huge", 1, spec={"nodeSelector": {"k": "x" * (20 << 20)}})
    world.serve(Stream(huge, bookmark(2, end=True), HANG))
    async with world.running() as informer:
        await world.sink.until_called("synced")
        assert len(informer.known["n/huge"].spec.node_selector["k"]) == 20 << 20


@table(
    "end",
    ("clean-end", ()),
    ("disconnect", (Disconnect(),)),
    ("disconnect-inside-an-object", (added("lost", 9)[:40], Disconnect())),
    ("malformed-json", (b'{"type":"ADDED","object":{"x\n',)),
)
async def test_resumes_at_the_last_version(world: World, end: tuple[Step, ...]) -> None:
    """A new stream starts at the last version, bookmarks included, and repeats no event."""
    world.serve(Stream(added("a", 1), bookmark(5, end=True), bookmark(8), *end), Stream(added("b", 9), HANG))
    async with world.running() as informer:
        await world.sink.until_called("+b@9")
        assert (informer.restarts, informer.relists) == (1, 0)
    assert world.sink.calls == ["+a@1", "synced", "+b@9"]
    assert world.api.received[1].query["resourceVersion"] == "8"
    assert "sendInitialEvents" not in world.api.received[1].query


@table("expired", ("error-event", Stream(EXPIRED)), ("http", error_response(410, "too old")))
async def test_expired_version_relists_the_difference(world: World, expired: Any) -> None:
    """After HTTP 410 the new list is compared with the stored objects, and only the differences are delivered."""
    world.serve(
        Stream(added("same", 1), added("changed", 2), added("gone", 3), added("reborn", 4), bookmark(5, end=True)),
        expired,
        Stream(
            added("same", 1),
            added("changed", 20),
            added("reborn", 21, uid="another"),
            added("new", 22),
            bookmark(30, end=True),
            HANG,
        ),
    )
    async with world.running() as informer:
        await world.sink.until_called("-gone@3")
        assert informer.relists == 1
    assert world.sink.calls[:5] == ["+same@1", "+changed@2", "+gone@3", "+reborn@4", "synced"]
    assert world.sink.calls[5:] == ["changed@2>20", "-reborn@4", "+reborn@21", "+new@22", "-gone@3"]


async def test_interrupted_list_starts_over(world: World) -> None:
    """A streamed list that breaks is requested again; synced is called once, after the complete one."""
    world.serve(
        Stream(added("a", 1), added("gone", 2), Disconnect()),
        Stream(added("a", 1), added("b", 3), bookmark(4, end=True), HANG),
    )
    async with world.running():
        await world.sink.until_called("synced")
    assert world.sink.calls == ["+a@1", "+gone@2", "+b@3", "-gone@2", "synced"]


async def test_a_server_without_streamed_lists_is_read_in_pages(world: World) -> None:
    """A server without streamed lists is read in pages, then watched from the list's version."""
    world.serve(
        error_response(422, "sendInitialEvents is forbidden"),
        page(7, pod("a", 1), token="next"),
        page(7, pod("b", 2)),
        Stream(added("c", 8), HANG),
    )
    async with world.running(InformerOptions(page_limit=1)):
        await world.sink.until_called("+c@8")
    assert world.sink.calls == ["+a@1", "+b@2", "synced", "+c@8"]
    assert [seen.query.get("continue") for seen in world.api.received[1:3]] == [None, "next"]
    assert world.api.received[1].query["limit"] == "1"
    assert world.api.received[3].query["resourceVersion"] == "7"


async def test_expired_page_starts_the_list_over(world: World) -> None:
    """A 410 between pages starts over without the token; the difference is delivered."""
    world.serve(
        error_response(400, "unknown parameter"),
        page(7, pod("a", 1), pod("gone", 2), token="next"),
        error_response(410, "the token expired"),
        page(9, pod("a", 1), pod("b", 3)),
        Stream(HANG),
    )
    async with world.running():
        await world.sink.until_called("synced")
    assert world.sink.calls == ["+a@1", "+gone@2", "+b@3", "-gone@2", "synced"]
    assert "continue" not in world.api.received[3].query


async def test_unreadable_object_is_skipped(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An object that cannot be decoded is logged and counted; the stream continues, and its deletion is delivered."""
    world.serve(
        Stream(
            added("bad", 1, spec={"priority": "high"}),
            added("a", 2),
            bookmark(3, end=True),
            watch_event("MODIFIED", pod("a", 4, spec={"priority": []})),
            watch_event("DELETED", pod("a", 5, spec={"priority": []})),
            added("b", 6),
            HANG,
        ),
    )
    async with world.running() as informer:
        await world.sink.until_called("+b@6")
        assert (informer.decode_errors, informer.restarts) == (3, 0)
    assert world.sink.calls == ["+a@2", "synced", "-a@2", "+b@6"]
    assert "n/bad cannot be decoded" in caplog.text


async def test_sink_error_does_not_end_the_stream(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An exception in the sink is logged and counted, and the stream continues."""
    world.sink.failing = "+a@1"
    world.serve(Stream(added("a", 1), added("b", 2), bookmark(3, end=True), HANG))
    async with world.running() as informer:
        await world.sink.until_called("synced")
        assert (informer.sink_errors, informer.restarts) == (1, 0)
    assert "the sink has a bug" in caplog.text


async def test_frozen_server_is_detected(world: World) -> None:
    """When a watch is silent for longer than the idle limit, it is opened again at the last version."""
    world.serve(Stream(added("a", 1), bookmark(2, end=True), HANG), Stream(added("b", 3), HANG))
    async with world.running(InformerOptions(idle_seconds=0.1)):
        await world.sink.until_called("+b@3")
    assert world.api.received[1].query["resourceVersion"] == "2"


async def test_errors_back_off(world: World) -> None:
    """A server that returns errors is called after growing, jittered delays up to the maximum."""
    world.serve(error_response(500, "no"))
    async with world.running():
        await world.api.until(lambda: len(world.api.received) == 12)
    steps = [min(0.2 * 2**n, 30.0) for n in range(11)]
    assert all(step / 2 <= slept <= step for step, slept in zip(steps, world.clock.slept, strict=False))
    assert len(world.clock.slept) >= 11


async def test_streams_that_end_at_once_back_off(world: World) -> None:
    """A server that accepts every watch and ends it at once is called after growing delays."""
    world.serve(Stream(bookmark(1, end=True)), Stream())
    async with world.running():
        await world.api.until(lambda: len(world.api.received) == 10)
    assert world.clock.slept[7] > 5.0


async def test_backoff_starts_over_after_a_success(world: World) -> None:
    """Delays that grew during an outage are short again after a stream that delivered an event."""
    failures = [error_response(503, "away")] * 5
    world.serve(*failures, Stream(added("a", 1), bookmark(2, end=True)), error_response(503, "away"), Stream(HANG))
    async with world.running():
        await world.api.until(lambda: len(world.api.received) == 8)
    assert world.clock.slept[4] > 1.0
    assert world.clock.slept[5] <= 0.2
    assert world.sink.calls == ["+a@1", "synced"]


async def test_a_burst_yields_to_other_tasks(world: World) -> None:
    """While a burst of events is processed, other tasks run every few milliseconds."""

    class SlowSink(RecordingSink):
        def on_add(self, obj: Pod) -> None:
            until = time.perf_counter() + 0.0005
            while time.perf_counter() < until:
                pass
            super().on_add(obj)

    sink = world.sink = SlowSink()
    most_between_turns = 0

    async def other() -> None:
        nonlocal most_between_turns
        before = 0
        while "synced" not in sink.calls:
            await asyncio.sleep(0)
            most_between_turns = max(most_between_turns, len(sink.calls) - before)
            before = len(sink.calls)

    burst = b"".join(added(f"p{n}", n + 1) for n in range(200))
    world.serve(Stream(burst + bookmark(9000, end=True), HANG))
    async with world.running():
        await other()
    assert len(sink.calls) == 201
    assert most_between_turns <= 8


async def test_selectors_are_sent(world: World) -> None:
    """Field and label selectors are sent with every request."""
    world.serve(Stream(HANG))
    async with world.running(resource=Resource(PODS, "status.phase!=Failed", "app=x")):
        await world.api.until(lambda: bool(world.api.received))
    assert world.api.received[0].query["fieldSelector"] == "status.phase!=Failed"
    assert world.api.received[0].query["labelSelector"] == "app=x"


def list_page(*names: Any, token: str = "") -> Response:
    items = [{"metadata": {"name": name, "namespace": "shop"}} for name in names]
    return Response(body={"metadata": {"continue": token}, "items": items})


async def test_all_pages_are_read(api: FakeApi, connection: ApiConnection) -> None:
    """Pages are read in the server's order, each with the token of the previous page."""
    api.on("GET", PODS, list_page("a", "b", token="more"), list_page("c"))
    pods, unreadable = await list_objects(connection, PODS, Pod)
    assert ([pod.metadata.name for pod in pods], unreadable) == (["a", "b", "c"], 0)
    assert [seen.query.get("continue") for seen in api.requests("GET", PODS)] == [None, "more"]


async def test_unreadable_objects_are_counted(api: FakeApi, connection: ApiConnection) -> None:
    """An unreadable object is counted and does not hide the other objects."""
    api.on("GET", PODS, list_page("a", 5))
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
