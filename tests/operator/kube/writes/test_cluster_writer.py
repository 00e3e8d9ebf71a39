"""Tests of KubeWriter: binds together with other writes, and stopping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.writes.claim_writes import ClaimWrites
from bayplan.kube.writes.cluster_writer import KubeWriter, WriterOptions

from scheduler_core.errors import NotFoundError, ServerUnavailableError
from scheduler_core.model.pod import PodCondition
from scheduler_core.ports import Binding, Event, ObjectReference, PodDeletion, PodStatusPatch
from tests.operator.kube.conftest import InstantClock
from tests.support.devices import allocated_claim
from tests.support.fake_api import FakeApi, Response, error_response

POD = "/api/v1/namespaces/n/pods/a"
BINDING = Binding("n", "a", "uid-a", "node-1")
PATCH = PodStatusPatch("n", "a", "uid-a", PodCondition("PodScheduled", "False", "Unschedulable", "no"))
EVENTS = "/apis/events.k8s.io/v1/namespaces/n/events"
SCHEDULED = Event(ObjectReference("Pod", "a", "n"), "Normal", "Scheduled", "Binding", "assigned")


@pytest.fixture
async def writer(api: FakeApi, connection: ApiConnection, clock: InstantClock) -> AsyncIterator[KubeWriter]:
    api.on("POST", f"{POD}/binding", Response(201))
    api.on("PATCH", f"{POD}/status", Response())
    api.on("POST", EVENTS, Response(201))
    writer = KubeWriter(connection, WriterOptions(bind_limit=2), clock)
    await writer.start()
    yield writer
    await writer.stop(0.0)


def methods(api: FakeApi) -> list[str]:
    return [f"{seen.method} {seen.path.rsplit('/', 1)[1]}" for seen in api.received]


async def test_patch_in_flight_goes_before_the_bind(api: FakeApi, writer: KubeWriter) -> None:
    """A bind waits for its pod's patch in flight and drops the queued patches."""
    gate = asyncio.Event()
    api.on("PATCH", f"{POD}/status", Response(gate=gate))
    writer.patch_pod_status(PATCH)
    await api.until(lambda: len(api.received) == 1)
    writer.patch_pod_status(PATCH)
    bind = asyncio.create_task(writer.bind(BINDING))
    gate.set()
    await bind
    await writer.stop(5.0)
    assert methods(api) == ["PATCH status", "POST binding"]


async def test_no_patch_follows_its_bind(api: FakeApi, writer: KubeWriter) -> None:
    """A patch that arrives while the bind is in flight is dropped if the bind succeeds."""
    gate = asyncio.Event()
    api.on("POST", f"{POD}/binding", Response(201, gate=gate))
    bind = asyncio.create_task(writer.bind(BINDING))
    await api.until(lambda: len(api.received) == 1)
    writer.patch_pod_status(PATCH)
    gate.set()
    await bind
    await writer.stop(5.0)
    assert methods(api) == ["POST binding"]


async def test_events_yield_to_the_writes_of_claims(
    api: FakeApi, connection: ApiConnection, writer: KubeWriter
) -> None:
    """Events wait while claims are written, because binds wait for these writes."""
    gate = asyncio.Event()
    claims = [allocated_claim({"device": "d"}, name=f"c{number}") for number in range(2)]
    for each in claims:
        api.on(
            "PATCH",
            f"/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/{each.metadata.name}/status",
            Response(gate=gate),
        )
    writes = [asyncio.create_task(ClaimWrites(connection, 5.0).write_allocation(each)) for each in claims]
    await api.until(lambda: len(api.received) == len(claims))
    writer.record(SCHEDULED)
    bind = asyncio.create_task(writer.bind(BINDING))
    await bind
    gate.set()
    await asyncio.gather(*writes, return_exceptions=True)
    await writer.stop(5.0)
    assert methods(api) == ["PATCH status", "PATCH status", "POST binding", "POST events"]


