"""Tests of the stream of documents: whole documents first, then changes, to a bounded number of viewers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bayplan.page.page_documents import KEEP_ALIVE, DocumentStream, PageDocuments, Viewer, ViewersLimitError

from tests.support.builders import node, pod
from tests.support.gangs import settle
from tests.support.page_world import PageWorld

ALL = ("overview", "pending", "gangs", "reservations", "profiles", "rates", "nodes", "watches")


@pytest.fixture
def world() -> PageWorld:
    """Return a cluster with two nodes."""
    made = PageWorld()
    made.rig.add(*(node(name, allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}) for name in "ab"))
    return made


@pytest.fixture
def stream(world: PageWorld) -> DocumentStream:
    """Return a stream for two viewers, whose documents the test refreshes."""
    return PageDocuments(world.sources, 2).stream


async def read_events(viewer: Viewer) -> list[tuple[str, dict[str, Any]]]:
    """Return names and data of the pending events."""
    events: AsyncIterator[bytes] = viewer.events(0.001)
    text = (await anext(events)).decode()
    found = []
    for event in filter(None, text.split("\n\n")):
        name, _, data = event.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def test_the_first_events_are_whole_documents(stream: DocumentStream) -> None:
    """A viewer first gets whole documents of its panels, and a later viewer gets those already built."""
    viewer = stream.join(ALL)
    await stream.refresh()
    assert sorted(name for name, _ in await read_events(viewer)) == sorted(ALL)
    other = stream.join(("nodes",))
    await stream.refresh()
    assert [(name, data["names"]) for name, data in await read_events(other)] == [("nodes", ["a", "b"])]
    assert await read_events(viewer) == []


async def test_only_changes_are_sent(stream: DocumentStream, world: PageWorld) -> None:
    """Elapsed time is not sent as a change, and a pod on a node is sent as a change of that node."""
    viewer = stream.join(("overview", "nodes"))
    await stream.refresh()
    await read_events(viewer)
    world.clock.advance(2)
    await stream.refresh()
    assert await read_events(viewer) == []
    world.add(pod("one", requests={"cpu": "1"}, node_name="b"))
    world.clock.advance(2)
    await stream.refresh()
    found = dict(await read_events(viewer))
    assert found["nodesDelta"]["nodes"] == [[1, 1, [250, 0, 100]]]
    assert found["overview"]["pods"] == 1
    world.rig.add(node("c"))
    world.clock.advance(2)
    await stream.refresh()
    assert dict(await read_events(viewer))["nodes"]["names"] == ["a", "b", "c"]


async def test_a_document_is_built_once_in_its_interval(stream: DocumentStream, world: PageWorld) -> None:
    """A document is built once in its interval, and later changes wait for the end of the interval."""
    viewer = stream.join(("pending",))
    assert await stream.refresh() == 2.0
    await read_events(viewer)
    world.add(pod("stranger", scheduler_name="nightly"))
    world.clock.advance(1)
    assert await stream.refresh() == 1.0
    assert await read_events(viewer) == []
    assert json.loads(await stream.document("pending"))["total"] == 0
    world.clock.advance(1)
    await stream.refresh()
    assert dict(await read_events(viewer))["pending"]["total"] == 1


async def test_a_slow_viewer_gets_the_newest_documents(stream: DocumentStream, world: PageWorld) -> None:
    """Unread changes of the node map are replaced by the whole map."""
    viewer = stream.join(("pending", "nodes"))
    await stream.refresh()
    for number in range(3):
        world.add(pod(f"pod-{number}", requests={"cpu": "1"}, node_name="a"), pod(f"s-{number}", scheduler_name="x"))
        world.clock.advance(5)
        await stream.refresh()
    found = await read_events(viewer)
    assert [(name, data.get("pods"), data.get("total")) for name, data in found] == [
        ("pending", None, 3),
        ("nodes", [3, 0], None),
    ]


async def test_the_number_of_viewers_is_limited(stream: DocumentStream) -> None:
    """A viewer beyond the limit is rejected until another viewer leaves."""
    first = stream.join(ALL)
    stream.join(ALL)
    with pytest.raises(ViewersLimitError):
        stream.join(ALL)
    stream.leave(first)
    stream.join(ALL)
    assert stream.viewers == 2


async def test_nothing_is_built_without_viewers(stream: DocumentStream) -> None:
    """Without viewers no document is built."""
    assert await stream.refresh() == float("inf")
    assert stream.turns.spent == 0.0


async def test_keep_alive(stream: DocumentStream, world: PageWorld) -> None:
    """A keep-alive comment is sent after 15 s without an event, and the stream ends when the server stops."""
    viewer = stream.join(("rates",))
    events = viewer.events(0.001)
    assert await anext(events) == b""
    world.clock.advance(15)
    assert await anext(events) == KEEP_ALIVE
    stream.close()
    assert [event async for event in events] == []


async def fail(turns: object) -> None:
    """Build no document."""
    raise RuntimeError("broken")


FAILED = ("failure", {"panel": "pending", "error": "internal error: RuntimeError: broken; please report it"})


async def test_a_panel_that_fails_does_not_end_the_stream(
    stream: DocumentStream, world: PageWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of a panel is logged and sent once, and the other panels continue."""
    monkeypatch.setattr(stream._panels["pending"], "build", fail)
    viewer = stream.join(("pending", "gangs"))
    await stream.refresh()
    world.clock.advance(20)
    await stream.refresh()
    events = await read_events(viewer)
    assert [name for name, _ in events] == ["gangs", "failure"]
    assert events[1] == FAILED
    assert [record.message for record in caplog.records] == [
        "the panel pending of the page cannot be built; please report this bug"
    ]


async def test_a_document_ends_the_failure_of_its_panel(
    stream: DocumentStream, world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later viewer receives the last document and the failure; the next document is sent even if it is unchanged."""
    viewer = stream.join(("pending",))
    await stream.refresh()
    first = await read_events(viewer)
    with monkeypatch.context() as patch:
        patch.setattr(stream._panels["pending"], "build", fail)
        world.clock.advance(5)
        await stream.refresh()
        assert await read_events(viewer) == [FAILED]
        later = stream.join(("pending",))
        await stream.refresh()
        assert await read_events(later) == [*first, FAILED]
    world.clock.advance(20)
    await stream.refresh()
    assert await read_events(viewer) == first
    assert await read_events(later) == first
    world.clock.advance(5)
    await stream.refresh()
    assert await read_events(viewer) == []


async def test_documents_of_many_pods_are_built_in_turns(stream: DocumentStream, world: PageWorld) -> None:
    """A document of many pods is built in turns while the scheduler runs."""
    world.add(*(pod(f"large-{number}", requests={"cpu": "9"}) for number in range(200)))
    viewer = stream.join(("pending",))
    await stream.refresh()
    await settle(world.rig)
    world.clock.advance(10)
    await stream.refresh()
    assert dict(await read_events(viewer))["pending"]["groups"][0]["count"] == 200
