"""Workloads with devices: GPUs on every node, and a claim for each pod.

They follow the kinds of kube-scheduler's scheduler_perf (kubernetes v1.37.1, ``test/integration/scheduler_perf/dra``).
Claims are created with the pods and not from templates, because only the scheduler is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.workload import NAMESPACE, Document, node, pod
from benchmarks.workloads import Workload

API = "/apis/resource.k8s.io/v1"
CLAIMS_PATH = f"{API}/namespaces/{NAMESPACE}/resourceclaims"
DRIVER = "gpu.example.com"
DEVICES_PER_NODE = 8
_EXTENDED = "example.com/gpu"
_LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def _device_class(name: str, expression: str, **more: Any) -> tuple[str, Document]:
    spec = {"selectors": [{"cel": {"expression": expression}}], **more}
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
    return f"{API}/deviceclasses", document


def _slice(number: int) -> tuple[str, Document]:
    name = node(number)["metadata"]["name"]
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "model": {"string": "a100"},
                "index": {"int": index},
                "uuid": {"string": f"{name}-{index}"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(DEVICES_PER_NODE)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpu"},
        "spec": spec,
    }
    return f"{API}/resourceslices", document


def _hardware(nodes: int) -> Iterator[tuple[str, Document]]:
    yield _device_class("gpu", f'device.driver == "{DRIVER}"', extendedResourceName=_EXTENDED)
    yield _device_class("huge", f'device.capacity["{DRIVER}"].memory.compareTo(quantity("200Gi")) >= 0')
    yield from map(_slice, range(nodes))


def _claim(number: int, request: Document) -> tuple[str, Document]:
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number:06d}", "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "gpu", **request}]}},
    }
    return CLAIMS_PATH, document


def _one(nodes: int, pods: int) -> Iterator[tuple[str, Document]]:
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": _LARGE}}]}
    yield from _hardware(nodes)
    yield from (_claim(number, {"exactly": exactly}) for number in range(pods))


def _alternatives(nodes: int, pods: int) -> Iterator[tuple[str, Document]]:
    listed = [{"name": "huge", "deviceClassName": "huge"}, {"name": "any", "deviceClassName": "gpu"}]
    yield from _hardware(nodes)
    yield from (_claim(number, {"firstAvailable": listed}) for number in range(pods))


def _with_claim(number: int) -> Document:
    return pod(number, {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{number:06d}"}]})


def _with_extended_resource(number: int) -> Document:
    document = pod(number)
    resources = document["spec"]["containers"][0]["resources"]
    resources["requests"][_EXTENDED] = "1"
    resources["limits"] = {_EXTENDED: "1"}
    return document


def _at_most(nodes: int) -> int:
    return DEVICES_PER_NODE * nodes


DEVICE_WORKLOADS = (
    Workload("devices", "a device of a class, by capacity", _with_claim, others=_one, at_most=_at_most),
    Workload("device-list", "the second of two alternatives", _with_claim, others=_alternatives, at_most=_at_most),
    Workload(
        "device-resource",
        "an extended resource that a class serves",
        _with_extended_resource,
        others=lambda nodes, _pods: _hardware(nodes),
        at_most=_at_most,
    ),
)
"""In the order of the tables."""


def shared_devices(claims: list[Document]) -> list[str]:
    """Return a sentence for each device that two claims have."""
    owners: dict[tuple[str, str, str], str] = {}
    found = []
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results", ()):
            device = (result["driver"], result["pool"], result["device"])
            name = claim["metadata"]["name"]
            if owners.setdefault(device, name) != name:
                found.append(f"device {'/'.join(device)} is allocated to {owners[device]} and {name}")
    return found
