"""Objects of the demo as plain documents: nodes in three zones and pods for two profiles."""

import json
from typing import Any

ZONES = ("zone-a", "zone-b", "zone-c")

Document = dict[str, Any]


def nodes(count: int) -> str:
    """Return ready nodes of 8 CPUs and 32 GiB, spread over the zones.

    Returns:
        A JSON list for kubectl.
    """
    return _list([_node(number) for number in range(count)])


def pods(prefix: str, scheduler_name: str, count: int, cpu: str = "250m") -> str:
    """Return pods with equal requests.

    Args:
        cpu: CPU request of each; the memory request is 512 MiB.

    Returns:
        A JSON list for kubectl.
    """
    return _list([_pod(f"{prefix}-{number:03d}", scheduler_name, cpu) for number in range(count)])


def _list(items: list[Document]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _node(number: int) -> Document:
    name = f"node-{number:03d}"
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
                "example.com/rack": f"rack-{number % (4 * len(ZONES)) + 1:02d}",
            },
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _pod(name: str, scheduler_name: str, cpu: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"demo": scheduler_name}},
        "spec": {
            "schedulerName": scheduler_name,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}},
                }
            ],
        },
    }
