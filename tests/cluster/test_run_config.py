"""``bayplan run --config`` on a real API server, and leader election between two processes."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import binaries
from hack.controlplane.accounts import bind_responses
from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

ELECTION = {"leaseDuration": "8s", "renewDeadline": "6s", "retryPeriod": "500ms", "resourceNamespace": "default"}
LOGGED_SECONDS = 60.0
CONFIGURATIONS: dict[str, Manifest] = {
    "empty": {},
    "everything": {
        "delayCacheUntilActive": True,
        "enableProfiling": False,
        "percentageOfNodesToScore": 40,
        "leaderElection": {"leaderElect": False, "leaseDuration": "90s"},
        "clientConnection": {"qps": 30.5},
        "profiles": [
            {
                "schedulerName": "one",
                "percentageOfNodesToScore": 7,
                "plugins": {
                    "score": {
                        "enabled": [{"name": "NodeResourcesFit", "weight": 5}, {"name": "TaintToleration"}],
                        "disabled": [{"name": "ImageLocality"}],
                    },
                    "multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 9}]},
                    "filter": {"enabled": [{"name": "NodeName"}], "disabled": [{"name": "*"}]},
                },
                "pluginConfig": [
                    {
                        "name": "NodeResourcesFit",
                        "args": {
                            "ignoredResources": ["example.com/other"],
                            "scoringStrategy": {
                                "type": "RequestedToCapacityRatio",
                                "resources": [{"name": "cpu"}],
                                "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}]},
                            },
                        },
                    },
                    {"name": "DynamicResources", "args": {"filterTimeout": "90s"}},
                    {
                        "name": "PodTopologySpread",
                        "args": {
                            "defaultingType": "List",
                            "defaultConstraints": [
                                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                            ],
                        },
                    },
                ],
            },
            {
                "schedulerName": "two",
                "plugins": {
                    "multiPoint": {
                        "enabled": [{"name": "NodeResourcesFit"}, {"name": "DefaultBinder"}, {"name": "PrioritySort"}],
                        "disabled": [{"name": "*"}],
                    }
                },
            },
        ],
        "extenders": [
            {
                "urlPrefix": "http://127.0.0.1:1",
                "prioritizeVerb": "rank",
                "weight": 2,
                "managedResources": [{"name": "example.com/licence", "ignoredByScheduler": True}],
                "tlsConfig": {"insecure": True},
            },
            {"urlPrefix": "http://127.0.0.1:2", "httpTimeout": "250ms", "ignorable": True},
        ],
    },
}


class Cluster:
    """A node and pods of one test.

    Args:
        directory: Directory for configurations and logs.
    """

    def __init__(self, plane: ControlPlane, api: ApiClient, namespace: str, directory: Path) -> None:
        self.plane = plane
        self.api = api
        self.namespace = namespace
        self.directory = directory

    def configuration(self, name: str = "default-scheduler", **more: Any) -> Path:
        """Write a configuration of one profile with leader election on a Lease of this test, and return its path."""
        file = self.directory / "kube.yaml"
        client = {"kubeconfig": str(self.plane.kubeconfig)}
        election = {**ELECTION, "resourceName": self.namespace}
        fields = {"clientConnection": client, "leaderElection": election, "profiles": [{"schedulerName": name}]}
        fields |= more
        file.write_text(yaml.safe_dump(_configuration(**fields)))
        return file

    def process(self, name: str, configuration: Path) -> OperatorProcess:
        """Create a process without starting it."""
        return OperatorProcess(
            self.plane.kubeconfig, self.directory / f"{name}.log", [f"--config={configuration}", "--log-level=debug"]
        )

    def pods(self, *names: str, scheduler: str = "default-scheduler") -> None:
        fields = {"cpu": "10m", "spec": {"schedulerName": scheduler, "nodeSelector": {"for": self.namespace}}}
        self.api.create_all(pod_manifest(name, self.namespace, fields) for name in names)

    def placed(self, *names: str) -> None:
        """Wait until pods are bound."""
        pods = [f"pod/{name}" for name in names]
        flags = ("--for=condition=PodScheduled", "--timeout=60s", f"--namespace={self.namespace}")
        self.plane.kubectl("wait", *flags, *pods)

    def lease(self) -> Manifest:
        path = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{self.namespace}"
        spec: Manifest = self.api.get(path)["spec"]
        return spec

    def bindings(self) -> Counter[str]:
        """Return how often each pod was bound successfully, from the API server's audit log."""
        return bind_responses(self.plane.audit_events(), self.namespace)[201]

    def until_logged(self, *names: str) -> None:
        """Wait until the audit log has a bind of each pod; an entry is written after its response."""
        deadline = time.monotonic() + LOGGED_SECONDS
        while not self.bindings().keys() >= set(names):
            assert time.monotonic() < deadline, f"not logged: {set(names) - self.bindings().keys()}"
            time.sleep(0.05)


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Cluster]:
    node = node_manifest(namespace, {"cpu": "64", "pods": "500", "labels": {"for": namespace}})
    with ApiClient(control_plane) as api:
        api.create(node)
        yield Cluster(control_plane, api, namespace, tmp_path)
        api.delete(node)


