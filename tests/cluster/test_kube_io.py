"""The cluster I/O on a real API server, which the scripted server of the unit tests imitates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from bayplan.kube.credentials import from_kubeconfig, from_service_account, open_connection
from bayplan.kube.custom_resources import ControllerRevision, ControllerRevisions, ObjectPath, replace_status
from bayplan.kube.http.connection import (
    METADATA_ONLY,
    STRATEGIC_MERGE_PATCH,
    ApiConnection,
    ApiRequest,
    ConnectionOptions,
)
from bayplan.kube.timing import SystemClock
from bayplan.kube.watches.informer import Informer, InformerOptions, Resource
from bayplan.kube.writes.cluster_writer import KubeWriter, WriterOptions
from bayplan.kube.writes.pod_writes import PodWrites

from hack.controlplane.api_client import condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.ports import Binding, Event, ObjectReference, PodDeletion, PodStatusPatch
from tests.support.background import AwaitedState
from tests.support.tables import table

pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
UNSCHEDULABLE = PodCondition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available")


class WaitingSink(AwaitedState):
    """Informer sink that records what it receives and can be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[str] = []

    def on_add(self, obj: Pod) -> None:
        self._note(f"+{obj.metadata.name}")

    def on_update(self, old: Pod, new: Pod) -> None:
        self._note(f"{new.metadata.name}:{new.spec.node_name}")

    def on_delete(self, last_known: Pod) -> None:
        self._note(f"-{last_known.metadata.name}")

    def on_synced(self) -> None:
        self._note("synced")

    def on_trouble(self, reason: str) -> None:
        """Do nothing: the informer retries."""

    def _note(self, what: str) -> None:
        self.received.append(what)
        self._changed.set()


@asynccontextmanager
async def informing(
    connection: ApiConnection, namespace: str, sink: WaitingSink, *, paged: bool = False
) -> AsyncIterator[Informer[Pod]]:
    """Run an informer of one namespace's pods; *paged* disables streamed lists."""
    resource = Resource(f"/api/v1/namespaces/{namespace}/pods")
    informer = Informer(connection, resource, Pod, sink, CLOCK, options=InformerOptions(page_limit=2))
    if paged:
        informer._use_streamed_list = False
    task = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def connection(control_plane: ControlPlane) -> AsyncIterator[ApiConnection]:
    async with await open_connection(control_plane.kubeconfig, None, ConnectionOptions(), CLOCK) as connection:
        yield connection


@pytest.fixture
async def writer(connection: ApiConnection) -> AsyncIterator[KubeWriter]:
    writer = KubeWriter(connection, WriterOptions(), CLOCK)
    await writer.start()
    yield writer
    await writer.stop(5.0)


async def create_pod(connection: ApiConnection, namespace: str, name: str, **spec: Any) -> Pod:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "unserved", "containers": [{"name": "c", "image": "i"}], **spec},
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    answer = await connection.request(ApiRequest("POST", path, json.dumps(body).encode()))
    created = json.loads(answer)
    return Pod(ObjectMeta(name, namespace, created["metadata"]["uid"], created["metadata"]["resourceVersion"]))


def binding(pod: Pod, node: str, uid: str | None = None) -> Binding:
    return Binding(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid if uid is None else uid, node)


def patch(pod: Pod, condition: PodCondition | None, nominated: str | None = None) -> PodStatusPatch:
    meta = pod.metadata
    return PodStatusPatch(meta.namespace, meta.name, meta.uid, condition, nominated)


async def raw(connection: ApiConnection, pod: Pod) -> dict[str, Any]:
    path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
    found: dict[str, Any] = json.loads(await connection.request(ApiRequest("GET", path)))
    return found


