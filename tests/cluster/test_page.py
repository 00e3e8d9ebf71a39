"""The page of the real operator on a real API server: authorization, and the ways to reach it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.api_client import ApiClient, Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.schedulers import install_crds
from tests.cluster.test_explain import PROFILE, node, pod_of_profile
from tests.support.operator_process import OperatorProcess
from tests.support.service_accounts import create_account, path_rule, resource_rule, token_of

pytestmark = [pytest.mark.cluster, pytest.mark.in_order]
NAMESPACE = "page-test"


class Page:
    """Client of an operator's page that sends requests as a browser does."""

    def __init__(self, operator: OperatorProcess, address: str, port: int = 0) -> None:
        self.port = port or operator.port
        self._address = address

    @contextmanager
    def open(self, path: str, headers: dict[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield the response before its body."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(self._address, self.port, timeout=30, context=context)
        with closing(connection):
            connection.request("GET", path, headers=headers or {})
            yield connection.getresponse()

    def read(self, path: str, token: str = "") -> tuple[int, dict[str, Any]]:
        """Return the status and the document of a path."""
        headers = {"Authorization": f"Bearer {token}"} if token else None
        with self.open(f"/page/data/{path}", headers) as answer:
            return answer.status, json.loads(answer.read())


def host_address() -> str:
    """Return the address by which other hosts reach this one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def plane(empty_plane: ControlPlane) -> ControlPlane:
    """Create a node and two pods, of which one is infeasible, on an empty control plane."""
    install_crds(empty_plane)
    with ApiClient(empty_plane) as api:
        for each in (PROFILE, node("large", "4"), pod_of_profile("first", "3"), pod_of_profile("second", "2")):
            api.create(each)
        api.create({"kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return empty_plane


@pytest.fixture(scope="module")
def local_port() -> int:
    """Return the port for local requests, to which a port-forward connects."""
    return free_port()


@pytest.fixture(scope="module")
def operator(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, local_port: int
) -> Iterator[OperatorProcess]:
    """Start the leader, which serves all addresses and requires tokens as in a pod."""
    flags = ["--serve-page", "--page-viewers=1", "--secure-serving", "--authorize-requests"]
    flags += ["--leader-elect", f"--namespace={NAMESPACE}", f"--local-address={LOOPBACK}:{local_port}"]
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with OperatorProcess(plane.kubeconfig, log, flags, secure=True, host="0.0.0.0") as operator:  # noqa: S104
        operator.start()
        operator.until(lambda: "is live" in operator.log, "the profile is live")
        yield operator


@pytest.fixture
def local(operator: OperatorProcess, local_port: int) -> Page:
    """Return the page as through a port-forward."""
    return Page(operator, LOOPBACK, local_port)


@pytest.fixture
def forwarded(operator: OperatorProcess) -> Page:
    """Return the page as through a sidecar proxy, which connects from loopback to the address for other hosts."""
    return Page(operator, LOOPBACK)


@pytest.fixture
def remote(operator: OperatorProcess) -> Page:
    """Return the page as from another host."""
    return Page(operator, host_address())


def account(plane: ControlPlane, name: str, *rules: Manifest) -> str:
    """Create a service account with rights, and return its token when they are in force."""
    with ApiClient(plane) as api:
        create_account(api, NAMESPACE, name, *rules)
        return token_of(api, NAMESPACE, name)


PATH = path_rule("/page/data")
LISTS = (resource_rule("list", "pods"), resource_rule("list", "nodes"))


def test_the_documents_of_the_page(local: Page) -> None:
    """Each panel shows the objects of the cluster; requests from the same host need no token."""
    status, found = local.read("pending")
    assert status == 200
    assert [(group["cause"], group["examples"]) for group in found["groups"]] == [
        ("Insufficient cpu", ["default/second"])
    ]
    assert found["groups"][0]["nearestMiss"] == "node large: needs 2 cpu, 1 free"
    assert local.read("nodes")[1]["used"]["cpu"] == [750]
    overview = local.read("overview")[1]
    assert (overview["nodes"], overview["pods"], overview["pending"]) == (1, 1, 1)
    profiles = local.read("profiles")[1]
    assert profiles["source"] == "resources"
    assert [each["live"] for each in profiles["profiles"][0]["revisions"]] == [True]
    work = local.read("work?namespace=default&pod=first")[1]
    assert [(each["result"], each["node"]) for each in work["attempts"]] == [("scheduled", "large")]
    assert local.read("room?requests=cpu%3D500m")[1]["fits"] == 2


def test_authorization_from_another_host(plane: ControlPlane, remote: Page) -> None:
    """The API server authorizes requests by three rights; static files need none."""
    assert remote.read("overview")[0] == 401
    assert remote.read("overview", "false")[0] == 401
    status, found = remote.read("overview", account(plane, "no-rights"))
    assert (status, 'cannot get path "/page/data"' in found["error"]) == (403, True)
    status, found = remote.read("overview", account(plane, "path-only", PATH))
    assert (status, "cannot list pods in all namespaces" in found["error"]) == (403, True)
    reader = account(plane, "reader", PATH, *LISTS)
    assert remote.read("overview", reader)[0] == 200
    with remote.open("/page/data/overview", {"X-Bayplan-Token": reader}) as answer:
        assert answer.status == 200
    with remote.open("/page/") as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")


def test_through_the_api_server(plane: ControlPlane, operator: OperatorProcess) -> None:
    """The proxy of the API server strips the Authorization header and forwards X-Bayplan-Token."""
    name = "the-operator"
    created = pod_of_profile(name, "1m", nodeName="large")
    created["metadata"]["namespace"] = NAMESPACE
    address = host_address()
    with ApiClient(plane) as api:
        api.create(created | {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}})
    token = account(plane, "through-proxy", PATH, *LISTS)
    context = ssl.create_default_context(cafile=str(plane.state_dir / "certs" / "apiserver.crt"))
    base = f"/api/v1/namespaces/{NAMESPACE}/pods/https:{name}:{operator.port}/proxy/page"
    admin = {"Authorization": f"Bearer {plane.admin.token}"}

    def get(path: str, headers: dict[str, str]) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPSConnection(plane.url.removeprefix("https://"), timeout=30, context=context)
        with closing(connection):
            connection.request("GET", f"{base}{path}", headers={**admin, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers

    assert get("/data/overview", {})[0] == 401
    code, body, headers = get("/data/overview", {"X-Bayplan-Token": token})
    assert (code, json.loads(body)["nodes"]) == (200, 1)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    code, _, headers = get("", {})
    assert (code, headers["Location"]) == (308, "page/")


def test_a_sidecar_proxy_is_not_local(forwarded: Page, remote: Page) -> None:
    """Requests from loopback to the address for other hosts need a token, as those of other hosts do."""
    for page in (forwarded, remote):
        for path in ("/page/data/overview", "/debug/status", "/metrics"):
            with page.open(path) as answer:
                assert answer.status == 401


def test_live_updates_and_the_limit_of_viewers(plane: ControlPlane, local: Page) -> None:
    """A viewer gets whole documents first, then deltas; a viewer above the limit is rejected."""
    with local.open("/page/events?panels=pending,nodes") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        found = dict([next_event(answer), next_event(answer)])
        assert (found["nodes"]["names"], found["pending"]["total"]) == (["large"], 1)
        with local.open("/page/events") as rejected:
            assert (rejected.status, json.loads(rejected.read())["viewers"]) == (503, 1)
        with ApiClient(plane) as api:
            api.create(pod_of_profile("third", "500m"))
        name, data = next_event(answer)
        while name != "nodesDelta":
            name, data = next_event(answer)
        assert data["nodes"][0][0] == 0
        assert data["nodes"][0][1] > found["nodes"]["pods"][0]


def next_event(answer: http.client.HTTPResponse) -> tuple[str, dict[str, Any]]:
    name = ""
    while True:
        line = answer.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return name, json.loads(line.removeprefix("data: "))


def test_a_standby_names_the_leader(plane: ControlPlane, operator: OperatorProcess, tmp_path: Path) -> None:
    """A standby serves no data, which would be incomplete, but the Lease and its holder."""
    flags = ["--serve-page", "--secure-serving", "--leader-elect", f"--namespace={NAMESPACE}"]
    with OperatorProcess(plane.kubeconfig, tmp_path / "standby.log", flags, secure=True) as standby:
        standby.start()
        status, found = Page(standby, LOOPBACK).read("overview")
    with ApiClient(plane) as api:
        lease = api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/bayplan")
    assert (status, found["standby"]) == (503, True)
    assert (found["lease"], found["holder"]) == (f"{NAMESPACE}/bayplan", lease["spec"]["holderIdentity"])
