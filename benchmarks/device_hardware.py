"""Devices of the benchmarks: classes, slices, taint rules, and claims that are allocated beforehand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from benchmarks.workloads import NAMESPACE, Document, node

API = "/apis/resource.k8s.io/v1"
CLAIMS_PATH = f"{API}/namespaces/{NAMESPACE}/resourceclaims"
SLICES_PATH = f"{API}/resourceslices"
TEMPLATES_PATH = f"{API}/namespaces/{NAMESPACE}/resourceclaimtemplates"
TEMPLATE = "device"
DRIVER = "gpu.example.com"
DEVICES_PER_NODE = 8
PCI_ROOT = "resource.kubernetes.io/pciRoot"
INDEX = f"{DRIVER}/index"
LINK = f"{DRIVER}/link"
CLASS = "gpu"
CLASS_WITHOUT_DEVICES = "huge"
TAINT = "example.com/degraded"
NETWORK_DEVICES = 1000
_DEVICES_IN_SLICE = 100
_VERSION = "resource.k8s.io/v1"
_FINALIZER = "resource.kubernetes.io/delete-protection"

Objects = Iterator[tuple[str, Document]]
"""Objects, each with the path of its collection."""


def device_class(name: str, expression: str, **more: Any) -> tuple[str, Document]:
    spec = {"selectors": [{"cel": {"expression": expression}}], **more}
    return f"{API}/deviceclasses", _document("DeviceClass", name, spec)


def classes(resource_classes: int = 0) -> Objects:
    """Make the class of all GPUs, one that no device matches, and classes that serve extended resources.

    Args:
        resource_classes: Number of these classes; each selects all GPUs, as ``example.com/gpu-N`` and by its name
            ``gpu-N``.
    """
    every = f'device.driver == "{DRIVER}"'
    yield device_class(CLASS, every)
    yield device_class(CLASS_WITHOUT_DEVICES, f'device.capacity["{DRIVER}"].memory.compareTo(quantity("200Gi")) >= 0')
    for number in range(resource_classes):
        yield device_class(f"{CLASS}-{number}", every, extendedResourceName=f"example.com/gpu-{number}")


def gpus(nodes: int, devices: int = DEVICES_PER_NODE) -> Objects:
    """Make a slice of devices with two PCI roots for each node."""
    for number in range(nodes):
        name = _node_name(number)
        yield _slice(f"{name}-gpu", name, [_gpu(name, index) for index in range(devices)])


def partitions(nodes: int, counters: Document, devices: Iterable[Document]) -> Objects:
    """Make a pool for each node: a slice of shared counters, and a slice of devices that consume them.

    Args:
        counters: Amount by counter of one set.
        devices: For each device, the amounts that it consumes.
    """
    shared = {name: {"value": value} for name, value in counters.items()}
    made = [
        {
            "name": f"partition-{index}",
            "consumesCounters": [
                {"counterSet": "chip", "counters": {name: {"value": value} for name, value in consumed.items()}}
            ],
        }
        for index, consumed in enumerate(devices)
    ]
    for number in range(nodes):
        name = _node_name(number)
        yield _slice(f"{name}-counters", name, None, 2, sharedCounters=[{"name": "chip", "counters": shared}])
        yield _slice(f"{name}-partitions", name, made, 2)


def shareable(nodes: int, devices: int, bandwidth: str) -> Objects:
    """Make devices for each node that several claims share, each with a part of the bandwidth."""
    policy = {"default": "1M", "validRange": {"min": "1M", "step": "1M"}}
    for number in range(nodes):
        name = _node_name(number)
        made = [
            {
                "name": f"nic-{index}",
                "allowMultipleAllocations": True,
                "attributes": {"index": {"int": index}},
                "capacity": {"bandwidth": {"value": bandwidth, "requestPolicy": policy}},
            }
            for index in range(devices)
        ]
        yield _slice(f"{name}-nic", name, made)


def linked(nodes: int, devices: int) -> Objects:
    """Make devices for each node, always two with the same link, which is different on each node."""
    for number in range(nodes):
        name = _node_name(number)
        made = [
            {"name": f"gpu-{index}", "attributes": {"link": {"string": f"{name}-{index // 2}"}}}
            for index in range(devices)
        ]
        yield _slice(f"{name}-gpu", name, made)


def network_attached() -> Objects:
    """Make :data:`NETWORK_DEVICES` devices that every node can reach, in one pool."""
    slices = NETWORK_DEVICES // _DEVICES_IN_SLICE
    for number in range(slices):
        first = number * _DEVICES_IN_SLICE
        devices = [_gpu("fabric", first + index) for index in range(_DEVICES_IN_SLICE)]
        yield _slice(f"fabric-{number:03d}", "", devices, slices)


def tainted() -> Objects:
    spec = {
        "deviceSelector": {"driver": DRIVER},
        "taint": {"key": TAINT, "value": "yes", "effect": "NoSchedule"},
    }
    yield f"{API}/devicetaintrules", _document("DeviceTaintRule", "degraded", spec)


def claim(number: int, *requests: Document, **more: Any) -> tuple[str, Document]:
    """Make a claim.

    Args:
        requests: The requests without names; they get the names ``gpu-N``.
        more: Further fields of ``spec.devices``.
    """
    return CLAIMS_PATH, _document("ResourceClaim", claim_name(number), _claim_spec(requests, more), namespace=NAMESPACE)


def template(*requests: Document, **more: Any) -> tuple[str, Document]:
    """Make the template :data:`TEMPLATE` of claims; see :func:`claim`."""
    spec = {"spec": _claim_spec(requests, more)}
    return TEMPLATES_PATH, _document("ResourceClaimTemplate", TEMPLATE, spec, namespace=NAMESPACE)


def claim_name(number: int) -> str:
    return f"claim-{number:06d}"


def allocated(nodes: int, claims: int, uses: Sequence[Sequence[Document]]) -> Objects:
    """Make claims that are allocated devices of random nodes; their status is written after their creation.

    Args:
        uses: For each claim that fits on a node, in the order in which a node is filled, its devices: their names and
            the other fields of an allocation result.
    """
    drawn = [number for number in range(nodes) for _ in uses]
    random.Random(0).shuffle(drawn)
    filled: Counter[int] = Counter()
    for number, node_number in enumerate(drawn[:claims]):
        name, devices = _node_name(node_number), uses[filled[node_number]]
        filled[node_number] += 1
        request = {"name": CLASS, "exactly": {"deviceClassName": CLASS, "count": len(devices)}}
        document = _document(
            "ResourceClaim",
            f"held-{number:06d}",
            {"devices": {"requests": [request]}},
            namespace=NAMESPACE,
            finalizers=[_FINALIZER],
        )
        document["status"] = allocation(name, devices)
        yield CLAIMS_PATH, document


def allocation(node_name: str, devices: Sequence[Document]) -> Document:
    """Return the status of a claim that is allocated devices of a node; ``request`` is the class unless given."""
    results = [{"driver": DRIVER, "pool": node_name, "request": CLASS, **device} for device in devices]
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    return {"allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [only]}}}


def gpu_uses(devices: int) -> list[list[Document]]:
    """Return for each claim that fits on a node its device, of the first GPUs."""
    return [[{"device": f"gpu-{index}"}] for index in range(devices)]


def _node_name(number: int) -> str:
    name: str = node(number)["metadata"]["name"]
    return name


def _claim_spec(requests: Sequence[Document], more: Document) -> Document:
    named = [{"name": f"{CLASS}-{index}", **request} for index, request in enumerate(requests)]
    return {"devices": {"requests": named, **more}}


def _gpu(owner: str, index: int) -> Document:
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "family": {"string": "a"},
            "healthy": {"bool": True},
            "driverVersion": {"version": "1.2.3"},
            "index": {"int": index},
            "model": {"string": "a100"},
            "slot": {"string": f"0000:0{index}:00.0"},
            "uuid": {"string": f"{owner}-{index}"},
            PCI_ROOT: {"string": f"pci0000:0{index % 2}"},
        },
        "capacity": {"memory": {"value": "80Gi"}, "engines": {"value": "8"}},
    }


def _slice(
    name: str, node_name: str, devices: list[Document] | None, slices_of_pool: int = 1, **more: Any
) -> tuple[str, Document]:
    pool = {"name": node_name or "fabric", "generation": 1, "resourceSliceCount": slices_of_pool}
    spec: Document = {"driver": DRIVER, "pool": pool, **more}
    spec |= {"nodeName": node_name} if node_name else {"allNodes": True}
    if devices is not None:
        spec["devices"] = devices
    return SLICES_PATH, _document("ResourceSlice", name, spec)


def _document(kind: str, name: str, spec: Document, **metadata: Any) -> Document:
    return {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