@table("paged", ("streamed-list", False), ("paged-list", True))
async def test_informer_follows_pods(
    connection: ApiConnection, namespace: str, writer: KubeWriter, paged: bool
) -> None:
    """Existing pods are listed, then binds and deletions arrive as they happen."""
    pods = [await create_pod(connection, namespace, name) for name in "abc"]
    sink = WaitingSink()
    async with informing(connection, namespace, sink, paged=paged) as informer:
        await sink.until(lambda: "synced" in sink.received)
        assert sorted(sink.received[:3]) == ["+a", "+b", "+c"]
        assert informer.known[f"{namespace}/a"].spec.scheduler_name == "unserved"
        await writer.bind(binding(pods[0], "node-1"))
        await sink.until(lambda: "a:node-1" in sink.received)
        done = asyncio.Event()
        writer.delete_pod(PodDeletion(namespace, "b", pods[1].metadata.uid), lambda _: done.set())
        await sink.until(lambda: "-b" in sink.received)
        await done.wait()
        assert (informer.decode_errors, informer.sink_errors, informer.restarts) == (0, 0, 0)


async def test_bind_outcomes(connection: ApiConnection, namespace: str, writer: KubeWriter) -> None:
    """The API server's error responses become the exceptions that the core expects."""
    pod = await create_pod(connection, namespace, "a")
    with pytest.raises(NotFoundError, match="UID"):
        await writer.bind(binding(pod, "node-1", uid="00000000-0000-0000-0000-000000000000"))
    await writer.bind(binding(pod, "node-1"))
    await writer.bind(binding(pod, "node-1"))
    with pytest.raises(ConflictError, match="already bound to node node-1"):
        await writer.bind(binding(pod, "node-2"))
    with pytest.raises(NotFoundError):
        await writer.bind(Binding(namespace, "missing", "u", "node-1"))
    gated = await create_pod(connection, namespace, "gated", schedulingGates=[{"name": "x/wait"}])
    with pytest.raises(ClusterWriteError, match="schedulingGates"):
        await writer.bind(binding(gated, "node-1"))
    bound = await writer.read_pod(namespace, "a")
    assert bound is not None
    assert bound.spec.node_name == "node-1"


async def test_a_bind_annotates_the_pod(connection: ApiConnection, namespace: str, writer: KubeWriter) -> None:
    """The API server stores the annotations of a Binding together with the node name."""
    pod = await create_pod(connection, namespace, "a")
    await writer.bind(replace(binding(pod, "node-1"), annotations=(("gpu.example.com/devices", "0,1"),)))
    stored = await raw(connection, pod)
    assert (stored["spec"]["nodeName"], stored["metadata"]["annotations"]) == (
        "node-1",
        {"gpu.example.com/devices": "0,1"},
    )


async def test_status_patch(connection: ApiConnection, namespace: str, writer: KubeWriter) -> None:
    """Conditions are set and keep lastTransitionTime while the status is unchanged; nominations are set and cleared."""
    pod = await create_pod(connection, namespace, "a")
    writer.patch_pod_status(patch(pod, UNSCHEDULABLE, "node-1"))
    await writer.dispatcher.drain(60.0)
    first = status_of(await raw(connection, pod))
    assert first["nominatedNodeName"] == "node-1"
    [condition] = first.get("conditions", ())
    assert condition["reason"] == "Unschedulable"
    assert condition["lastTransitionTime"]
    writer.patch_pod_status(patch(pod, PodCondition("PodScheduled", "False", "SchedulerError", "bug"), ""))
    await writer.dispatcher.drain(60.0)
    second = status_of(await raw(connection, pod))
    assert "nominatedNodeName" not in second
    [later] = second.get("conditions", ())
    assert (later["reason"], later["lastTransitionTime"]) == ("SchedulerError", condition["lastTransitionTime"])


async def test_status_patch_of_another_uid(connection: ApiConnection, namespace: str) -> None:
    """The API server rejects a status patch with another UID as a conflict."""
    await create_pod(connection, namespace, "a")
    wrong = PodStatusPatch(namespace, "a", "00000000-0000-0000-0000-000000000000", UNSCHEDULABLE)
    with pytest.raises(ConflictError, match="UID"):
        await PodWrites(connection, CLOCK, None, 5.0).patch_status(wrong)


