"""The check of placements after each drain reports every violation, and nothing else."""

from __future__ import annotations

from typing import Any

from benchmarks.placements import violations
from benchmarks.workloads import Workload, node, placed, workload_named
from tests.support.tables import table

NODES = [node(number) for number in range(6)]


def bound(workload: Workload, *node_names: str) -> list[dict[str, Any]]:
    """Return pods of a workload on the given nodes, or pending ones for ""."""
    pods = [workload.pod(number) for number in range(len(node_names))]
    for pod, node_name in zip(pods, node_names, strict=True):
        if node_name:
            pod["spec"]["nodeName"] = node_name
    return pods


@table(
    "name, node_names, found",
    ("all-bound", "basic", ["node-00000", "node-00000"], ""),
    ("one-is-missing", "basic", ["node-00000", ""], "1 pods are bound, and not 2"),
    ("wrong-node", "node-affinity", ["node-00002"], "a node that its affinity excludes"),
    ("right-node", "node-affinity", ["node-00001"], ""),
    ("two-zones", "affinity", ["node-00000", "node-00001"], "podAffinity by"),
    ("one-zone", "affinity", ["node-00000", "node-00003"], ""),
    ("two-on-one-host", "anti-affinity", ["node-00000", "node-00000"], "podAntiAffinity by"),
    ("two-hosts", "anti-affinity", ["node-00000", "node-00001"], ""),
    ("skew-exceeded", "spread", ["node-00000"] * 6, "a skew of 6"),
    ("skew-allowed", "spread", ["node-00000"] * 5, ""),
    ("a-fifth-pending", "unschedulable", ["", *["node-00000"] * 4], ""),
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


@table(
    "mapped, found",
    ("provided by a claim", "main", []),
    ("claim of another container", "other", ["overcommitted: node-00000: example.com/gpu 1 of 0"]),
    ("no claim", "", ["overcommitted: node-00000: example.com/gpu 1 of 0"]),
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
