"""The check of placements after each drain reports every violation, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.placements import violations
from benchmarks.workloads import Workload, node, placed, workload_named

NODES = [node(number) for number in range(6)]


def bound(workload: Workload, *node_names: str) -> list[dict[str, Any]]:
    """Return pods of a workload on the given nodes, or pending ones for ""."""
    pods = [workload.pod(number) for number in range(len(node_names))]
    for pod, node_name in zip(pods, node_names, strict=True):
        if node_name:
            pod["spec"]["nodeName"] = node_name
    return pods


@pytest.mark.parametrize(
    ("name", "node_names", "found"),
    [
        pytest.param("basic", ["node-00000", "node-00000"], "", id="all-bound"),
        pytest.param("basic", ["node-00000", ""], "1 pods are bound, and not 2", id="one-is-missing"),
        pytest.param("node-affinity", ["node-00002"], "a node that its affinity excludes", id="wrong-node"),
        pytest.param("node-affinity", ["node-00001"], "", id="right-node"),
        pytest.param("affinity", ["node-00000", "node-00001"], "podAffinity by", id="two-zones"),
        pytest.param("affinity", ["node-00000", "node-00003"], "", id="one-zone"),
        pytest.param("anti-affinity", ["node-00000", "node-00000"], "podAntiAffinity by", id="two-on-one-host"),
        pytest.param("anti-affinity", ["node-00000", "node-00001"], "", id="two-hosts"),
        pytest.param("spread", ["node-00000"] * 6, "a skew of 6", id="skew-exceeded"),
        pytest.param("spread", ["node-00000"] * 5, "", id="skew-allowed"),
        pytest.param("unschedulable", ["", *["node-00000"] * 4], "", id="a-fifth-pending"),
    ],
)
def test_constraints(name: str, node_names: list[str], found: str) -> None:
    """A violated constraint is reported in one sentence."""
    workload = workload_named(name)
    found_texts = violations(workload, NODES, bound(workload, *node_names), len(node_names))
    assert [found in text for text in found_texts] == ([True] if found else [])


def test_overcommitment() -> None:
    """Pods that ran before the drain count too."""
    workload = workload_named("basic")
    pods = [*bound(workload, "node-00001"), placed(0, "node-00001", cpu_milli=31_950, memory_mib=1)]
    assert violations(workload, NODES, pods, 1) == ["overcommitted: node-00001: cpu 32.05 of 32"]


@pytest.mark.parametrize(
    ("mapped", "found"),
    [
        pytest.param("main", [], id="provided by a claim"),
        pytest.param("other", ["overcommitted: node-00000: example.com/gpu 1 of 0"], id="claim of another container"),
        pytest.param("", ["overcommitted: node-00000: example.com/gpu 1 of 0"], id="no claim"),
    ],
)
def test_resources_that_devices_provide(mapped: str, found: list[str]) -> None:
    """A resource that is not allocatable does not count if the status of the pod names its claim."""
    workload = workload_named("basic")
    pods = bound(workload, "node-00000")
    pods[0]["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    if mapped:
        mapping = {"containerName": mapped, "resourceName": "example.com/gpu", "requestName": "r"}
        pods[0]["status"] = {"extendedResourceClaimStatus": {"requestMappings": [mapping]}}
    assert violations(workload, NODES, pods, 1) == found