@pytest.mark.usefixtures("plane")
async def test_status_of_another_uid(connection: ApiConnection) -> None:
    """A status of a custom resource is replaced as a whole, and only if the object has the UID."""
    collection = "/apis/bayplan.dev/v1alpha1/rebalanceplans"
    resource = ObjectPath("bayplan.dev", "v1alpha1", "rebalanceplans", "created-again")
    body = {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "RebalancePlan",
        "metadata": {"name": resource.name},
        "spec": {"objective": "Consolidate"},
    }
    created = json.loads(await connection.request(ApiRequest("POST", collection, json.dumps(body).encode())))
    uid = created["metadata"]["uid"]
    try:
        await replace_status(connection, resource, uid, {"phase": "Moving", "moved": 1})
        await replace_status(connection, resource, uid, {"planned": 2})
        with pytest.raises(NotFoundError):
            await replace_status(connection, resource, "00000000-0000-0000-0000-000000000000", {"moved": 3})
        with pytest.raises(ForbiddenError):
            await replace_status(connection, resource, uid, {"phase": "Unknown"})
        found = json.loads(await connection.request(ApiRequest("GET", resource.path)))
        assert status_of(found) == {"planned": 2}
    finally:
        await connection.request(ApiRequest("DELETE", resource.path))
    with pytest.raises(NotFoundError):
        await replace_status(connection, resource, uid, {"moved": 1})


async def test_deletion(connection: ApiConnection, namespace: str, writer: KubeWriter) -> None:
    """A deleted victim has the condition while it terminates; a deletion with another UID does not delete the pod."""
    pod = await create_pod(connection, namespace, "a")
    await writer.bind(binding(pod, "node-1"))
    results: list[Exception | None] = []
    wrong = PodDeletion(namespace, "a", "00000000-0000-0000-0000-000000000000")
    writer.delete_pod(wrong, results.append)
    await writer.dispatcher.drain(60.0)
    assert "deletionTimestamp" not in (await raw(connection, pod))["metadata"]
    disrupted = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", "preempting")
    writer.delete_pod(PodDeletion(namespace, "a", pod.metadata.uid, disrupted), results.append)
    await writer.dispatcher.drain(60.0)
    assert isinstance(results[0], NotFoundError)
    assert results[1:] == [None]
    left = await raw(connection, pod)
    assert left["metadata"]["deletionTimestamp"]
    assert condition_of(left, "DisruptionTarget").get("reason") == "PreemptionByScheduler"


async def test_events(connection: ApiConnection, namespace: str, writer: KubeWriter) -> None:
    """Events are accepted, long notes are cut, repetitions are counted; cluster-scoped objects use ``default``."""
    pod = await create_pod(connection, namespace, "a")
    regarding = ObjectReference("Pod", "a", namespace, pod.metadata.uid)
    event = Event(regarding, "Warning", "FailedScheduling", "Scheduling", "x" * 3000)
    writer.record(event)
    await writer.dispatcher.drain(60.0)
    writer.record(event)
    writer.record(Event(ObjectReference("Node", f"node-{namespace}"), "Normal", "Seen", "Looking", "a node"))
    await writer.dispatcher.drain(60.0)
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    [found] = json.loads(await connection.request(ApiRequest("GET", path)))["items"]
    assert found["note"] == "x" * 1020 + " ..."
    assert (found["series"]["count"], found["reportingController"]) == (2, "bayplan")
    assert (writer.dispatcher.written, writer.dispatcher.given_up) == (3, 0)


async def test_writes_answer_with_metadata_only(connection: ApiConnection, namespace: str) -> None:
    """The API server returns only metadata if requested, so that a status patch does not return the pod."""
    pod = await create_pod(connection, namespace, "a")
    answer = await connection.request(
        ApiRequest(
            "PATCH",
            f"/api/v1/namespaces/{namespace}/pods/{pod.metadata.name}/status",
            b'{"status":{"nominatedNodeName":"x"}}',
            content_type=STRATEGIC_MERGE_PATCH,
            accept=METADATA_ONLY,
        )
    )
    assert json.loads(answer)["kind"] == "PartialObjectMetadata"


