"""Workloads with devices.

They correspond to workloads of kube-scheduler's scheduler_perf (kubernetes v1.37.1,
``test/integration/scheduler_perf/dra``). Claims are created with the pods; those with claims of templates are in
:mod:`benchmarks.device_steady`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from benchmarks import device_hardware as hardware
from benchmarks.device_hardware import CLASS, DEVICES_PER_NODE, DRIVER, LINK, Objects
from benchmarks.workloads import Document, Workload, pod

RESOURCE_CLASSES = 25
PODS_PER_CLAIM = 5
_LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
_NETWORK_SLACK = 100
"""Network-attached devices that no pod of the backlog uses."""


def _with_claim(number: int) -> Document:
    return _with_claim_of(number, number)


def _with_shared_claim(number: int) -> Document:
    return _with_claim_of(number, number // PODS_PER_CLAIM)


def _with_claim_of(number: int, claim: int) -> Document:
    return pod(number, {"resourceClaims": [{"name": CLASS, "resourceClaimName": hardware.claim_name(claim)}]})


def _with_resource(number: int, resource: str) -> Document:
    document = pod(number)
    resources = document["spec"]["containers"][0]["resources"]
    resources["requests"][resource] = "1"
    resources["limits"] = {resource: "1"}
    return document


def _explicit(number: int) -> Document:
    return _with_resource(number, f"example.com/gpu-{number % RESOURCE_CLASSES}")


def _implicit(number: int) -> Document:
    return _with_resource(number, f"deviceclass.resource.kubernetes.io/{CLASS}-{number % RESOURCE_CLASSES}")


def exactly(**more: object) -> Document:
    """Make a request of the class of all GPUs without alternatives."""
    return {"exactly": {"deviceClassName": CLASS, **more}}


def _claims(*requests: Document, **more: object) -> Callable[[int], Objects]:
    return lambda count: (hardware.claim(number, *requests, **more) for number in range(count))


def _others(
    slices: Callable[[int], Objects], claims: Callable[[int], Objects]
) -> Callable[[int, int], Iterator[tuple[str, Document]]]:
    """Return a function that makes classes, slices for a number of nodes, and claims for a number of pods."""
    return lambda nodes, pods: chain(hardware.classes(), slices(nodes), claims(pods))


def _half(nodes: int) -> Objects:
    yield from hardware.gpus(nodes)
    yield from hardware.allocated(nodes, nodes * DEVICES_PER_NODE // 2, hardware.gpu_uses(DEVICES_PER_NODE))


def _tainted(nodes: int) -> Objects:
    yield from hardware.tainted()
    yield from hardware.gpus(nodes)


def _resources(nodes: int, _pods: int) -> Objects:
    yield from hardware.classes(RESOURCE_CLASSES)
    yield from hardware.gpus(nodes)


def two_partitions(nodes: int) -> Objects:
    """Make two partitions for each node that consume different counters."""
    consumed = [{"a": "1", "b": "1"}, {"c": "1", "d": "1"}]
    return hardware.partitions(nodes, dict.fromkeys("abcd", "1"), consumed)


def unequal_partitions(nodes: int) -> Objects:
    """Make eight partitions of which the first is so large that only the other seven fit together."""
    memory = ["20Gi", *["10Gi"] * 7]
    return hardware.partitions(nodes, {"memory": "70Gi"}, ({"memory": amount} for amount in memory))


def _per_node(pods: int) -> Callable[[int], int]:
    return lambda nodes: pods * nodes


_LARGE_GPU = _claims(exactly(selectors=[{"cel": {"expression": _LARGE}}]))
_ALTERNATIVES = [
    {"name": "huge", "deviceClassName": hardware.CLASS_WITHOUT_DEVICES},
    {"name": "any", "deviceClassName": CLASS},
]
_BANDWIDTH = {"requests": {"bandwidth": "2500M"}}
_TOLERATION = {"key": hardware.TAINT, "operator": "Exists"}

DEVICE_WORKLOADS = (
    Workload(
        "devices",
        "a device of a class, by capacity",
        _with_claim,
        others=_others(hardware.gpus, _LARGE_GPU),
        at_most=_per_node(DEVICES_PER_NODE),
    ),
    Workload(
        "device-half",
        "half of the devices are in use",
        _with_claim,
        others=_others(_half, _LARGE_GPU),
        at_most=_per_node(DEVICES_PER_NODE // 2),
    ),
    Workload(
        "device-steady",
        "half of the devices are in use; pods and their claims are deleted while others are bound",
        _with_claim,
        others=_others(_half, _LARGE_GPU),
        at_most=_per_node(DEVICES_PER_NODE // 2),
        churn=True,
    ),
    Workload(
        "device-shared",
        f"a device for every {PODS_PER_CLAIM} pods, which share its claim",
        _with_shared_claim,
        others=_others(hardware.gpus, lambda pods: _LARGE_GPU(-(-pods // PODS_PER_CLAIM))),
        at_most=_per_node(DEVICES_PER_NODE * PODS_PER_CLAIM),
    ),
    Workload(
        "device-match",
        "four devices of one PCI root",
        _with_claim,
        others=_others(hardware.gpus, _claims(exactly(count=4), constraints=[{"matchAttribute": hardware.PCI_ROOT}])),
        at_most=_per_node(2),
    ),
    Workload(
        "device-partitions",
        "two partitions that consume shared counters",
        _with_claim,
        others=_others(two_partitions, _claims(exactly(count=2))),
        at_most=_per_node(1),
    ),
    Workload(
        "device-backtracking",
        "seven partitions of eight, not the first",
        _with_claim,
        others=_others(unequal_partitions, _claims(exactly(count=7))),
        at_most=_per_node(1),
    ),
    Workload(
        "device-capacity",
        "a part of the bandwidth of two devices",
        _with_claim,
        others=_others(
            lambda nodes: hardware.shareable(nodes, 4, "10G"),
            _claims(exactly(count=2, capacity=_BANDWIDTH), constraints=[{"distinctAttribute": hardware.INDEX}]),
        ),
        at_most=_per_node(8),
    ),
    Workload(
        "device-taints",
        "a rule taints all devices, and each claim tolerates it",
        _with_claim,
        others=_others(_tainted, _claims(exactly(tolerations=[_TOLERATION]))),
        at_most=_per_node(DEVICES_PER_NODE),
    ),
    Workload(
        "device-list",
        "the second of two alternatives",
        _with_claim,
        others=_others(hardware.gpus, _claims({"firstAvailable": _ALTERNATIVES})),
        at_most=_per_node(DEVICES_PER_NODE),
    ),
    Workload(
        "device-resource",
        f"one of {RESOURCE_CLASSES} extended resources of device classes",
        _explicit,
        others=_resources,
        at_most=_per_node(DEVICES_PER_NODE),
    ),
    Workload(
        "device-implicit",
        f"one of {RESOURCE_CLASSES} extended resources that are named after classes",
        _implicit,
        others=_resources,
        at_most=_per_node(DEVICES_PER_NODE),
    ),
    Workload(
        "device-network",
        f"one of {hardware.NETWORK_DEVICES} devices that every node reaches",
        _with_claim,
        others=_others(lambda _nodes: hardware.network_attached(), _LARGE_GPU),
        at_most=lambda _nodes: hardware.NETWORK_DEVICES - _NETWORK_SLACK,
    ),
)
"""In the order of the tables."""

CORE_DEVICE_WORKLOADS = (
    Workload(
        "device-impossible",
        "12 of 32 devices and three with one link, which only pairs have: not satisfiable",
        _with_claim,
        others=_others(
            lambda nodes: hardware.linked(nodes, 32),
            _claims(exactly(count=12), exactly(count=3), constraints=[{"matchAttribute": LINK, "requests": ["gpu-1"]}]),
        ),
        bound_of=lambda _pods: 0,
    ),
)
"""Workloads of the core alone: kube-scheduler's search times out on every node."""


def shared_devices(claims: Sequence[Document]) -> list[str]:
    """Return a message for each device that is allocated to two claims; shares of a device do not count."""
    owners: dict[tuple[str, str, str], str] = {}
    found = []
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results", ()):
            if result.get("shareID") is not None:
                continue
            device = (result["driver"], result["pool"], result["device"])
            name = claim["metadata"]["name"]
            if owners.setdefault(device, name) != name:
                found.append(f"device {'/'.join(device)} is allocated to {owners[device]} and {name}")
    return found
