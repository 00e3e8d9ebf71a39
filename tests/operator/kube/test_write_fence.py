"""No write requested before the loss of the Lease is sent after it, whatever it waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from bayplan.kube.controller_revisions import ControllerRevision, ControllerRevisions
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube.http.connection import ApiConnection, ApiRequest, ConnectionOptions, Lane
from bayplan.kube.write_fence import NotLeadingError
from bayplan.kube.writes.api_dispatcher import DispatcherOptions
from bayplan.kube.writes.cluster_writer import KubeWriter, WriterOptions
from bayplan.kube.writes.storage_writes import StorageWrites

from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import PodCondition
from scheduler_core.model.storage import PersistentVolumeClaim
from scheduler_core.ports import Binding, Event, ObjectReference, PodDeletion, PodStatusPatch
from tests.operator.kube.conftest import HastyClock
from tests.support.fake_api import Answer, FakeApi
from tests.support.virtual_clock import VirtualClock

PATH = "/api/v1/namespaces/n/pods/a/binding"
BIND = ApiRequest("POST", PATH, b"{}", lane=Lane.BINDS)
CONDITION = PodCondition("PodScheduled", "False", "Unschedulable", "no")


class Fence:
    """The right to write.

    Attributes:
        is_open: Whether this process leads.
        passes: How often the fence still passes while it is open; None for no limit.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.passes: int | None = None

    def __call__(self) -> None:
        if self.passes is not None:
            self.passes -= 1
        if not self.is_open or (self.passes is not None and self.passes < 0):
            raise NotLeadingError("lost")


class NapClock(VirtualClock):
    """A clock that reports when a task sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Record the call, and sleep."""
        self.asleep.set()
        await super().sleep(seconds)


@pytest.fixture
def fence() -> Fence:
    return Fence()


@pytest.fixture
async def connection(api: FakeApi, clock: HastyClock, fence: Fence) -> AsyncIterator[ApiConnection]:
    async with ApiConnection(api, ConnectionOptions(), clock, fence) as connection:
        yield connection


def changes(api: FakeApi) -> list[str]:
    return [f"{seen.method} {seen.path}" for seen in api.seen if seen.method != "GET"]


async def test_a_wait_for_a_pooled_connection(api: FakeApi, clock: HastyClock) -> None:
    """A bind that waited for a free connection is not sent after the Lease is lost; its connection stays usable."""
    fence, gate = Fence(), asyncio.Event()
    api.on("POST", PATH, Answer(201, gate=gate), Answer(201))
    async with ApiConnection(api, ConnectionOptions(bind_connections=1), clock, fence) as connection:
        first = asyncio.create_task(connection.request(BIND))
        await api.until(lambda: len(api.seen) == 1)
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


@pytest.mark.parametrize(
    "lane",
    [
        pytest.param(Lane.BINDS, id="over keep-alive connections"),
        pytest.param(Lane.READS, id="by the client library, as through a proxy"),
    ],
)
async def test_the_time_between_request_and_sending(
    api: FakeApi, connection: ApiConnection, fence: Fence, lane: Lane
) -> None:
    """The fence is checked again when the bytes are written: a paused process may resume there."""
    fence.passes = 1
    with pytest.raises(NotLeadingError):
        await connection.request(ApiRequest("POST", PATH, b"{}", lane=lane))
    assert changes(api) == []


async def test_a_write_that_passes_is_whole(api: FakeApi, connection: ApiConnection, fence: Fence) -> None:
    """The fence does not change the request: body, type and length arrive."""
    api.on("POST", PATH, Answer(201))
    fence.passes = 2
    await connection.request(BIND)
    [seen] = api.seen
    assert (seen.body, seen.headers["Content-Type"], seen.headers["Content-Length"]) == (b"{}", "application/json", "2")


async def test_a_wait_in_the_rate_limit(api: FakeApi) -> None:
    """A write that waited for the rate limit is not sent after the Lease is lost."""
    clock, fence = VirtualClock(), Fence()
    api.on("POST", PATH, Answer(201))
    async with ApiConnection(api, ConnectionOptions(qps=1, burst=1), clock, fence) as connection:
        await connection.request(BIND)
        second = asyncio.create_task(connection.request(BIND))
        await asyncio.sleep(0)
        fence.is_open = False
        clock.advance(1)
        with pytest.raises(NotLeadingError):
            await second
    assert len(changes(api)) == 1


async def test_a_wait_that_the_server_requests(api: FakeApi) -> None:
    """A write with the response 429 is not repeated after the Lease is lost."""
    clock, fence = NapClock(), Fence()
    api.on("POST", PATH, Answer(429, {}, {"Retry-After": "5"}), Answer(201))
    async with ApiConnection(api, ConnectionOptions(), clock, fence) as connection:
        write = asyncio.create_task(connection.request(BIND))
        await api.until(lambda: len(api.seen) == 1)
        await clock.asleep.wait()
        fence.is_open = False
        clock.advance(5)
        with pytest.raises(NotLeadingError):
            await write
    assert len(changes(api)) == 1


async def test_a_review_is_not_fenced(api: FakeApi, connection: ApiConnection, fence: Fence) -> None:
    """A standby may authenticate its callers: a review is a POST and changes nothing."""
    fence.is_open = False
    api.on("POST", "/reviews", Answer(201))
    await connection.request(ApiRequest("POST", "/reviews", b"{}", changes_nothing=True))
    assert changes(api) == ["POST /reviews"]


Send = Callable[[ApiConnection, KubeWriter], Awaitable[object]]


async def _queued(write: Callable[[], None]) -> None:
    write()


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(lambda _, writer: writer.bind(Binding("n", "a", "u", "node")), id="bind"),
        pytest.param(
            lambda _, writer: _queued(lambda: writer.patch_pod_status(PodStatusPatch("n", "a", "u", CONDITION))),
            id="pod status",
        ),
        pytest.param(
            lambda _, writer: _queued(lambda: writer.delete_pod(PodDeletion("n", "a", "u"), lambda _: None)),
            id="victim",
        ),
        pytest.param(
            lambda _, writer: _queued(
                lambda: writer.record(Event(ObjectReference("Pod", "a", "n"), "Normal", "Scheduled", "Binding", "x"))
            ),
            id="event",
        ),
        pytest.param(
            lambda connection, _: CustomResources(connection).patch_status("schedulerprofiles", "p", {"pending": 1}),
            id="profile status",
        ),
        pytest.param(
            lambda connection, _: ControllerRevisions(connection, "n").create(
                ControllerRevision(AnnotatedMeta(name="r"), 1, {})
            ),
            id="revision",
        ),
        pytest.param(lambda connection, _: ControllerRevisions(connection, "n").delete("r"), id="old revision"),
        pytest.param(
            lambda connection, _: StorageWrites(connection, 10).select_node(
                msgspec.convert({"metadata": {"name": "c", "namespace": "n"}}, PersistentVolumeClaim)
            ),
            id="claim",
        ),
    ],
)
async def test_every_kind_of_write_is_fenced(
    send: Send, api: FakeApi, connection: ApiConnection, writer: KubeWriter, fence: Fence
) -> None:
    """Without the Lease none of them is sent, neither first nor as a retry."""
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
async def writer(connection: ApiConnection, clock: HastyClock) -> AsyncIterator[KubeWriter]:
    options = DispatcherOptions(retry_initial_seconds=0.0, retry_maximum_seconds=0.0)
    writer = KubeWriter(connection, WriterOptions(dispatcher=options), clock)
    await writer.start()
    yield writer
    await writer.stop(0.0)
