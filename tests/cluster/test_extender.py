"""Extenders on a real API server: their decisions under kube-scheduler and Bayplan, and their failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.api_client import address, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.schedulers import install_crds
from tests.support.extender_cluster import BAYPLAN, KUBE_SCHEDULER, ExtenderCluster
from tests.support.extender_server import ExtenderServer, Reply, names_of, passes_only
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster

BOTH = [
    pytest.param(BAYPLAN, id="bayplan"),
    pytest.param(KUBE_SCHEDULER, id="kube-scheduler", marks=pytest.mark.kube_scheduler),
]


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[ExtenderCluster]:
    cluster = ExtenderCluster(control_plane, namespace, tmp_path)
    yield cluster
    cluster.clean_up()


@pytest.fixture
def server() -> Iterator[ExtenderServer]:
    with ExtenderServer() as server:
        yield server


def extender(url: str, *verbs: str, **fields: Any) -> Manifest:
    return {
        "urlPrefix": url,
        **{f"{verb}Verb": verb for verb in verbs},
        "nodeCacheCapable": True,
        "httpTimeout": "20s",
        **fields,
    }


def prefers(node: str, score: int = 10) -> Any:
    """Return a prioritize rule that scores the node with the given short name."""
    return lambda body: [{"Host": name, "Score": score * name.endswith(f"-{node}")} for name in names_of(body)]


@pytest.mark.parametrize("kind", BOTH)
def test_a_filter_decides_the_node(cluster: ExtenderCluster, server: ExtenderServer, kind: str) -> None:
    """The pod is bound to the node that the extender leaves; if none is left, its message has the extender's reason."""
    nodes = {short: cluster.node(short) for short in "abc"}
    only_b = passes_only(nodes["b"])
    none = passes_only()
    server.rules["filter"] = lambda body: (only_b if body["Pod"]["metadata"]["name"] == "p" else none)(body)
    with cluster.scheduler(kind, [extender(server.url, "filter", nodeCacheCapable=False)]):
        cluster.pod("p")
        assert cluster.node_of("p") == "b"
        cluster.pod("q", nodeSelector={"for": cluster.namespace})
        assert "3 not licensed" in cluster.unscheduled_message("q")


@pytest.mark.parametrize("kind", BOTH)
def test_scores_count_by_weight(cluster: ExtenderCluster, server: ExtenderServer, kind: str) -> None:
    """Scores are multiplied by the extender's weight; an extender that fails is left out."""
    for short in "abc":
        cluster.node(short)
    server.rules |= {"light/prioritize": prefers("a"), "heavy/prioritize": prefers("b")}
    server.rules["broken/prioritize"] = lambda _: Reply(status=500)
    extenders = [
        extender(f"{server.url}/light", "prioritize", weight=10),
        extender(f"{server.url}/heavy", "prioritize", weight=30),
        extender(f"{server.url}/broken", "prioritize", weight=90),
    ]
    with cluster.scheduler(kind, extenders):
        cluster.pod("p")
        assert cluster.node_of("p") == "b"


@pytest.mark.parametrize("kind", BOTH)
def test_managed_resources(cluster: ExtenderCluster, server: ExtenderServer, kind: str) -> None:
    """Only pods that request the managed resource are sent; NodeResourcesFit skips it by ignoredByScheduler."""
    nodes = {short: cluster.node(short) for short in "ab"}
    server.rules["filter"] = passes_only(nodes["a"])
    managed = [{"name": "example.com/licence", "ignoredByScheduler": True}]
    with cluster.scheduler(kind, [extender(server.url, "filter", managedResources=managed)]):
        cluster.pod("plain", nodeSelector={"for": cluster.namespace, "node": "b"})
        assert cluster.node_of("plain") == "b"
        assert server.calls == []
        cluster.pod("licensed", {"example.com/licence": "9"})
        assert cluster.node_of("licensed") == "a"
    assert {body["Pod"]["metadata"]["name"] for body in server.bodies("filter")} == {"licensed"}


@pytest.mark.parametrize("kind", BOTH)
def test_an_ignorable_extender(cluster: ExtenderCluster, server: ExtenderServer, kind: str) -> None:
    """Pods are scheduled by the other extenders while an ignorable one is unreachable."""
    nodes = {short: cluster.node(short) for short in "ab"}
    server.rules["filter"] = passes_only(nodes["b"])
    unreachable = extender(f"http://127.0.0.1:{free_port()}", "filter", ignorable=True)
    with cluster.scheduler(kind, [unreachable, extender(server.url, "filter")]):
        cluster.pod("p")
        assert cluster.node_of("p") == "b"


@pytest.mark.parametrize("kind", BOTH)
def test_an_extender_that_binds(cluster: ExtenderCluster, server: ExtenderServer, kind: str) -> None:
    """The extender creates the binding; after a refusal the pod is requeued, and the next attempt succeeds."""
    cluster.node("a")
    refusals = ["not yet"]

    def bind(body: Any) -> Any:
        if refusals:
            return {"Error": refusals.pop()}
        cluster.bind(body)
        return {}

    server.rules["bind"] = bind
    with cluster.scheduler(kind, [extender(server.url, "bind")]):
        cluster.pod("p")
        assert cluster.node_of("p") == "a"
    assert [body["PodName"] for body in server.bodies("bind")] == ["p", "p"]