async def test_controller_revisions(connection: ApiConnection, namespace: str) -> None:
    """Revisions are created, listed by label in order, rejected if they exist, and deleted."""
    revisions = ControllerRevisions(connection, namespace)
    for number in (2, 1):
        meta = AnnotatedMeta(f"profile-{number}", labels={"bayplan.dev/profile": "batch"})
        await revisions.create(ControllerRevision(meta, number, {"spec": {"schedulerName": "batch"}}))
    found = await revisions.list({"bayplan.dev/profile": "batch"})
    assert [(one.revision, one.data["spec"]) for one in found] == [
        (1, {"schedulerName": "batch"}),
        (2, {"schedulerName": "batch"}),
    ]
    with pytest.raises(ConflictError, match="already exists"):
        await revisions.create(found[0])
    await revisions.delete(found[0].metadata.name, found[0].metadata.uid)
    await revisions.delete(found[0].metadata.name, found[0].metadata.uid)
    left = found[1].metadata
    await revisions.annotate(left.name, left.uid, {"a": "b"})
    another = "00000000-0000-0000-0000-000000000000"
    await revisions.delete(left.name, another)
    with pytest.raises(NotFoundError):
        await revisions.annotate(left.name, another, {"a": "c"})
    assert (await revisions.list({}))[0].metadata.annotations == {"a": "b"}
    assert [one.revision for one in await revisions.list({})] == [2]


async def test_api_server_restart(control_plane: ControlPlane, connection: ApiConnection, namespace: str) -> None:
    """The watch backs off while the API server is stopped, and then continues without a repeated or missing event."""
    await create_pod(connection, namespace, "before")
    sink = WaitingSink()
    async with informing(connection, namespace, sink) as informer:
        await sink.until(lambda: "synced" in sink.received)
        await asyncio.to_thread(control_plane.stop_apiserver)
        with pytest.raises(ServerUnavailableError, match="cannot be reached"):
            await create_pod(connection, namespace, "during")
        await asyncio.to_thread(control_plane.start_apiserver)
        await create_pod(connection, namespace, "after")
        await sink.until(lambda: "+after" in sink.received)
        assert informer.restarts < 20
    assert sink.received == ["+before", "synced", "+after"]


async def test_frozen_api_server(control_plane: ControlPlane, connection: ApiConnection, namespace: str) -> None:
    """If the API server does not answer, the outcome of a bind is unknown, and the writer still stops."""
    pod = await create_pod(connection, namespace, "a")
    writer = KubeWriter(connection, WriterOptions(request_seconds=0.5), CLOCK)
    await writer.start()
    control_plane.apiserver.pause()
    try:
        with pytest.raises(WriteTimeoutError, match="is unknown"):
            await writer.bind(binding(pod, "node-1"))
        writer.patch_pod_status(patch(pod, UNSCHEDULABLE))
        async with asyncio.timeout(60):
            await writer.stop(0.1)
    finally:
        control_plane.apiserver.resume()


async def test_service_account(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod, the mounted token and certificate are used; the API server authenticates the service account."""
    await asyncio.to_thread(control_plane.kubectl, "create", "serviceaccount", "sa", "--namespace", namespace)
    token = await asyncio.to_thread(control_plane.kubectl, "create", "token", "sa", "--namespace", namespace)
    (tmp_path / "token").write_text(token)
    url = urlsplit(control_plane.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(url.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(url.port))
    admin = await from_kubeconfig(control_plane.kubeconfig)
    (tmp_path / "ca.crt").write_text(str(admin.credentials.ca_cert_data))
    async with ApiConnection(await from_service_account(tmp_path), ConnectionOptions(), CLOCK) as connection:
        with pytest.raises(ForbiddenError, match=f"system:serviceaccount:{namespace}:sa"):
            await connection.request(ApiRequest("GET", f"/api/v1/namespaces/{namespace}/pods"))
