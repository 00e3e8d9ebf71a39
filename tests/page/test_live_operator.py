"""The page of a real operator on a real control plane: live changes, a leader change, the login and a report."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner
from selenium.webdriver.common.keys import Keys

from hack.browser import Browser
from hack.controlplane.api_client import ApiClient, Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.page.documents import HOSTILE, SHOWN
from tests.page.test_accessibility import violations
from tests.scenarios.scenario import node_manifest
from tests.support.namespaces import new_namespace
from tests.support.operator_process import OperatorProcess
from tests.support.service_accounts import create_account, path_rule, resource_rule, token_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
PROFILE = "paged"
ELSEWHERE = "page.test"
LEASE = {"leaseDuration": 8, "renewDeadline": 6, "retryPeriod": 0.5, "leaderElect": True, "resourceName": "page"}


@pytest.fixture(scope="module")
def plane(empty_plane: ControlPlane) -> ControlPlane:
    """Create a profile and four nodes in two zones on an empty control plane, since the page counts all objects."""
    profile = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": PROFILE}}
    install_crds(empty_plane)
    with ApiClient(empty_plane) as api:
        api.create({**profile, "spec": {}})
        for index in range(4):
            labels = {"topology.kubernetes.io/zone": f"zone-{index % 2}"}
            api.create(node_manifest(f"page-{index}", {"memory": "16Gi", "pods": "20", "labels": labels}))
    return empty_plane


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """Create a namespace for one test."""
    with new_namespace(plane, f"test-{uuid.uuid4().hex[:10]}") as name:
        yield name


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[ApiClient]:
    """Return a client with administrator rights."""
    client = ApiClient(plane)
    yield client
    client.close()


@pytest.fixture
def operator(plane: ControlPlane, browser: Browser, tmp_path: Path) -> Iterator[OperatorProcess]:
    """Start an operator that serves the page; it ends after the browser has left the page."""
    with OperatorProcess(plane.kubeconfig, tmp_path / "operator.log", ["--serve-page"]) as operator:
        operator.start()
        yield operator
        browser.leave()


def pod(namespace: str, name: str, cpu: str, **spec: object) -> Manifest:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": namespace}
    return {"kind": "Pod", "metadata": metadata, "spec": {"schedulerName": PROFILE, "containers": [container], **spec}}


def test_live_changes(browser: Browser, operator: OperatorProcess, api: ApiClient, namespace: str) -> None:
    """Infeasible pods are listed by cause and explained, and disappear when a node with room is added."""
    browser.open(f"{operator.url}/page/")
    browser.shows(".connection", "live")
    browser.shows("#pending", "No pod waits.")
    for index in range(3):
        api.create(pod(namespace, f"large-{index}", "8"))
    api.create(pod(namespace, "gated", "1", schedulingGates=[{"name": "example.com/approval"}]))
    api.create(pod(namespace, "small", "1"))
    browser.shows("#pending", "4 pods in 2 groups")
    browser.shows("#pending", "Nearest miss")
    assert "Insufficient cpu" in browser.text("#pending")
    assert "example.com/approval" in browser.text("#pending")
    browser.shows("#nodes", "4 nodes, 0 unschedulable, 0 not ready")
    browser.shows(f"#profile-{PROFILE}", "Accepted: True")
    browser.shows(f"#profile-{PROFILE}", "scheduled 1")
    browser.find("#pending .group .names a").click()
    browser.shows("#work", "Unschedulable")
    browser.shows("#work", "NodeResourcesFit: cpu: needs 8 cores")
    browser.shows("#work", "0/4 nodes are available")
    browser.find('#nodes input[name="room"]').send_keys("cpu=2", Keys.ENTER)
    browser.shows("#nodes .aside", "7 such pods have room on 4 feasible nodes.")
    amounts = {"cpu": "32", "memory": "16Gi", "pods": "20"}
    status = {"allocatable": amounts, "capacity": amounts}
    large = {"kind": "Node", "metadata": {"name": "page-large"}, "status": status}
    api.create(large)
    browser.shows("#pending", "1 pod in 1 group")
    browser.shows("#nodes", "5 nodes")
    browser.shows("#work", "page-large")
    api.delete(large)


def test_a_lost_connection(browser: Browser, operator: OperatorProcess) -> None:
    """The page reconnects when the operator is restarted."""
    browser.accepted = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION_RESET", "503")
    browser.open(f"{operator.url}/page/")
    browser.shows("#nodes", "4 nodes")
    operator.kill()
    browser.shows(".banner", "Connection lost")
    assert "4 nodes" in browser.text("#nodes")
    operator.start(is_same_port=True)
    browser.shows(".connection", "live")
    assert not browser.all(".banner")


def test_a_leader_change(browser: Browser, plane: ControlPlane, tmp_path: Path) -> None:
    """A standby names the leader, and serves the page after the leader has ended."""
    browser.accept_status(503)
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps({"leaderElection": LEASE}))
    flags = [f"--settings={settings}", "--serve-page"]
    with (
        OperatorProcess(plane.kubeconfig, tmp_path / "one.log", flags) as one,
        OperatorProcess(plane.kubeconfig, tmp_path / "two.log", flags) as two,
    ):
        one.start()
        one.until(lambda: "Leading: Lease" in one.log, "the first replica leads")
        two.start()
        browser.open(f"{two.url}/page/")
        browser.shows(".banner.standby", "Leader:")
        browser.shows(".banner.standby", "port-forward pod/")
        one.terminate()
        browser.shows(".connection", "live")
        browser.shows("#nodes", "4 nodes")
        browser.leave()


def test_login(browser: Browser, plane: ControlPlane, api: ApiClient, namespace: str, tmp_path: Path) -> None:
    """From another host the page needs a token of a user who may list pods and nodes."""
    browser.accept_status(401, 403)
    lists = (resource_rule("list", "pods"), resource_rule("list", "nodes"))
    create_account(api, namespace, "reader", path_rule("/page/data"), *lists)
    create_account(api, namespace, "other")
    flags = ["--serve-page", "--secure-serving", "--authorize-requests"]
    with OperatorProcess(plane.kubeconfig, tmp_path / "operator.log", flags, secure=True) as operator:
        operator.start()
        browser.open(f"{re.sub('127.0.0.1', ELSEWHERE, operator.url)}/page/")
        browser.shows(".login", "Log in")
        browser.find("#token").send_keys("wrong", Keys.ENTER)
        browser.shows(".login", "This token is not accepted.")
        other, reader = (token_of(api, namespace, account) for account in ("other", "reader"))
        paste(browser, other)
        browser.shows(".banner", "Access denied")
        browser.shows(".banner", f"system:serviceaccount:{namespace}:other")
        paste(browser, reader)
        browser.shows("#nodes", "4 nodes")
        assert not browser.all(".login")
        browser.leave()


def paste(browser: Browser, token: str) -> None:
    """Insert a token at once: it has a thousand characters, and typing each costs CPU time."""
    field = browser.find("#token")
    field.click()
    browser.command("Input.insertText", text=token)
    field.send_keys(Keys.ENTER)


def test_hostile_messages(browser: Browser, operator: OperatorProcess, api: ApiClient, namespace: str) -> None:
    """Text that users write into objects is shown as text."""
    waits = pod(namespace, "waits", "8")
    api.create(waits)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": HOSTILE}
    browser.open(f"{operator.url}/page/")
    browser.shows("#pending", "Insufficient cpu")
    api.patch(waits, {"status": {"conditions": [condition]}}, "status")
    browser.shows("#pending", SHOWN[:40])
    assert browser.all("#page img, #page script") == []


@pytest.mark.parametrize("flags", [[], ["--serve-page"]], ids=["without the page", "with the page"])
def test_a_report_of_the_status(
    browser: Browser, plane: ControlPlane, api: ApiClient, namespace: str, *, tmp_path: Path, flags: list[str]
) -> None:
    """The report has the panels of the page even if the operator does not serve it, except for rates."""
    with OperatorProcess(plane.kubeconfig, tmp_path / "operator.log", flags) as operator:
        operator.start()
        for index in range(3):
            api.create(pod(namespace, f"large-{index}", "8"))
        api.create(pod(namespace, "small", "1"))
        operator.until(lambda: queued(operator, "unschedulable") == 3, "three pods are unschedulable")
        scheduled = {"profile": PROFILE, "result": "scheduled"}
        operator.until(
            lambda: operator.metric("scheduler_schedule_attempts_total", **scheduled) == 1, "one pod is bound"
        )
        result = CliRunner().invoke(bayplan, ["status", "--server", operator.url, "-o", "html"])
        assert result.exit_code == 0, result.output
        operator.terminate()
    file = tmp_path / "status.html"
    file.write_text(result.stdout, encoding="utf-8")
    browser.open(file.as_uri())
    browser.shows("h1", "Status of Bayplan")
    browser.shows(".connection", "report of 20")
    browser.shows("#pending", "3 pods in 1 group")
    assert "Nearest miss" in browser.text("#pending")
    assert "oldest" in browser.text("#pending")
    browser.shows("#nodes", "4 nodes, 0 unschedulable, 0 not ready")
    assert "Accepted: True" in browser.text(f"#profile-{PROFILE}")
    assert bool(browser.all("#rates")) == bool(flags)
    browser.find("#pending .group .names a").click()
    browser.shows("#work", "NodeResourcesFit: cpu: needs 8 cores")
    attempts = browser.text("#work [aria-label='Attempts, newest first']")
    assert ("unschedulable" in attempts) == bool(flags), attempts
    assert f"{namespace}/large-1" in browser.text(".tables")
    assert violations(browser) == []


def queued(operator: OperatorProcess, place: str) -> int:
    """Return the number of pods in a place of the queue."""
    found: int = json.loads(operator.get("/debug/status")[1])["places"].get(place, 0)
    return found
