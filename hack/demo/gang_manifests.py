"""Objects of the gang demo: nodes with GPUs, PodGroups, and workers as the Job controller would create them.

No Job controller runs in the demo's cluster, so the demo creates and ends the pods.
"""

import json
from dataclasses import dataclass
from typing import Any

PROFILE = "pack"
GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
CHECKPOINT = "demo.bayplan.dev/saves-a-checkpoint"
_LABEL = "bayplan.dev/pod-group"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """Equal workers.

    Attributes:
        name: Name of the Job, and of its PodGroup if it has one.
        priority: PriorityClass, "" for none.
        group: Fields of the PodGroup's spec besides minMember; None for pods without a gang.
        saves: Whether a deleted worker stays until its checkpoint is saved.
        first: Number of the first worker.
    """

    name: str
    workers: int
    gpus: int
    priority: str = ""
    group: Document | None = None
    saves: bool = False
    first: int = 0

    @property
    def pods(self) -> str:
        return _list([self._worker(number) for number in range(self.first, self.first + self.workers)])

    @property
    def pod_group(self) -> str:
        return json.dumps(
            {
                "apiVersion": "bayplan.dev/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": self.name, "namespace": "default"},
                "spec": {"minMember": self.workers, **(self.group or {})},
            }
        )

    @property
    def spec(self) -> str:
        """Return the spec of the PodGroup, as a user would write it in YAML."""
        fields = {"minMember": self.workers, **(self.group or {})}
        return f"{{{', '.join(f'{name}: {value}' for name, value in fields.items())}}}"

    def _worker(self, number: int) -> Document:
        labels = {"job": self.name, **({} if self.group is None else {_LABEL: self.name})}
        requests = {"cpu": "1", GPU: str(self.gpus)}
        container = {
            "name": "worker",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": requests, "limits": {GPU: str(self.gpus)}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{self.name}-{number}",
                "namespace": "default",
                "labels": labels,
                **({"finalizers": [CHECKPOINT]} if self.saves else {}),
            },
            "spec": {
                "schedulerName": PROFILE,
                "containers": [container],
                **({"priorityClassName": self.priority} if self.priority else {}),
            },
        }


def gpu_nodes(count: int) -> str:
    """Return ready nodes of 8 GPUs.

    Returns:
        A JSON list for kubectl.
    """
    return _list([_node(f"gpu-{number}") for number in range(count)])


def priority_class(name: str, value: int) -> str:
    version = "scheduling.k8s.io/v1"
    return json.dumps({"apiVersion": version, "kind": "PriorityClass", "metadata": {"name": name}, "value": value})


def budget(job: str, workers: int) -> str:
    """Return a PodDisruptionBudget that allows no disruption of a Job's workers, as JSON."""
    return json.dumps(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": job, "namespace": "default"},
            "spec": {"minAvailable": workers, "selector": {"matchLabels": {"job": job}}},
        }
    )


def _list(items: list[Document]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _node(name: str) -> Document:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(GPUS_PER_NODE)}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
    }
