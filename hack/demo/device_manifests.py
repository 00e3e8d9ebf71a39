"""Objects of the device demo: nodes, their GPUs, a DeviceClass, claims, templates, and pods that use them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hack.controlplane.device_driver import API

PROFILE = "pack"
DRIVER = "gpu.example.com"
DEVICE_CLASS = "gpu"
_GROUP_LABEL = "bayplan.dev/pod-group"

Document = dict[str, Any]


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
    """

    name: str
    request: Document
    pods: int
    shares: bool = False
    is_gang: bool = False

    @property
    def pod_names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.pods)]

    @property
    def documents(self) -> list[Document]:
        """Return the claim or template, the PodGroup of a gang, and the pods."""
        spec = {"devices": {"requests": [self.request]}}
        kind, body = ("ResourceClaim", spec) if self.shares else ("ResourceClaimTemplate", {"spec": spec})
        documents = [{"apiVersion": API, "kind": kind, "metadata": self._metadata(self.name), "spec": body}]
        if self.is_gang:
            group = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "PodGroup", "metadata": self._metadata(self.name)}
            documents.append(group | {"spec": {"minMember": self.pods}})
        return documents + [self._pod(name) for name in self.pod_names]

    def _pod(self, name: str) -> Document:
        labels = {"workload": self.name, **({_GROUP_LABEL: self.name} if self.is_gang else {})}
        source = "resourceClaimName" if self.shares else "resourceClaimTemplateName"
        container = {
            "name": "main",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self._metadata(name) | {"labels": labels},
            "spec": {
                "schedulerName": PROFILE,
                "resourceClaims": [{"name": "gpu", source: self.name}],
                "containers": [container],
            },
        }

    @staticmethod
    def _metadata(name: str) -> Document:
        return {"name": name, "namespace": "default"}


def exactly(*expressions: str) -> Document:
    """Return a request for one device of the class that all expressions select."""
    return {"name": "gpu", "exactly": _of_class(expressions)}


def first_available(*models: Model) -> Document:
    """Return a request for one device of the first model that is available."""
    return {"name": "gpu", "firstAvailable": [{"name": each.name, **_of_class([each.selector])} for each in models]}


def memory_at_least(amount: str) -> str:
    """Return the expression that selects devices with at least this memory."""
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{amount}")) >= 0'


def device_class() -> Document:
    spec = {"selectors": _cel([f'device.driver == "{DRIVER}"'])}
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DEVICE_CLASS}, "spec": spec}


def node(name: str) -> Document:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
    }


def as_list(documents: Sequence[Document]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})


def _of_class(expressions: Sequence[str]) -> Document:
    return {"deviceClassName": DEVICE_CLASS, "selectors": _cel(expressions)}


def _cel(expressions: Sequence[str]) -> list[Document]:
    return [{"cel": {"expression": each}} for each in expressions]