@pytest.mark.parametrize("kind", BOTH)
def test_an_extender_that_chooses_victims(cluster: ExtenderCluster, server: ExtenderServer, kind: str) -> None:
    """Of two candidates for preemption, the one that the extender leaves loses its victim and gets the preemptor."""
    low, high = cluster.priority("low", 1), cluster.priority("high", 100)
    for short in "ab":
        cluster.pod(f"on-{short}", {"cpu": "1"}, priorityClassName=low, nodeName=cluster.node(short, cpu="1"))

    def preempt(body: Any) -> Any:
        found = body["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {name: found[name] for name in found if name.endswith("-b")}}

    server.rules["preempt"] = preempt
    with cluster.scheduler(kind, [extender(server.url, "preempt")]):
        cluster.pod("p", {"cpu": "1"}, priorityClassName=high)
        assert cluster.node_of("p") == "b"
    left = cluster.api.items(f"/api/v1/namespaces/{cluster.namespace}/pods")
    assert {pod["metadata"]["name"] for pod in left} == {"on-a", "p"}
    body, *_ = server.bodies("preempt")
    assert len(body["NodeNameToMetaVictims"]) == 2


# -- Bayplan only ---------------------------------------------------------------------------------------------------


@pytest.fixture
def operator(control_plane: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    """Start an operator that reads SchedulerProfiles."""
    install_crds(control_plane)
    with OperatorProcess(control_plane.kubeconfig, tmp_path / "operator.log") as process:
        process.start()
        yield process


class Profile:
    """A SchedulerProfile for the test's pods."""

    def __init__(self, cluster: ExtenderCluster) -> None:
        self._cluster = cluster
        metadata = {"name": cluster.namespace}
        self.manifest = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": metadata}

    def apply(self, *extenders: Manifest) -> None:
        spec = {"extenders": list(extenders), "podMaxBackoffSeconds": 1}
        generation = self._cluster.api.apply(self.manifest | {"spec": spec})["metadata"]["generation"]
        self._cluster.until(lambda: self.status.get("observedGeneration") == generation, "the profile is observed")

    @property
    def status(self) -> Any:
        return status_of(self._cluster.api.get(address(self.manifest)))

    def condition(self, kind: str) -> Any:
        return condition_of(self._cluster.api.get(address(self.manifest)), kind)

    def until_circuit(self, state: str) -> Any:
        def entry() -> Any:
            return (self.status.get("extenders") or [{}])[0]

        self._cluster.until(lambda: entry().get("state") == state, f"the circuit is {state}")
        return entry()


@pytest.fixture
def profile(cluster: ExtenderCluster, operator: OperatorProcess) -> Iterator[Profile]:
    profile = Profile(cluster)
    yield profile
    cluster.api.delete(profile.manifest)


def test_an_extender_that_restarts(
    cluster: ExtenderCluster, server: ExtenderServer, profile: Profile, operator: OperatorProcess
) -> None:
    """Pods fail with the extender's error and its circuit opens; after its restart they are bound and it closes."""
    nodes = {short: cluster.node(short) for short in "ab"}
    server.rules["filter"] = passes_only(nodes["a"])
    profile.apply(extender(server.url, "filter"))
    assert profile.until_circuit("Closed") == {"urlPrefix": server.url, "state": "Closed"}
    server.stop()
    for index in range(3):
        cluster.pod(f"p{index}")
    entry = profile.until_circuit("Open")
    assert entry["since"]
    assert entry["lastError"].startswith("call to filter failed: ")
    assert server.url in cluster.unscheduled_message("p0")
    assert operator.metric("bayplan_extender_circuit_open", extender=server.url) == 1
    server.start()
    assert {cluster.node_of(f"p{index}") for index in range(3)} == {"a"}
    assert profile.until_circuit("Closed")["lastError"].startswith("call to filter failed: ")
    assert operator.metric("bayplan_extender_circuit_open", extender=server.url) == 0
    assert operator.metric("bayplan_extender_errors_total", extender=server.url, verb="filter") >= 5
    count = operator.metric("bayplan_extender_request_duration_seconds_count", extender=server.url, verb="filter")
    assert count >= 8


def test_an_edit_changes_the_extenders(cluster: ExtenderCluster, server: ExtenderServer, profile: Profile) -> None:
    """An extender added to a live profile receives pods and nodes from before; a wrong certificate path is rejected."""
    nodes = {short: cluster.node(short) for short in "ab"}
    cluster.pod("early", nodeSelector={"for": cluster.namespace, "node": "c"})
    profile.apply()
    server.rules["filter"] = passes_only(nodes["b"])
    profile.apply(extender(server.url, "filter", nodeCacheCapable=False))
    cluster.pod("p")
    assert cluster.node_of("p") == "b"
    cluster.node("c")
    cluster.until(
        lambda: "early" in {body["Pod"]["metadata"]["name"] for body in server.bodies("filter")},
        "the earlier pod is sent",
    )
    bad = extender(server.url, "filter", tlsConfig={"caFile": "/nonexistent/ca.crt"})
    profile.apply(bad)
    assert "caFile: must be in /etc/bayplan-extenders" in profile.condition("Accepted")["message"]
    assert profile.condition("Ready")["reason"] == "LastGoodRevision"
    cluster.pod("q")
    assert cluster.node_of("q") == "b"
