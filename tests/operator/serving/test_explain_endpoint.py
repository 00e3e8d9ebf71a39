"""Tests of the explain endpoint over a real socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.explanation.rendering import read_explanation, read_gang_explanation
from bayplan.kube.readiness import Readiness
from bayplan.serving import EXPLAIN_PATH
from bayplan.serving.authorization import is_on_this_host
from bayplan.serving.debug_endpoints import ExplainCalls, ExplainEndpoint
from bayplan.serving.http_server import HealthServer

from scheduler_core.errors import QuantityError
from scheduler_core.model.pod_group import GroupSource
from tests.support.explanations import EXPLANATION, GANG
from tests.support.http_servers import served
from tests.support.tables import table

USAGE = "specify a pod or a PodGroup: ?namespace=NAMESPACE&pod=NAME, or &podgroup=NAME instead of the pod"
LOOPBACK = "127.0.0.1"


def explain_pod(namespace: str, name: str) -> Explanation | None:
    """Return the explanation of one pod, and raise an error for the pod "odd"."""
    if name == "odd":
        raise QuantityError("quantity 1x cannot be read")
    return EXPLANATION if (namespace, name) == ("shop", "web") else None


def explain_gang_of_one_api(namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
    """Return the explanation of one gang of one API."""
    return GANG if (namespace, name) == ("shop", "train") and source in (None, GroupSource.BAYPLAN) else None


def namespaces_of(name: str, is_gang: bool) -> list[str]:
    """Return one namespace of the pod "web" and the gang "train", and two of the pod "twice"."""
    return {("web", False): ["shop"], ("train", True): ["shop"], ("twice", False): ["b", "a"]}.get((name, is_gang), [])


@pytest.fixture
async def server(readiness: Readiness) -> AsyncIterator[HealthServer]:
    endpoint = ExplainEndpoint(ExplainCalls(explain_pod, explain_gang_of_one_api, namespaces_of), readiness)
    async with served(endpoint.routes, readiness) as server:
        yield server


async def request(server: HealthServer, **query: str) -> tuple[int, bytes]:
    """Request the explanation of a pod or gang."""
    url = f"http://{LOOPBACK}:{server.port}{EXPLAIN_PATH}"
    async with aiohttp.ClientSession() as client, client.get(url, params=query) as response:
        assert response.content_type == "application/json"
        return response.status, await response.read()


def error_in(body: bytes) -> str:
    document: dict[str, Any] = json.loads(body)
    assert list(document) == ["error"]
    return str(document["error"])


@table("api", ("without API", {}), ("with API", {"api": "bayplan.dev"}))
async def test_an_explanation_of_a_gang(server: HealthServer, api: dict[str, str]) -> None:
    """The response decodes to the explanation of the gang, with or without its API in the request."""
    status, body = await request(server, namespace="shop", podgroup="train", **api)
    assert (status, read_gang_explanation(body)) == (200, GANG)


async def test_a_name_in_all_namespaces(server: HealthServer) -> None:
    """A pod or gang is found by its name alone if one namespace has it."""
    status, body = await request(server, allNamespaces="true", pod="web")
    assert (status, read_explanation(body)) == (200, EXPLANATION)
    status, body = await request(server, allNamespaces="true", podgroup="train")
    assert (status, read_gang_explanation(body)) == (200, GANG)


async def test_a_suspended_cycle_rejects_requests(readiness: Readiness) -> None:
    """Requests are rejected while a scheduling cycle waits for an extender, because a dry run would disturb it."""
    endpoint = ExplainEndpoint(ExplainCalls(explain_pod, explain_gang_of_one_api), readiness, lambda: True)
    async with served(endpoint.routes, readiness) as server:
        status, body = await request(server, namespace="shop", podgroup="train")
    assert (status, error_in(body)) == (
        503,
        "a scheduling cycle is suspended, because it waits for an extender or takes long; retry",
    )


@table(
    "query, status, text",
    ("no pod and no namespace", {}, 400, USAGE),
    ("no namespace", {"pod": "web"}, 400, USAGE),
    ("one and all", {"pod": "web", "namespace": "shop", "allNamespaces": "true"}, 400, USAGE),
    (
        "name in two namespaces",
        {"pod": "twice", "allNamespaces": "true"},
        404,
        "several namespaces have this name: a/twice, b/twice; specify one of them",
    ),
    (
        "name in no namespace",
        {"podgroup": "web", "allNamespaces": "true"},
        404,
        "PodGroup web not found in any namespace; check the name",
    ),
    (
        "missing pod",
        {"namespace": "shop", "pod": "gone"},
        404,
        "pod shop/gone not found; check the namespace and the name",
    ),
    ("pod and gang", {"namespace": "shop", "podgroup": "train", "pod": "web"}, 400, USAGE),
    (
        "missing gang",
        {"namespace": "shop", "podgroup": "gone"},
        404,
        "PodGroup shop/gone not found; check the namespace and the name",
    ),
    (
        "missing gang of the API",
        {"namespace": "shop", "podgroup": "train", "api": "scheduling.k8s.io"},
        404,
        "PodGroup shop/train not found; check the namespace and the name",
    ),
    (
        "unsupported API",
        {"namespace": "shop", "podgroup": "train", "api": "volcano.sh"},
        400,
        (
            'api: unsupported value "volcano.sh": supported values: bayplan.dev, scheduling.x-k8s.io, '
            "scheduling.k8s.io, scheduling.volcano.sh"
        ),
    ),
    (
        "unreadable pod",
        {"namespace": "shop", "pod": "odd"},
        422,
        "pod shop/odd cannot be explained: quantity 1x cannot be read",
    ),
)
async def test_errors(server: HealthServer, query: dict[str, str], status: int, text: str) -> None:
    """Each error message names the cause or the remedy."""
    found, body = await request(server, **query)
    assert (found, error_in(body)) == (status, text)


async def test_requests_are_rejected_until_ready() -> None:
    """Requests are rejected until the process is ready."""
    waiting = Readiness(("pods are being listed",))
    endpoint = ExplainEndpoint(ExplainCalls(explain_pod), waiting)
    async with served(endpoint.routes, waiting) as server:
        status, body = await request(server, namespace="shop", pod="web")
    assert (status, error_in(body)) == (503, "not ready: pods are being listed; retry")


async def test_a_standby_names_the_leader(server: HealthServer, readiness: Readiness) -> None:
    """A standby rejects requests and names the leader, whose decisions it cannot explain."""
    readiness.stand_by(lambda: "standby, other leads")
    status, body = await request(server, namespace="shop", pod="web")
    assert (status, error_in(body)) == (503, "standby, other leads; send the request to the leader, or use --offline")


@table(
    "remote, is_local",
    ("IPv4 loopback", "127.0.0.1", True),
    ("IPv6 loopback", "::1", True),
    ("IPv4 in IPv6", "::ffff:127.0.0.1", True),
    ("another host", "10.0.0.7", False),
    ("another host, IPv4 in IPv6", "::ffff:10.0.0.7", False),
    ("another host, link local", "fe80::1%eth0", False),
    ("unknown", None, False),
)
def test_callers_on_this_host(remote: str | None, is_local: bool) -> None:
    """Only loopback addresses count as this host."""
    assert is_on_this_host(remote) is is_local
