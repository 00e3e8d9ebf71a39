"""Tests of running a conformance case."""

import json
from typing import Any

import pytest

from scheduler_core.errors import ConfigError
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.in_tree import default_plugins, in_tree_registry
from tests.parity.conformance.attempt import attempt_case
from tests.parity.conformance.cases import decode_case


def node_json(name: str, cpu: str = "4") -> dict[str, Any]:
    """Return a node with this much CPU."""
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}


def pod_json(name: str, cpu: str = "1", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod that requests this much CPU."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status or {}}


def examine_case(**case: Any) -> Examination:
    """Run a case and return its examination."""
    line = json.dumps({"name": "c", **case}).encode()
    return attempt_case(decode_case(line), in_tree_registry(), default_plugins()).examination


def test_running_pods_use_resources() -> None:
    """A running pod uses resources of its node."""
    found = examine_case(
        pod=pod_json("p"), nodes=[node_json("full"), node_json("free")], pods=[pod_json("r", "4", nodeName="full")]
    )
    assert found.feasible == ("free",)


def test_terminated_pods_use_no_resources() -> None:
    """A terminated pod uses no resources."""
    terminated = pod_json("r", "4", nodeName="n", status={"phase": "Failed"})
    assert examine_case(pod=pod_json("p"), nodes=[node_json("n")], pods=[terminated]).feasible == ("n",)


def test_nominated_pods_use_resources() -> None:
    """The requests of a nominated pod with higher priority are not free."""
    nominated = pod_json("r", "4", priority=10, status={"nominatedNodeName": "n"})
    found = examine_case(pod=pod_json("p", priority=1), nodes=[node_json("n")], pods=[nominated])
    assert found.rejected["n"].reasons == ("Insufficient cpu",)


def test_nominated_pods_of_other_profiles_use_resources() -> None:
    """The requests of a nominated pod of another profile of the case are not free, as in kube-scheduler."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}],
    }
    nominated = pod_json("r", "4", priority=10, schedulerName="a", status={"nominatedNodeName": "n"})
    pod = pod_json("p", priority=1, schedulerName="b")
    found = examine_case(pod=pod, nodes=[node_json("n")], pods=[nominated], profile=profile)
    assert found.rejected["n"].reasons == ("Insufficient cpu",)


def test_cases_are_independent() -> None:
    """Each case has its own cluster."""
    examine_case(pod=pod_json("p"), nodes=[node_json("n")], pods=[pod_json("r", "4", nodeName="n")])
    assert examine_case(pod=pod_json("p"), nodes=[node_json("n")]).feasible == ("n",)


def test_all_nodes_are_evaluated() -> None:
    """All nodes are evaluated, whatever percentage the case's configuration has."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 1,
    }
    nodes = [node_json(f"n{number}") for number in range(120)]
    assert len(examine_case(pod=pod_json("p"), nodes=nodes, profile=profile).feasible) == 120


def test_problems_of_plugins_have_their_path_in_the_configuration() -> None:
    """A problem of a plugin has its path in the configuration."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "a"},
            {"schedulerName": "b", "plugins": {"filter": {"enabled": [{"name": "Nobody"}]}}},
        ],
    }
    with pytest.raises(ConfigError) as caught:
        examine_case(pod=pod_json("p", schedulerName="b"), nodes=[node_json("n")], pods=[], profile=profile)
    assert [problem.path for problem in caught.value.problems] == ["profiles[1].plugins.filter.enabled[0].name"]
