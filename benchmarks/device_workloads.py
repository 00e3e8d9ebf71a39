"""Workloads with devices.

They have the objects of kube-scheduler's scheduler_perf (kubernetes v1.37.1, ``test/integration/scheduler_perf/dra``).
In the first workloads claims are created with the pods. In the others, on a real API server, kube-controller-manager
creates them from a template; in the steady state ten pods wait at any time, and each bound pod is deleted, so that the
number of devices in use stays the same. These are left out: ``PublishResourceSlices``, which schedules no pods;
PodGroups with claims, list-typed attributes and compatibility groups, which need feature gates; and scores of extended
resources, which need a different profile.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from benchmarks import device_hardware as hardware
from benchmarks.device_hardware import CLASS, DEVICES_PER_NODE, DRIVER, INDEX, LINK, PCI_ROOT, Objects
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
_PART_OF_BANDWIDTH = {"requests": {"bandwidth": "2500M"}}
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
            _claims(exactly(count=2, capacity=_PART_OF_BANDWIDTH), constraints=[{"distinctAttribute": hardware.INDEX}]),
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


IN_FLIGHT = 10
_ANY_NUMBER = 1_000_000
"""Bound pods are deleted, so that the devices suffice for any number of pods."""
DEVICES = 10
"""Number of GPUs of a node."""
_SHAREABLE, _SHARES, _BANDWIDTH = 4, 4, "2500M"
"""Shareable devices of a node, claims that share one, and the bandwidth of each claim."""
_SELECTOR = (
    f'device.attributes["{DRIVER}"].driverVersion.major() >= 1 && '
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("1Mi"))'
)

Slices = Callable[[int], Objects]
Uses = Sequence[Sequence[Document]]


def _with_template(number: int) -> Document:
    document = pod(number, {"resourceClaims": [{"name": CLASS, "resourceClaimTemplateName": hardware.TEMPLATE}]})
    document["spec"]["containers"][0]["resources"]["claims"] = [{"name": CLASS}]
    return document


def _gpus(nodes: int) -> Objects:
    return hardware.gpus(nodes, DEVICES)


def _shareable_devices(nodes: int) -> Objects:
    return hardware.shareable(nodes, _SHAREABLE, "10G")


def _shares() -> list[list[Document]]:
    """Return for each claim that fits on a node its shares of two devices."""
    pairs = [(first, first + 1) for first in range(0, _SHAREABLE, 2) for _ in range(_SHARES)]
    return [[_share(f"nic-{index}", number) for index in pair] for number, pair in enumerate(pairs)]


def _share(device: str, number: int) -> Document:
    share = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{device}.{number}"))
    return {"device": device, "shareID": share, "consumedCapacity": {"bandwidth": _BANDWIDTH}}


def _partitions(*indices: int) -> list[list[Document]]:
    """Return for the one claim that fits on a node its partitions."""
    return [[{"device": f"partition-{index}"} for index in indices]]


_GPU_USES = hardware.gpu_uses(DEVICES)


def _workload(
    name: str,
    description: str,
    *requests: Document,
    in_use: Callable[[int], int] = lambda _nodes: 0,
    slices: Slices = _gpus,
    uses: Uses = _GPU_USES,
    constraints: Sequence[Document] = (),
    in_flight: int = IN_FLIGHT,
) -> Workload:
    """Make a workload.

    Args:
        in_use: Number of claims that are allocated beforehand, given the number of nodes.
        uses: Devices of each claim that fits on a node.
        in_flight: Maximum number of waiting pods; 0 for all at once.
    """

    def others(nodes: int, _pods: int) -> Objects:
        more = {"constraints": list(constraints)} if constraints else {}
        yield from chain(hardware.classes(), slices(nodes), hardware.allocated(nodes, in_use(nodes), uses))
        yield hardware.template(*requests, **more)

    def at_most(nodes: int) -> int:
        return _ANY_NUMBER if in_flight else nodes * len(uses) - in_use(nodes)

    return Workload(
        name, description, _with_template, others=others, at_most=at_most, in_flight=in_flight, has_templates=True
    )


def _half_of(uses: Uses) -> Callable[[int], int]:
    return lambda nodes: nodes * len(uses) // 2


def _all_but_ten(nodes: int) -> int:
    return nodes * DEVICES - IN_FLIGHT


_TWO, _SEVEN, _SHARED = _partitions(0, 1), _partitions(*range(1, 8)), _shares()

STEADY_DEVICE_WORKLOADS = (
    _workload(
        "device-templates",
        "a template; half of the devices are in use",
        exactly(),
        in_use=_half_of(_GPU_USES),
        in_flight=0,
    ),
    _workload("steady-empty", "steady state; no device is in use", exactly()),
    _workload("steady-half", "steady state; half of the devices are in use", exactly(), in_use=_half_of(_GPU_USES)),
    _workload("steady-full", "steady state; all devices but ten are in use", exactly(), in_use=_all_but_ten),
    _workload(
        "steady-selector",
        "steady state; a device by version and capacity",
        exactly(selectors=[{"cel": {"expression": _SELECTOR}}]),
    ),
    _workload(
        "steady-match",
        "steady state; five requests of one PCI root",
        *[exactly()] * 5,
        constraints=[{"matchAttribute": PCI_ROOT}],
    ),
    _workload(
        "steady-partitions",
        "steady state; two partitions, half of the nodes are in use",
        exactly(count=2),
        in_use=_half_of(_TWO),
        slices=two_partitions,
        uses=_TWO,
    ),
    _workload(
        "steady-backtracking",
        "steady state; seven partitions of eight, half of the nodes are in use",
        exactly(count=7),
        in_use=_half_of(_SEVEN),
        slices=unequal_partitions,
        uses=_SEVEN,
    ),
    _workload(
        "steady-capacity",
        "steady state; a part of the bandwidth of two devices, half is in use",
        exactly(count=2, capacity={"requests": {"bandwidth": _BANDWIDTH}}),
        in_use=_half_of(_SHARED),
        slices=_shareable_devices,
        uses=_SHARED,
        constraints=[{"distinctAttribute": INDEX}],
    ),
)
"""In the order of the tables."""
