"""Tests of the write fence: a write requested before the Lease is lost is not sent after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from bayplan.kube.custom_resources import ControllerRevision, ControllerRevisions, CustomResources
from bayplan.kube.http.connection import ApiConnection, ApiRequest, ConnectionOptions, Lane
from bayplan.kube.leader_election import NotLeadingError
from bayplan.kube.writes.api_dispatcher import DispatcherOptions
from bayplan.kube.writes.claim_writes import StorageWrites
from bayplan.kube.writes.cluster_writer import KubeWriter, WriterOptions

from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import PodCondition
from scheduler_core.model.storage import PersistentVolumeClaim
from scheduler_core.ports import Binding, Event, ObjectReference, PodDeletion, PodStatusPatch
from tests.operator.kube.conftest import InstantClock
from tests.support.fake_api import FakeApi, Response
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

PATH = "/api/v1/namespaces/n/pods/a/binding"
BIND = ApiRequest("POST", PATH, b"{}", lane=Lane.BINDS)
CONDITION = PodCondition("PodScheduled", "False", "Unschedulable", "no")


class Fence:
    """Scripted write fence.

    Attributes:
        is_open: Whether this process leads.
        passes: Number of calls that still pass while the fence is open; None for no limit.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.passes: int | None = None

    def __call__(self) -> None:
        if self.passes is not None:
            self.passes -= 1
        if not self.is_open or (self.passes is not None and self.passes < 0):
            raise NotLeadingError("lost")


class SleepReportingClock(VirtualClock):
    """Virtual clock that sets an event when a task sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Set the event, then sleep."""
        self.asleep.set()
        await super().sleep(seconds)


@pytest.fixture
def fence() -> Fence:
    return Fence()


@pytest.fixture
async def connection(api: FakeApi, clock: InstantClock, fence: Fence) -> AsyncIterator[ApiConnection]:
    async with ApiConnection(api, ConnectionOptions(), clock, fence) as connection:
        yield connection


def changes(api: FakeApi) -> list[str]:
    return [f"{seen.method} {seen.path}" for seen in api.received if seen.method != "GET"]


async def test_a_bind_that_waited_for_a_connection_is_fenced(api: FakeApi, clock: InstantClock) -> None:
    """A bind that waited for a connection is not sent after the Lease is lost; the connection stays usable."""
    fence, gate = Fence(), asyncio.Event()
    api.on("POST", PATH, Response(201, gate=gate), Response(201))
    async with ApiConnection(api, ConnectionOptions(bind_connections=1), clock, fence) as connection:
        first = asyncio.create_task(connection.request(BIND))
        await api.until(lambda: len(api.received) == 1)
        second = asyncio.create_task(connection.request(BIND))
        await asyncio.sleep(0)
        fence.is_open = False
        gate.set()
        await first
        with pytest.raises(NotLeadingError):
            await second
        assert len(changes(api)) == 1
        fence.is_open = True
        await connection.request(BIND)
    assert len(changes(api)) == 2


@table("lane", ("over keep-alive connections", Lane.BINDS), ("by the client library, as through a proxy", Lane.READS))
async def test_the_fence_is_checked_again_before_sending(
    api: FakeApi, connection: ApiConnection, fence: Fence, lane: Lane
) -> None:
    """The fence is checked again when the bytes are written, because a paused process may resume there."""
    fence.passes = 1
    with pytest.raises(NotLeadingError):
        await connection.request(ApiRequest("POST", PATH, b"{}", lane=lane))
    assert changes(api) == []


async def test_a_write_that_waited_for_the_rate_limit_is_fenced(api: FakeApi) -> None:
    """A write that waited for the rate limit is not sent after the Lease is lost."""
    clock, fence = VirtualClock(), Fence()
    api.on("POST", PATH, Response(201))
    async with ApiConnection(api, ConnectionOptions(qps=1, burst=1), clock, fence) as connection:
        await connection.request(BIND)
        second = asyncio.create_task(connection.request(BIND))
        await asyncio.sleep(0)
        fence.is_open = False
        clock.advance(1)
        with pytest.raises(NotLeadingError):
            await second
    assert len(changes(api)) == 1


