"""Tests of running a case."""

import json
from typing import Any

import pytest
from bayplan.conformance.attempt import attempt_case
from bayplan.conformance.cases import decode_case

from scheduler_core.errors import ConfigError
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.in_tree import default_plugins, in_tree_registry


def a_node(name: str, cpu: str = "4") -> dict[str, Any]:
    """Return a node with that much CPU."""
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}


def a_pod(name: str, cpu: str = "1", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod that requests that much CPU."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status or {}}


def attempted(**case: Any) -> Examination:
    """Run a case."""
    line = json.dumps({"name": "c", **case}).encode()
    return attempt_case(decode_case(line), in_tree_registry(), default_plugins()).examination


def test_running_pods_use_resources() -> None:
    """Pods with a node are counted there."""
    found = attempted(pod=a_pod("p"), nodes=[a_node("full"), a_node("free")], pods=[a_pod("r", "4", nodeName="full")])
    assert found.feasible == ("free",)


def test_ended_pods_do_not_exist() -> None:
    """Pods that have ended use nothing."""
    ended = a_pod("r", "4", nodeName="n", status={"phase": "Failed"})
    assert attempted(pod=a_pod("p"), nodes=[a_node("n")], pods=[ended]).feasible == ("n",)


def test_nominated_pods_use_resources() -> None:
    """What a nominated pod of higher priority requests is not free."""
    nominated = a_pod("r", "4", priority=10, status={"nominatedNodeName": "n"})
    found = attempted(pod=a_pod("p", priority=1), nodes=[a_node("n")], pods=[nominated])
    assert found.rejected["n"].reasons == ("Insufficient cpu",)


def test_nominated_pods_of_other_profiles_use_resources() -> None:
    """All profiles of a case are live, as they are in one kube-scheduler."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}],
    }
    nominated = a_pod("r", "4", priority=10, schedulerName="a", status={"nominatedNodeName": "n"})
    pod = a_pod("p", priority=1, schedulerName="b")
    found = attempted(pod=pod, nodes=[a_node("n")], pods=[nominated], profile=profile)
    assert found.rejected["n"].reasons == ("Insufficient cpu",)


def test_one_case_does_not_reach_the_next() -> None:
    """Each case has its own cluster."""
    attempted(pod=a_pod("p"), nodes=[a_node("n")], pods=[a_pod("r", "4", nodeName="n")])
    assert attempted(pod=a_pod("p"), nodes=[a_node("n")]).feasible == ("n",)


def test_all_nodes_are_evaluated() -> None:
    """A percentage in the case's configuration does not hide nodes."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 1,
    }
    nodes = [a_node(f"n{number}") for number in range(120)]
    assert len(attempted(pod=a_pod("p"), nodes=nodes, profile=profile).feasible) == 120


def test_problems_of_plugins_have_their_path_in_the_configuration() -> None:
    """A problem of the second profile has the second profile's path."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "a"},
            {"schedulerName": "b", "plugins": {"filter": {"enabled": [{"name": "Nobody"}]}}},
        ],
    }
    with pytest.raises(ConfigError) as caught:
        attempted(pod=a_pod("p", schedulerName="b"), nodes=[a_node("n")], pods=[], profile=profile)
    assert [problem.path for problem in caught.value.problems] == ["profiles[1].plugins.filter.enabled[0].name"]
