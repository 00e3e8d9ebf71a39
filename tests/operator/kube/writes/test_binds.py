"""Tests of Binder: requests, concurrency, and how an ambiguous outcome is settled."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.writes.pod_writes import Binder, binding_body, read_pod

from scheduler_core.errors import (
    BoundElsewhereError,
    ClusterWriteError,
    ForbiddenError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.ports import Binding
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table

POD = "/api/v1/namespaces/n/pods/a"
BIND = f"{POD}/binding"
BINDING = Binding("n", "a", "uid-a", "node-1")
DONE = Response(201, {"kind": "Status", "status": "Success"})
LOST = Response(disconnect=True)
TAKEN = error_response(409, "Operation cannot be fulfilled")


def pod_on(node: str, uid: str = "uid-a") -> Response:
    return Response(body={"metadata": {"name": "a", "namespace": "n", "uid": uid}, "spec": {"nodeName": node}})


@pytest.fixture
async def binder(connection: ApiConnection) -> Binder:
    return Binder(connection, limit=2, timeout=5.0)


async def test_binding_is_posted(api: FakeApi, binder: Binder) -> None:
    """A bind is one POST with the pod's UID, and after success the pod is not read."""
    api.on("POST", BIND, DONE)
    await binder.bind(BINDING)
    [seen] = api.received
    assert seen.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "n", "uid": "uid-a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    assert seen.query == {"timeout": "4s"}
    assert (binder.bound, binder.settled, binder.in_flight, binder.waiting) == (1, 0, 0, 0)


def test_annotations_are_in_the_body() -> None:
    """The body has the annotations of the Binding, which the API server copies to the pod."""
    body = binding_body(Binding("n", "a", "u", "node", (("example.com/devices", '0,"1"'),)))
    assert msgspec.json.decode(body)["metadata"]["annotations"] == {"example.com/devices": '0,"1"'}


def test_names_are_escaped() -> None:
    """The body is valid JSON for every name."""
    assert b'"name":"a\\"b"' in binding_body(Binding("n", 'a"b', "u", "node"))


@table(
    "response, pod",
    ("conflict-with-own-bind", TAKEN, pod_on("node-1")),
    ("lost-response", LOST, pod_on("node-1")),
    ("server-timeout", error_response(504, "slow"), pod_on("node-1")),
    ("server-error", error_response(500, "etcd"), pod_on("node-1")),
)
async def test_an_ambiguous_bind_that_succeeded(
    api: FakeApi, binder: Binder, response: Response, pod: Response
) -> None:
    """A bind without a clear response is a success if the pod is on the node."""
    api.on("POST", BIND, response)
    api.on("GET", POD, pod)
    await binder.bind(BINDING)
    assert (binder.bound, binder.settled, len(api.requests("POST"))) == (1, 1, 1)


@table(
    "response, pod, expected",
    ("bound-elsewhere", TAKEN, pod_on("node-2"), (BoundElsewhereError, "bound to node node-2")),
    ("rejected-and-unbound", TAKEN, pod_on(""), (ClusterWriteError, "cannot be fulfilled")),
    ("failed-and-unbound", error_response(500, "no"), pod_on(""), (ServerUnavailableError, "retry")),
    ("timeout-and-unbound", error_response(504, "slow"), pod_on(""), (ServerUnavailableError, "retry")),
    ("another-pod-of-the-name", TAKEN, pod_on("", uid="other"), (NotFoundError, "uid-a is gone")),
    ("gone", LOST, error_response(404, "no pod"), (NotFoundError, "uid-a is gone")),
    ("cannot-be-read", LOST, error_response(503, "away"), (WriteTimeoutError, "is unknown")),
    ("not-found-needs-no-reading", error_response(404, "no pod"), pod_on(""), (NotFoundError, "no pod")),
    ("forbidden-needs-no-reading", error_response(403, "no"), pod_on(""), (ForbiddenError, "HTTP 403")),
)
async def test_bind_that_failed(
    api: FakeApi, binder: Binder, response: Response, pod: Response, expected: tuple[type[ClusterWriteError], str]
) -> None:
    """The error of a failed bind reports the state of the pod."""
    error, text = expected
    api.on("POST", BIND, response)
    api.on("GET", POD, pod)
    with pytest.raises(error, match=text) as caught:
        await binder.bind(BINDING)
    assert type(caught.value) is error
    assert (binder.bound, binder.failed, binder.in_flight) == (0, 1, 0)


async def test_broken_connection_is_retried_once(api: FakeApi, binder: Binder) -> None:
    """If the connection breaks during the request and the pod is unbound, the bind is sent once more."""
    api.on("POST", BIND, LOST, DONE)
    api.on("GET", POD, pod_on(""))
    await binder.bind(BINDING)
    assert [seen.method for seen in api.received] == ["POST", "GET", "POST"]


async def test_a_second_broken_connection_fails_the_bind(api: FakeApi, binder: Binder) -> None:
    """If the second attempt breaks too, the bind fails."""
    api.on("POST", BIND, LOST)
    api.on("GET", POD, pod_on(""))
    with pytest.raises(ServerUnavailableError, match="was not bound"):
        await binder.bind(BINDING)
    assert [seen.method for seen in api.received] == ["POST", "GET", "POST", "GET"]


async def test_timed_out_bind_is_read(api: FakeApi, connection: ApiConnection) -> None:
    """A bind without a response in time is settled by reading the pod."""
    api.on("POST", BIND, Response(gate=asyncio.Event()))
    api.on("GET", POD, pod_on("node-1"))
    await Binder(connection, timeout=1.0).bind(BINDING)
    assert len(api.requests("GET")) == 1


async def test_concurrency_is_bounded(api: FakeApi, binder: Binder) -> None:
    """No more binds than the limit are in flight; the other binds are counted as waiting."""
    gate = asyncio.Event()
    for name in "abcde":
        api.on("POST", f"/api/v1/namespaces/n/pods/{name}/binding", Response(201, gate=gate))
    tasks = [asyncio.create_task(binder.bind(Binding("n", name, "u", "node-1"))) for name in "abcde"]
    await api.until(lambda: len(api.received) == 2)
    assert (binder.in_flight, binder.waiting) == (2, 3)
    gate.set()
    await asyncio.gather(*tasks)
    assert (binder.in_flight, binder.waiting, binder.bound) == (0, 0, 5)
    assert api.max_concurrent["POST"] == 2


async def test_a_response_that_is_no_pod_is_an_error(api: FakeApi, connection: ApiConnection) -> None:
    """A response that is not a pod is an error and does not count as a deleted pod."""
    api.on("GET", POD, Response(body=b"<html>"))
    with pytest.raises(ClusterWriteError, match="not a readable pod"):
        await read_pod(connection, "n", "a")
