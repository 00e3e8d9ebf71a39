"""Nodes and pods of the benchmarks; the same number always gives the same object."""

import json
from typing import Any

ZONES = 3
NAMESPACE = "default"
SCHEDULER_NAME = "bench"
APP = "bench"
NODES_PATH = "/api/v1/nodes"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"

Document = dict[str, Any]


def node(number: int) -> Document:
    """Make a node of 32 CPUs and 128 GiB in one of three zones."""
    name = f"node-{number:05d}"
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % ZONES}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(number: int, spec: Document | None = None, *, cpu_milli: int = 100, memory_mib: int = 200) -> Document:
    requests = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:06d}", "namespace": NAMESPACE, "labels": {"app": APP}},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container], **(spec or {})},
    }


def encoded(document: Document) -> bytes:
    return json.dumps(document).encode()
