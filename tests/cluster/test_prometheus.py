"""Prometheus scrapes an operator through faults: alerts fire while a fault lasts, and end after it.

The durations of the rules are shortened; ``tests/charts/test_alert_rules.py`` has every alert with those of the chart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.api_client import ApiClient, Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK, free_port
from tests.support.extender_server import ExtenderServer
from tests.support.namespaces import new_namespace
from tests.support.operator_process import OperatorProcess
from tests.support.prometheus_server import PrometheusServer
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.prometheus, pytest.mark.timeout(300)]
NAME = "test-prometheus"


class Monitored:
    """An operator with leader election, Prometheus, and the objects of the faults."""

    def __init__(self, plane: ControlPlane, api: ApiClient, directory: Path, prometheus: PrometheusServer) -> None:
        self.plane = plane
        self.api = api
        self.directory = directory
        self.prometheus = prometheus
        flags = ["--leader-elect", f"--namespace={NAME}"]
        self.operator = OperatorProcess(plane.kubeconfig, directory / "operator.log", flags)

    @contextmanager
    def created(self, *manifests: Manifest) -> Iterator[None]:
        with ExitStack() as stack:
            for manifest in manifests:
                self.api.create(manifest)
                stack.callback(self.api.delete, manifest, 0 if manifest["kind"] == "Pod" else None)
            yield

    def until_firing(self, *alerts: str) -> None:
        self.prometheus.until(lambda: self.prometheus.firing() >= set(alerts), f"{alerts} fire")

    def until_ended(self, *alerts: str) -> None:
        self.prometheus.until(lambda: not self.prometheus.firing() & set(alerts), f"{alerts} have ended")


@pytest.fixture(scope="module")
def monitored(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """Run the operator and Prometheus for all tests of this module."""
    directory = tmp_path_factory.mktemp("monitored")
    with new_namespace(plane, NAME), ApiClient(plane) as api, PrometheusServer(directory) as prometheus:
        monitored = Monitored(plane, api, directory, prometheus)
        with monitored.operator, monitored.created(profile(NAME)):
            monitored.operator.start()
            prometheus.scrape({"a": monitored.operator.port})
            prometheus.until(lambda: prometheus.query("bayplan_leader == 1") != [], "the operator leads")
            prometheus.until(lambda: not prometheus.firing(), "no alert fires")
            yield monitored


def resource(kind: str, name: str, **spec: Any) -> Manifest:
    return {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def profile(name: str, **spec: Any) -> Manifest:
    return resource("SchedulerProfile", name, **spec)


def pod(name: str, scheduler_name: str = NAME) -> Manifest:
    spec = {"schedulerName": scheduler_name, "containers": [{"name": "c", "image": "i"}]}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": NAME}, "spec": spec}


# -- faults ---------------------------------------------------------------------------------------------------------


@contextmanager
def stopped(monitored: Monitored) -> Iterator[None]:
    """Stop the only replica."""
    monitored.operator.terminate()
    yield
    monitored.operator.start(is_same_port=True)


@contextmanager
def led_by_another(monitored: Monitored) -> Iterator[None]:
    """Let a process that does not exist hold the Lease, so that the operator is a standby."""
    monitored.operator.terminate()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAME}/leases/bayplan"
    held = {"holderIdentity": "another_1", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
    monitored.api.request("PATCH", path, {"spec": held}, "application/merge-patch+json")
    monitored.operator.start(is_same_port=True)
    yield
    monitored.api.request("DELETE", path)


@contextmanager
def two_without_election(monitored: Monitored) -> Iterator[None]:
    """Run two more replicas without leader election."""
    with ExitStack() as stack:
        ports = {"a": monitored.operator.port}
        for name in ("b", "c"):
            log = monitored.directory / f"{name}.log"
            other = stack.enter_context(
                OperatorProcess(monitored.plane.kubeconfig, log, [f"--namespace={NAME}", "--profiles=served=by-others"])
            )
            other.start()
            ports[name] = other.port
        monitored.prometheus.scrape(ports)
        yield
        monitored.prometheus.scrape({"a": monitored.operator.port})


@contextmanager
def without_profile(monitored: Monitored) -> Iterator[None]:
    monitored.api.delete(profile(NAME))
    yield
    monitored.api.create(profile(NAME))


def invalid_profile(monitored: Monitored) -> AbstractContextManager[None]:
    invalid = profile(f"{NAME}-invalid", plugins={"score": {"enabled": [{"name": "Nonesuch"}]}})
    return monitored.created(invalid)


def invalid_plugin_config(monitored: Monitored) -> AbstractContextManager[None]:
    invalid = resource("PluginConfig", f"{NAME}-invalid", plugin="NodeResourcesFit", args={"nonesuch": 1})
    return monitored.created(invalid)


@contextmanager
def extender_away(monitored: Monitored) -> Iterator[None]:
    """Create a profile with an extender that nothing serves, and pods for it."""
    name = f"{NAME}-extended"
    away = {"urlPrefix": f"http://{LOOPBACK}:{free_port()}", "filterVerb": "filter", "httpTimeout": "1s"}
    with monitored.created(node(), profile(name, extenders=[away]), *(pod(f"away-{n}", name) for n in range(5))):
        yield


@contextmanager
def extender_slow(monitored: Monitored) -> Iterator[None]:
    """Create a profile with an extender that responds after more than a second, and pods for it."""
    name = f"{NAME}-slow"

    def later(body: Any) -> Any:
        time.sleep(1.5)
        return {"nodenames": [], "nodes": {"items": []}, "error": "", "failedNodes": {}} | {"nodes": body.get("nodes")}

    with ExtenderServer() as server:
        server.rules["filter"] = later
        slow = {"urlPrefix": server.url, "filterVerb": "filter", "httpTimeout": "10s"}
        slow_profile = profile(name, extenders=[slow], podInitialBackoffSeconds=1, podMaxBackoffSeconds=1)
        with monitored.created(node(), slow_profile, *(pod(f"slow-{n}", name) for n in range(12))):
            yield


@contextmanager
def unreadable_pod(monitored: Monitored) -> Iterator[None]:
    """Create a pod with a year that the API server accepts and Python does not."""
    odd = pod("odd", "no-scheduler")
    with monitored.created(odd):
        monitored.api.patch(odd, {"status": {"startTime": "0000-01-01T00:00:00Z"}}, "status")
        yield


def node() -> Manifest:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": f"{NAME}-node"},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


Fault = Callable[[Monitored], AbstractContextManager[None]]


@table(
    "fault, alerts",
    ("no replica", stopped, ("BayplanDown", "BayplanReplicaDown")),
    ("no leader", led_by_another, ("BayplanNoLeader",)),
    ("several leaders", two_without_election, ("BayplanSeveralLeaders",)),
    ("no profile", without_profile, ("BayplanNoProfileLive",)),
    ("invalid profile", invalid_profile, ("BayplanProfileNotAccepted", "BayplanProfileNotReady")),
    ("invalid PluginConfig", invalid_plugin_config, ("BayplanPluginConfigInvalid",)),
    ("extender away", extender_away, ("BayplanExtenderAway", "BayplanSchedulingErrors")),
    ("extender slow", extender_slow, ("BayplanSchedulingSlow",)),
    ("unreadable pod", unreadable_pod, ("BayplanObjectsUnreadable",)),
)
def test_alerts_follow_a_fault(monitored: Monitored, fault: Fault, alerts: tuple[str, ...]) -> None:
    """The alerts of a fault do not fire before it, fire while it lasts, and end after it."""
    assert not monitored.prometheus.firing() & set(alerts)
    with fault(monitored):
        monitored.until_firing(*alerts)
    monitored.until_ended(*alerts)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_frozen_api_server(monitored: Monitored) -> None:
    """While the API server is frozen, watches are silent: readiness fails with the reason, an alert fires; both end."""
    operator = OperatorProcess(
        monitored.plane.kubeconfig,
        monitored.directory / "frozen.log",
        [f"--namespace={NAME}", "--profiles=served=by-others", "--max-watch-silence=90"],
    )
    with operator:
        operator.start()
        monitored.prometheus.scrape({"b": operator.port})
        monitored.plane.apiserver.pause()
        try:
            began = time.monotonic()
            while not monitored.prometheus.firing() & {"BayplanWatchSilent"}:
                assert time.monotonic() - began < 500
                time.sleep(1)
            status, text = operator.get("/readyz")
            assert status == 503
            assert "not ready: pods are stale: no event or bookmark for " in text
        finally:
            monitored.plane.apiserver.resume()
        monitored.until_ended("BayplanWatchSilent")
        operator.wait_until_ready()
