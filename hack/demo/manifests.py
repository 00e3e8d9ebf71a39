"""Objects of the demos as plain documents: nodes, pods, gangs of Jobs, and devices with the claims that pods use.

No Job controller runs in the demos' clusters, so that the demos create and end the workers.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hack.controlplane.device_driver import API

ZONES = ("zone-a", "zone-b", "zone-c")
PACKING = "pack"
GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
CHECKPOINT = "demo.bayplan.dev/saves-a-checkpoint"
DRIVER = "gpu.example.com"
DEVICE_CLASS = "gpu"
_GROUP_LABEL = "bayplan.dev/pod-group"
_IMAGE = "registry.k8s.io/pause:3.10"

Document = dict[str, Any]


def as_list(documents: Iterable[Document]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})


def nodes(count: int) -> str:
    """Return ready nodes of 8 CPUs and 32 GiB, spread over the zones, as a JSON list."""
    return as_list(
        node(
            f"node-{number:03d}",
            {
                "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
                "example.com/rack": f"rack-{number % (4 * len(ZONES)) + 1:02d}",
            },
            cpu="8",
            memory="32Gi",
        )
        for number in range(count)
    )


def gpu_nodes(count: int) -> str:
    """Return ready nodes of 8 GPUs as a JSON list."""
    return as_list(node(f"gpu-{number}", amounts={GPU: str(GPUS_PER_NODE)}) for number in range(count))


def node(
    name: str,
    labels: Mapping[str, str] | None = None,
    amounts: Mapping[str, str] | None = None,
    *,
    cpu: str = "64",
    memory: str = "512Gi",
) -> Document:
    """Return a ready node."""
    offered = {"cpu": cpu, "memory": memory, "pods": "110", **(amounts or {})}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})},
        },
        "status": {"capacity": offered, "allocatable": offered, "conditions": conditions},
    }


def pods(prefix: str, scheduler_name: str, count: int, cpu: str = "250m") -> str:
    """Return pods with equal requests, 512 MiB of memory among them, as a JSON list."""
    resources = {"requests": {"cpu": cpu, "memory": "512Mi"}}
    return as_list(
        _pod(f"{prefix}-{number:03d}", {"demo": scheduler_name}, resources, schedulerName=scheduler_name)
        for number in range(count)
    )


def _pod(name: str, labels: Mapping[str, str], resources: Document, **spec: Any) -> Document:
    container = {"name": "main", "image": _IMAGE, "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**_metadata(name), "labels": dict(labels)},
        "spec": {"schedulerName": PACKING, "containers": [container], **spec},
    }


def _metadata(name: str) -> Document:
    return {"name": name, "namespace": "default"}


def _pod_group(name: str, spec: Document) -> Document:
    return {"apiVersion": "bayplan.dev/v1alpha1", "kind": "PodGroup", "metadata": _metadata(name), "spec": spec}


# -- gangs ------------------------------------------------------------------------------------------------------------


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
        return as_list(self._worker(number) for number in range(self.first, self.first + self.workers))

    @property
    def pod_group(self) -> str:
        return json.dumps(_pod_group(self.name, self._group_spec))

    @property
    def spec(self) -> str:
        """Return the spec of the PodGroup, as a user would write it in YAML."""
        return f"{{{', '.join(f'{name}: {value}' for name, value in self._group_spec.items())}}}"

    @property
    def _group_spec(self) -> Document:
        return {"minMember": self.workers, **(self.group or {})}

    def _worker(self, number: int) -> Document:
        labels = {"job": self.name, **({} if self.group is None else {_GROUP_LABEL: self.name})}
        gpus = {GPU: str(self.gpus)}
        priority = {"priorityClassName": self.priority} if self.priority else {}
        worker = _pod(f"{self.name}-{number}", labels, {"requests": {"cpu": "1", **gpus}, "limits": gpus}, **priority)
        if self.saves:
            worker["metadata"]["finalizers"] = [CHECKPOINT]
        return worker


def priority_class(name: str, value: int) -> str:
    version = "scheduling.k8s.io/v1"
    return json.dumps({"apiVersion": version, "kind": "PriorityClass", "metadata": {"name": name}, "value": value})


def budget(job: str, workers: int) -> str:
    """Return a PodDisruptionBudget that allows no disruption of a Job's workers, as JSON."""
    spec = {"minAvailable": workers, "selector": {"matchLabels": {"job": job}}}
    return json.dumps(
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _metadata(job), "spec": spec}
    )


# -- devices ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU model.

    Attributes:
        name: Attribute ``model`` of its devices, and name of its alternative in a prioritized list.
        memory: Capacity ``memory`` of its devices.
    """

    name: str
    memory: str

    @property
    def selector(self) -> str:
        return f'device.attributes["{DRIVER}"].model == "{self.name}"'

    def devices(self, count: int) -> list[Document]:
        fields = {"attributes": {"model": {"string": self.name}}, "capacity": {"memory": {"value": self.memory}}}
        return [{"name": f"{self.name}-{number}", **fields} for number in range(count)]


@dataclass(frozen=True, slots=True)
class Workload:
    """Equal pods that each use one ResourceClaim.

    Attributes:
        name: Name of the claim or template, prefix of the pods' names, and name of the PodGroup of a gang.
        shares: Whether all pods use one claim; otherwise each has a claim of a template.
        is_gang: Whether the pods are scheduled together or not at all.
        priority: PriorityClass, "" for none.
    """

    name: str
    request: Document
    pods: int
    shares: bool = False
    is_gang: bool = False
    priority: str = ""

    @property
    def pod_names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.pods)]

    @property
    def selector(self) -> str:
        return f"workload={self.name}"

    @property
    def documents(self) -> list[Document]:
        """Return the claim or template, the PodGroup of a gang, and the pods."""
        spec = {"devices": {"requests": [self.request]}}
        kind, body = ("ResourceClaim", spec) if self.shares else ("ResourceClaimTemplate", {"spec": spec})
        documents = [{"apiVersion": API, "kind": kind, "metadata": _metadata(self.name), "spec": body}]
        if self.is_gang:
            documents.append(_pod_group(self.name, {"minMember": self.pods}))
        labels = {"workload": self.name, **({_GROUP_LABEL: self.name} if self.is_gang else {})}
        resources = {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}
        source = "resourceClaimName" if self.shares else "resourceClaimTemplateName"
        claims = [{"name": "gpu", source: self.name}]
        fields = {"resourceClaims": claims, **({"priorityClassName": self.priority} if self.priority else {})}
        return documents + [_pod(name, labels, resources, **fields) for name in self.pod_names]


def exactly(*expressions: str) -> Document:
    """Return a request for one device of the class that all expressions select."""
    return {"name": "gpu", "exactly": _of_class(expressions)}


def first_available(*models: Model) -> Document:
    """Return a request for one device of the first model that is available."""
    return {"name": "gpu", "firstAvailable": [{"name": each.name, **_of_class([each.selector])} for each in models]}


def memory_at_least(amount: str) -> str:
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{amount}")) >= 0'


def device_class() -> Document:
    spec = {"selectors": _cel([f'device.driver == "{DRIVER}"'])}
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DEVICE_CLASS}, "spec": spec}


def _of_class(expressions: Sequence[str]) -> Document:
    return {"deviceClassName": DEVICE_CLASS, "selectors": _cel(expressions)}


def _cel(expressions: Sequence[str]) -> list[Document]:
    return [{"cel": {"expression": each}} for each in expressions]
