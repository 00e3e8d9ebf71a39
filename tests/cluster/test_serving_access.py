"""Authorization of scrapes and commands by a real API server, with TLS and bearer tokens over real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from bayplan.kube.credentials import from_kubeconfig
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.leader_election import NotLeadingError
from bayplan.kube.readiness import Readiness
from bayplan.kube.timing import SystemClock
from bayplan.serving import COMMAND_PATHS, FIT_PATH
from bayplan.serving.authorization import COMMAND_AUDIENCE, AccessReviews, RequestAuthorization
from bayplan.serving.deferred_server import Listener, ServedCertificate
from bayplan.serving.fit_endpoint import FitSources
from bayplan.serving.http_server import HealthServer, Protection, protection_of
from bayplan.settings.operator_settings import ServingSettings
from prometheus_client import CollectorRegistry, Gauge

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from tests.support.gang_preemption import running_pod, small_node
from tests.support.http_servers import authorized_fit, served
from tests.support.scheduling import gang_rig
from tests.support.service_accounts import create_account, path_rule, resource_rule, token_of

pytestmark = pytest.mark.cluster
LOOPBACK = "127.0.0.1"


def untrusted(request: web.Request) -> bool:
    """Trust no request, since tests send them to loopback."""
    return False


def never() -> None:
    """Fence that rejects every write, as in a process that does not lead."""
    raise NotLeadingError("another process leads")


async def status(_: web.Request) -> web.Response:
    """Stand in for the handlers that return data of pods."""
    return web.Response(text="pods")


@pytest.fixture
async def connection(control_plane: ControlPlane) -> AsyncIterator[ApiConnection]:
    access = await from_kubeconfig(control_plane.kubeconfig)
    async with ApiConnection(access, ConnectionOptions(), SystemClock(), never) as connection:
        yield connection


@pytest.fixture
async def server(connection: ApiConnection) -> AsyncIterator[HealthServer]:
    """Start a server that reviews every caller with the real API server."""
    metrics = CollectorRegistry()
    Gauge("answer", "Of everything.", registry=metrics).set(42)
    clock = SystemClock()
    authorization = RequestAuthorization(AccessReviews(connection), clock, untrusted, COMMAND_PATHS)
    protection = Protection(ServedCertificate(ServingSettings(secure_serving=True)), authorization, clock)
    routes = [web.get(path, status) for path in ("/debug/status", "/debug/explain")]
    async with served(routes, protection=protection, metrics=metrics) as server:
        yield server


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[ApiClient]:
    with ApiClient(control_plane) as api:
        yield api


@pytest.fixture
def scraper(api: ApiClient, namespace: str) -> str:
    """Return a token of a service account that may get /metrics, as the chart's metrics-reader may."""
    create_account(api, namespace, "scraper", path_rule("/metrics"))
    return token_of(api, namespace, "scraper")


async def get(server: HealthServer, path: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://{LOOPBACK}:{server.port}{path}"
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers, ssl=False) as answer:
        return answer.status, await answer.text()


async def test_scrapes_are_authorized(server: HealthServer, api: ApiClient, namespace: str, scraper: str) -> None:
    """A scrape needs a valid token with the right; a standby reviews tokens too, although it must not write."""
    create_account(api, namespace, "other")
    other = token_of(api, namespace, "other")
    assert (await get(server, "/metrics"))[0] == HTTPStatus.UNAUTHORIZED
    assert (await get(server, "/metrics", "false"))[0] == HTTPStatus.UNAUTHORIZED
    status, text = await get(server, "/metrics", other)
    assert status == HTTPStatus.FORBIDDEN
    user = f"system:serviceaccount:{namespace}:other"
    assert json.loads(text)["message"].startswith(f'forbidden: User "{user}" cannot get path "/metrics"')
    found = await get(server, "/metrics", scraper)
    assert found[0] == HTTPStatus.OK
    assert "answer 42.0" in found[1]
    assert (await get(server, "/debug", scraper))[0] == HTTPStatus.FORBIDDEN
    assert (await get(server, "/readyz"))[0] == HTTPStatus.OK


