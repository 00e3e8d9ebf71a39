"""A cluster of realistic size, in the format of ``kubectl get nodes,pods -o json``.

Nodes and pods have the proportions of a public trace of a GPU cluster: four of five nodes have GPUs, three of four pods
request at least one. All values are functions of the index, so that every call returns the same text.
"""

from __future__ import annotations

import json
from typing import Any

GPU = "nvidia.com/gpu"
Document = dict[str, Any]


def gpu_cluster(nodes: int, pods: int) -> str:
    """Return a List of nodes and pending pods.

    One pod in 40 selects a pool without nodes, one in 100 has a scheduling gate, and one in 200 names a scheduler
    without a profile. The pods request more GPUs than the nodes have.
    """
    items = [*(_node(number) for number in range(nodes)), *(_pod(number) for number in range(pods))]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _node(number: int) -> Document:
    gpus = 0 if number % 5 == 0 else (2, 2, 4, 8)[number % 4]
    allocatable = {"cpu": str((32, 64, 96)[number % 3]), "memory": f"{(128, 256, 384)[number % 3]}Gi", "pods": "110"}
    if gpus:
        allocatable[GPU] = str(gpus)
    name = f"node-{number:04d}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "pool": "gpu" if gpus else "cpu"}},
        "status": {"allocatable": allocatable},
    }


def _pod(number: int) -> Document:
    gpus = (0, 1, 1, 2)[number % 4]
    requests = {"cpu": str((2, 4, 6, 12)[number % 4]), "memory": f"{(4, 8, 16)[number % 3]}Gi"}
    if gpus:
        requests[GPU] = str(gpus)
    spec: Document = {
        "containers": [{"name": "main", "image": "x", "resources": {"requests": requests, "limits": requests}}]
    }
    if number % 40 == 7:
        spec["nodeSelector"] = {"pool": "retired"}
    if number % 100 == 11:
        spec["schedulingGates"] = [{"name": "example.com/quota"}]
    if number % 200 == 13:
        spec["schedulerName"] = "nightly"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"task-{number:04d}", "namespace": f"team-{number % 7}"},
        "spec": spec,
    }