def nodes_in_cache(process: OperatorProcess) -> int:
    """Return the number of nodes in a process's cache."""
    nodes: int = json.loads(process.get("/debug/status")[1])["cache"]["nodes"]
    return nodes


def _configuration(**fields: Any) -> Manifest:
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}


def test_it_replaces_kube_scheduler(cluster: Cluster) -> None:
    """The holder of the Lease binds a pod with the default schedulerName, and releases the Lease on exit."""
    with cluster.process("only", cluster.configuration()) as process:
        process.start()
        cluster.pods("p")
        cluster.placed("p")
        assert cluster.lease()["holderIdentity"]
        code, _ = process.terminate()
    assert code == 0
    assert not cluster.lease()["holderIdentity"]
    cluster.until_logged("p")
    assert cluster.bindings() == {"p": 1}


@table("is_cold", ("with warm caches", False), ("delayCacheUntilActive", True))
def test_a_standby_takes_over(cluster: Cluster, is_cold: bool) -> None:
    """When the leader is killed, the ready standby schedules; no pod is lost or bound twice."""
    scheduler = f"sched-{cluster.namespace}"
    configuration = cluster.configuration(scheduler, delayCacheUntilActive=is_cold)
    before = [f"before{index}" for index in range(20)]
    after = [f"after{index}" for index in range(20)]
    with cluster.process("first", configuration) as first, cluster.process("second", configuration) as second:
        first.start()
        first.until(lambda: first.get("/readyz") == (200, "ok\n"), "the first leads")
        leader = cluster.lease()["holderIdentity"]
        second.start()
        second.until(lambda: f"standby, {leader} leads" in second.get("/readyz")[1], "the second stands by")
        if is_cold:
            assert nodes_in_cache(second) == 0, "a standby with delayCacheUntilActive reads nothing"
        else:
            second.until(lambda: nodes_in_cache(second) > 0, "a warm standby has the node in its cache")
        cluster.pods(*before, scheduler=scheduler)
        first.kill()
        cluster.pods(*after, scheduler=scheduler)
        cluster.placed(*before, *after)
        second.until(lambda: second.get("/readyz") == (200, "ok\n"), "the second leads")
        lease = cluster.lease()
        code, _ = second.terminate()
    assert code == 0
    assert lease["holderIdentity"] != leader
    assert lease["leaseTransitions"] == 1
    cluster.until_logged(*after)
    bindings = cluster.bindings()
    assert set(bindings.values()) == {1}
    # For the one bind in progress when the process was killed, the audit log may have no success.
    assert set(after) <= bindings.keys() <= {*before, *after}


def test_a_leader_that_loses_its_lease_exits(cluster: Cluster) -> None:
    """A process whose Lease is taken exits with an error, so that it is restarted as a standby."""
    with cluster.process("robbed", cluster.configuration(f"sched-{cluster.namespace}")) as process:
        process.start()
        process.until(lambda: process.get("/readyz") == (200, "ok\n"), "the process leads")
        patch = '{"spec":{"holderIdentity":"thief"}}'
        cluster.plane.kubectl("patch", "lease", cluster.namespace, "--namespace=default", f"--patch={patch}")
        assert process.wait() == 1
    assert '"thief" holds it' in process.log


@pytest.mark.kube_scheduler
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_completed_configuration_is_kube_schedulers(control_plane: ControlPlane, tmp_path: Path, name: str) -> None:
    """Bayplan and kube-scheduler print the same completed configuration."""
    fields = CONFIGURATIONS[name]
    client = {**fields.get("clientConnection", {}), "kubeconfig": str(control_plane.kubeconfig)}
    source = tmp_path / "kube.yaml"
    source.write_text(yaml.safe_dump(_configuration(**{**fields, "clientConnection": client})))
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    reference = binaries.resolve(["kube-scheduler"], binaries.NEWEST)["kube-scheduler"]
    _run([str(reference), f"--config={source}", f"--write-config-to={theirs}", "--secure-port=0"], tmp_path)
    with OperatorProcess(control_plane.kubeconfig, tmp_path / "log", [f"--config={source}"]) as process:
        process.start(f"--write-config-to={ours}", wait=False)
        assert process.wait() == 0, process.log
    assert ours.read_text() == theirs.read_text()


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