async def test_patch_follows_a_failed_bind(api: FakeApi, writer: KubeWriter) -> None:
    """If the bind fails, the patch that arrived in the meantime is sent."""
    gate = asyncio.Event()
    api.on("POST", f"{POD}/binding", Response(404, {"message": "gone"}, gate=gate))
    bind = asyncio.create_task(writer.bind(BINDING))
    await api.until(lambda: len(api.received) == 1)
    writer.patch_pod_status(PATCH)
    gate.set()
    with pytest.raises(NotFoundError):
        await bind
    await api.until(lambda: len(api.received) == 2)
    assert methods(api) == ["POST binding", "PATCH status"]


async def test_deletion_reports_its_outcome(api: FakeApi, writer: KubeWriter) -> None:
    """A deletion reports success or its error."""
    api.on("DELETE", POD, error_response(403, "RBAC"), Response(), error_response(404, "gone"))
    outcomes: list[Exception | None] = []
    done = asyncio.Event()

    def on_done(error: Exception | None) -> None:
        outcomes.append(error)
        done.set()

    writer.delete_pod(PodDeletion("n", "a", "uid-a"), on_done)
    await done.wait()
    done.clear()
    writer.delete_pod(PodDeletion("n", "a", "uid-a"), on_done)
    await done.wait()
    done.clear()
    writer.delete_pod(PodDeletion("n", "a", "uid-a"), on_done)
    await done.wait()
    assert "RBAC" in str(outcomes[0])
    assert outcomes[1] is None
    assert isinstance(outcomes[2], NotFoundError)
    assert (writer.dispatcher.written, writer.dispatcher.given_up) == (2, 1)


async def test_events_wait_for_pending_binds(api: FakeApi, writer: KubeWriter) -> None:
    """Events wait while the number of binds is at its limit, and are sent after the last bind."""
    gate = asyncio.Event()
    for name in "xyz":
        api.on("POST", f"/api/v1/namespaces/n/pods/{name}/binding", Response(201, gate=gate))
    binds = [asyncio.create_task(writer.bind(Binding("n", name, "u", "node"))) for name in "xyz"]
    await api.until(lambda: len(api.received) == 2)
    writer.record(SCHEDULED)
    assert writer.dispatcher.queued == 1
    gate.set()
    await asyncio.gather(*binds)
    await api.until(lambda: len(api.received) == 4)
    assert methods(api) == ["POST binding"] * 3 + ["POST events"]


async def test_stop_lets_binds_end_and_flushes(api: FakeApi, writer: KubeWriter) -> None:
    """Stopping waits for binds in flight and sends the queue, including writes that follow those binds."""
    gate = asyncio.Event()
    api.on("POST", f"{POD}/binding", Response(201, gate=gate))

    async def bind_and_report() -> None:
        await writer.bind(BINDING)
        writer.record(SCHEDULED)

    bind = asyncio.create_task(bind_and_report())
    await api.until(lambda: len(api.received) == 1)
    stop = asyncio.create_task(writer.stop(5.0))
    await asyncio.sleep(0)
    with pytest.raises(ServerUnavailableError, match="this process stops"):
        await writer.bind(BINDING)
    gate.set()
    await asyncio.gather(bind, stop)
    assert methods(api) == ["POST binding", "POST events"]


async def test_stop_ends_with_its_grace(api: FakeApi, writer: KubeWriter) -> None:
    """Stopping ends after its grace period if the server does not respond."""
    api.on("POST", EVENTS, Response(gate=asyncio.Event()))
    writer.record(SCHEDULED)
    await api.until(lambda: len(api.received) == 1)
    async with asyncio.timeout(60):
        await writer.stop(0.05)
    assert writer.dispatcher.in_flight == 0


async def test_read_pod(api: FakeApi, writer: KubeWriter) -> None:
    """The core can read a pod from the API server."""
    api.on(
        "GET",
        POD,
        Response(body={"metadata": {"name": "a"}, "spec": {"nodeName": "node-1"}}),
        error_response(404, "no"),
    )
    pod = await writer.read_pod("n", "a")
    assert pod is not None
    assert pod.spec.node_name == "node-1"
    assert await writer.read_pod("n", "a") is None