async def test_commands_are_authorized(
    server: HealthServer, connection: ApiConnection, control_plane: ControlPlane, api: ApiClient, namespace: str
) -> None:
    """A command needs the right and a token of Bayplan's audience, which is valid for nothing else."""
    create_account(api, namespace, "replica", path_rule("/debug/status"))
    replica = token_of(api, namespace, "replica", COMMAND_AUDIENCE)
    assert await get(server, "/debug/status", replica) == (HTTPStatus.OK, "pods")
    status, text = await get(server, "/debug/explain", replica)
    assert (status, json.loads(text)["message"].endswith('cannot get path "/debug/explain"')) == (
        HTTPStatus.FORBIDDEN,
        True,
    )
    for audiences in ((), ("another",), ("another", f"{COMMAND_AUDIENCE}x")):
        other = token_of(api, namespace, "replica", *audiences)
        assert (await get(server, "/debug/status", other))[0] == HTTPStatus.UNAUTHORIZED
    assert (await get(server, "/metrics", replica))[0] == HTTPStatus.UNAUTHORIZED
    assert await AccessReviews(connection).user_of(replica) is None
    kubectl = ("get", "--raw=/api", f"--token={replica}", f"--server={control_plane.url}", "--insecure-skip-tls-verify")
    with pytest.raises(ControlPlaneError, match=r"Unauthorized|must be logged in"):
        control_plane.kubectl("--kubeconfig=/dev/null", *kubectl)


async def test_no_token_is_logged(
    server: HealthServer, connection: ApiConnection, scraper: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No token of a caller or of the operator is logged at level debug, for any path and result."""
    caplog.set_level(logging.DEBUG)
    own = await connection.access.authorization()
    assert own is not None
    for token in (scraper, "unknown-token"):
        for path in ("/metrics", "/debug", "/nowhere"):
            await get(server, path, token)
    logging.getLogger("bayplan.x").debug("the log is captured")
    assert "the log is captured" in caplog.text
    for secret in (scraper, scraper.rpartition(".")[2], "unknown-token", own.removeprefix("Bearer ")):
        assert secret not in caplog.text


async def test_an_api_server_that_hangs(
    server: HealthServer, connection: ApiConnection, control_plane: ControlPlane
) -> None:
    """A scrape fails after the timeout; probes and callers on the same host are answered meanwhile."""
    settings = ServingSettings(secure_serving=True, authorize_requests=True)
    protection = protection_of(settings, ServedCertificate(settings), connection, SystemClock())
    usual = HealthServer(Listener((LOOPBACK, 0)), Readiness(()), CollectorRegistry(), protection=protection)
    await usual.start()
    control_plane.apiserver.pause()
    try:
        scrape = asyncio.create_task(get(server, "/metrics", "unreviewed"))
        async with asyncio.timeout(60):
            for path in ("/livez", "/readyz", "/healthz"):
                assert (await get(server, path))[0] == HTTPStatus.OK
            assert (await get(usual, "/metrics"))[0] == HTTPStatus.OK
        async with asyncio.timeout(60):
            status, text = await scrape
    finally:
        control_plane.apiserver.resume()
        await usual.stop()
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "the API server cannot authorize the request" in json.loads(text)["message"]


async def test_fit_requests_are_authorized(connection: ApiConnection, api: ApiClient, namespace: str) -> None:
    """A service account needs the right in the namespace of the pods, and reads victims only where it may list pods."""
    made = gang_rig(small_node("a"), running_pod("v", "a", cpus=2))
    create_account(api, namespace, "planner", resource_rule("create", "fits", "bayplan.dev"), is_namespaced=True)
    create_account(api, namespace, "other")
    tokens = [token_of(api, namespace, account) for account in ("planner", "other")]
    sources = FitSources(made.scheduler, Readiness(()), lambda: False, no_classes)
    async with authorized_fit(sources, AccessReviews(connection), SystemClock()) as server:
        code, found = await ask_fit(server, namespace, tokens[1])
        user = f'User "system:serviceaccount:{namespace}:other"'
        assert code == HTTPStatus.FORBIDDEN
        assert found["error"].startswith(f'forbidden: {user} cannot create fits.bayplan.dev in namespace "{namespace}"')
        code, _ = await ask_fit(server, "default", tokens[0])
        assert code == HTTPStatus.FORBIDDEN
        code, found = await ask_fit(server, namespace, tokens[0])
        assert (code, found["verdict"]) == (HTTPStatus.OK, "FitsAfterEvictions")
        assert (found["evictions"]["pods"], found["evictions"]["victims"]) == (1, [])
        assert (await ask_fit(server, namespace, "unknown"))[0] == HTTPStatus.UNAUTHORIZED


async def no_classes() -> list[dict[str, Any]]:
    """Return no PriorityClasses."""
    return []


async def ask_fit(server: HealthServer, namespace: str, token: str) -> tuple[int, dict[str, Any]]:
    """Request a pod of high priority that needs a whole node."""
    containers = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": containers, "priority": 9},
    }
    headers = {"Authorization": f"Bearer {token}"}
    url = f"http://{LOOPBACK}:{server.port}{FIT_PATH}"
    question = {"objects": [body], "namespace": namespace}
    async with aiohttp.ClientSession() as client, client.post(url, json=question, headers=headers) as answer:
        return answer.status, await answer.json()
