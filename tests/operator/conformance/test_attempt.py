"""Tests of running a case."""

import json
from typing import Any

import pytest
from bayplan.conformance.attempt import attempt_case
from bayplan.conformance.cases import decode_case

from scheduler_core.cycle.examination import Examination
from scheduler_core.errors import ConfigError
from scheduler_core.in_tree import default_plugins, in_tree_registry


def a_node(name: str, cpu: str = "4") -> dict[str, Any]:
    """A node with that much CPU."""
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}


def a_pod(name: str, cpu: str = "1", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that asks for that much CPU."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status or {}}


def attempted(**case: Any) -> Examination:
    """Run a case."""
    line = json.dumps({"name": "c", **case}).encode()
    return attempt_case(decode_case(line), in_tree_registry(), default_plugins()).examination


def test_running_pods_take_their_place() -> None:
    """Pods with a node are accounted there."""
    found = attempted(pod=a_pod("p"), nodes=[a_node("full"), a_node("free")], pods=[a_pod("r", "4", nodeName="full")])
    assert found.feasible == ("free",)


def test_ended_pods_do_not_exist() -> None:
    """Pods that have ended take nothing."""
    ended = a_pod("r", "4", nodeName="n", status={"phase": "Failed"})
    assert attempted(pod=a_pod("p"), nodes=[a_node("n")], pods=[ended]).feasible == ("n",)


def test_nominated_pods_keep_their_place() -> None:
    """What is promised to a pod of higher priority is not free."""
    promised = a_pod("r", "4", priority=10, status={"nominatedNodeName": "n"})
    found = attempted(pod=a_pod("p", priority=1), nodes=[a_node("n")], pods=[promised])
    assert found.rejected["n"].reasons == ("Insufficient cpu",)


def test_nominated_pods_of_other_profiles_keep_their_place() -> None:
    """All profiles of a case are live, as they are in one kube-scheduler."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}],
    }
    promised = a_pod("r", "4", priority=10, schedulerName="a", status={"nominatedNodeName": "n"})
    pod = a_pod("p", priority=1, schedulerName="b")
    found = attempted(pod=pod, nodes=[a_node("n")], pods=[promised], profile=profile)
    assert found.rejected["n"].reasons == ("Insufficient cpu",)


def test_one_case_does_not_reach_the_next() -> None:
    """Each case has a cluster of its own."""
    attempted(pod=a_pod("p"), nodes=[a_node("n")], pods=[a_pod("r", "4", nodeName="n")])
    assert attempted(pod=a_pod("p"), nodes=[a_node("n")]).feasible == ("n",)


def test_all_nodes_are_looked_at() -> None:
    """A percentage in the case's configuration does not hide nodes."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 1,
    }
    nodes = [a_node(f"n{number}") for number in range(120)]
    assert len(attempted(pod=a_pod("p"), nodes=nodes, profile=profile).feasible) == 120


def test_what_plugins_say_has_its_path_in_the_configuration() -> None:
    """The second profile's problem is told as the second profile's."""
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