async def test_a_retry_requested_by_the_server_is_fenced(api: FakeApi) -> None:
    """A write with response 429 is not repeated after the Lease is lost."""
    clock, fence = SleepReportingClock(), Fence()
    api.on("POST", PATH, Response(429, {}, {"Retry-After": "5"}), Response(201))
    async with ApiConnection(api, ConnectionOptions(), clock, fence) as connection:
        write = asyncio.create_task(connection.request(BIND))
        await api.until(lambda: len(api.received) == 1)
        await clock.asleep.wait()
        fence.is_open = False
        clock.advance(5)
        with pytest.raises(NotLeadingError):
            await write
    assert len(changes(api)) == 1


async def test_a_review_is_not_fenced(api: FakeApi, connection: ApiConnection, fence: Fence) -> None:
    """A standby can send a review, which is a POST that changes nothing."""
    fence.is_open = False
    api.on("POST", "/reviews", Response(201))
    await connection.request(ApiRequest("POST", "/reviews", b"{}", from_any_replica=True))
    assert changes(api) == ["POST /reviews"]


Send = Callable[[ApiConnection, KubeWriter], Awaitable[object]]


async def _queued(write: Callable[[], None]) -> None:
    write()


@table(
    "send",
    ("bind", lambda _, writer: writer.bind(Binding("n", "a", "u", "node"))),
    (
        "pod status",
        lambda _, writer: _queued(lambda: writer.patch_pod_status(PodStatusPatch("n", "a", "u", CONDITION))),
    ),
    ("victim", lambda _, writer: _queued(lambda: writer.delete_pod(PodDeletion("n", "a", "u"), lambda _: None))),
    (
        "event",
        lambda _, writer: _queued(
            lambda: writer.record(Event(ObjectReference("Pod", "a", "n"), "Normal", "Scheduled", "Binding", "x"))
        ),
    ),
    (
        "profile status",
        lambda connection, _: CustomResources(connection).replace_status("schedulerprofiles", "p", "u", {"pending": 1}),
    ),
    (
        "revision",
        lambda connection, _: ControllerRevisions(connection, "n").create(
            ControllerRevision(AnnotatedMeta(name="r"), 1, {})
        ),
    ),
    ("old revision", lambda connection, _: ControllerRevisions(connection, "n").delete("r", "u")),
    (
        "claim",
        lambda connection, _: StorageWrites(connection, 10).select_node(
            msgspec.convert({"metadata": {"name": "c", "namespace": "n"}}, PersistentVolumeClaim)
        ),
    ),
)
async def test_every_kind_of_write_is_fenced(
    send: Send, api: FakeApi, connection: ApiConnection, writer: KubeWriter, fence: Fence
) -> None:
    """Without the Lease no kind of write is sent, neither at first nor as a retry."""
    fence.is_open = False
    try:
        await send(connection, writer)
    except NotLeadingError:
        pass
    else:
        for _ in range(20):
            await asyncio.sleep(0)
        assert writer.dispatcher.retried
    await writer.stop(0.0)
    assert changes(api) == []


@pytest.fixture
async def writer(connection: ApiConnection, clock: InstantClock) -> AsyncIterator[KubeWriter]:
    options = DispatcherOptions(retry_initial_seconds=0.0, retry_maximum_seconds=0.0)
    writer = KubeWriter(connection, WriterOptions(dispatcher=options), clock)
    await writer.start()
    yield writer
    await writer.stop(0.0)


async def test_a_write_that_passes_is_unchanged(api: FakeApi, connection: ApiConnection, fence: Fence) -> None:
    """The fence does not change the body, type and length of a request."""
    api.on("POST", PATH, Response(201))
    fence.passes = 2
    await connection.request(BIND)
    [seen] = api.received
    assert (seen.body, seen.headers["Content-Type"], seen.headers["Content-Length"]) == (b"{}", "application/json", "2")
