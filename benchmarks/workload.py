"""The objects of a drain: nodes and pods, made from a seed.

Owns what is asked of both schedulers; the same seed gives both the same objects.
"""

import json
import random
from typing import Any

ZONES = 3
NAMESPACE = "default"
SCHEDULER_NAME = "bench"

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


def pod(number: int, generator: random.Random, *, sizes: int) -> Document:
    """Make a pod.

    Args:
        number: Numbers its name.
        generator: Draws its size.
        sizes: How many different sizes there are; 1 makes all pods alike.
    """
    size = generator.randrange(sizes)
    requests = {"cpu": f"{100 + size}m", "memory": f"{200 + size}Mi"}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:06d}", "namespace": NAMESPACE},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container]},
    }


def encoded(document: Document) -> bytes:
    """The document as the body of a request."""
    return json.dumps(document).encode()
