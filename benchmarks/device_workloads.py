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
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from benchmarks import device_hardware as hardware
from benchmarks.device_hardware import CLASS, DEVICES_PER_NODE, DRIVER, INDEX, LINK, PCI_ROOT, Objects
from benchmarks.workloads import PREEMPTING, Document, Workload, node, placed, pod

RESOURCE_CLASSES = 25
PODS_PER_CLAIM = 5
_LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
_SHAREABLE, _SHARES, _BANDWIDTH = 4, 4, "2500M"
"""Shareable devices of a node, claims that share one, and the bandwidth of each claim."""
_FULL_DEVICES = 4
"""Devices of a node that is full of devices, each used by one pod."""
_NETWORK_SLACK = 100
"""Network-attached devices that no pod of the backlog uses."""


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


def _half(nodes: int) -> Objects:
    yield from hardware.gpus(nodes)
    yield from hardware.allocated(nodes, nodes * DEVICES_PER_NODE // 2, hardware.gpu_uses(DEVICES_PER_NODE))


def _shareable_devices(nodes: int) -> Objects:
    return hardware.shareable(nodes, _SHAREABLE, "10G")


def _tainted(nodes: int) -> Objects:
    yield from hardware.tainted()
    yield from hardware.gpus(nodes)


def two_partitions(nodes: int) -> Objects:
    """Make two partitions for each node that consume different counters."""
    consumed = [{"a": "1", "b": "1"}, {"c": "1", "d": "1"}]
    return hardware.partitions(nodes, dict.fromkeys("abcd", "1"), consumed)


def unequal_partitions(nodes: int) -> Objects:
    """Make eight partitions of which the first is so large that only the other seven fit together."""
    memory = ["20Gi", *["10Gi"] * 7]
    return hardware.partitions(nodes, {"memory": "70Gi"}, ({"memory": amount} for amount in memory))


def _claimed(
    name: str,
    description: str,
    slices: Callable[[int], Objects],
    claims_per_node: int,
    *requests: Document,
    sharers: int = 1,
    churn: bool = False,
    **more: object,
) -> Workload:
    """Make a workload whose claims are created with its pods.

    Args:
        slices: Makes the slices of a number of nodes.
        claims_per_node: Number of claims that fit on a node.
        sharers: Number of pods that share a claim.
        more: Fields of each claim beside its requests.
    """

    def with_claim(number: int) -> Document:
        claim = hardware.claim_name(number // sharers)
        return pod(number, {"resourceClaims": [{"name": CLASS, "resourceClaimName": claim}]})

    def others(nodes: int, pods: int) -> Objects:
        claims = (hardware.claim(number, *requests, **more) for number in range(-(-pods // sharers)))
        return chain(hardware.classes(), slices(nodes), claims)

    def at_most(nodes: int) -> int:
        return claims_per_node * sharers * nodes

    return Workload(name, description, with_claim, others=others, at_most=at_most, churn=churn)


def _with_resources(name: str, description: str, with_resource: Callable[[int], Document]) -> Workload:
    """Make a workload whose pods request extended resources of device classes."""

    def others(nodes: int, _pods: int) -> Objects:
        return chain(hardware.classes(RESOURCE_CLASSES), hardware.gpus(nodes))

    return Workload(name, description, with_resource, others=others, at_most=lambda nodes: DEVICES_PER_NODE * nodes)


_LARGE_GPU = exactly(selectors=[{"cel": {"expression": _LARGE}}])
_ALTERNATIVES = [
    {"name": "huge", "deviceClassName": hardware.CLASS_WITHOUT_DEVICES},
    {"name": "any", "deviceClassName": CLASS},
]
_PART_OF_BANDWIDTH = {"requests": {"bandwidth": _BANDWIDTH}}
_TOLERATION = {"key": hardware.TAINT, "operator": "Exists"}

DEVICE_WORKLOADS = (
    _claimed("devices", "a device of a class, by capacity", hardware.gpus, DEVICES_PER_NODE, _LARGE_GPU),
    _claimed("device-half", "half of the devices are in use", _half, DEVICES_PER_NODE // 2, _LARGE_GPU),
    _claimed(
        "device-steady",
        "half of the devices are in use; pods and their claims are deleted while others are bound",
        _half,
        DEVICES_PER_NODE // 2,
        _LARGE_GPU,
        churn=True,
    ),
    _claimed(
        "device-shared",
        f"a device for every {PODS_PER_CLAIM} pods, which share its claim",
        hardware.gpus,
        DEVICES_PER_NODE,
        _LARGE_GPU,
        sharers=PODS_PER_CLAIM,
    ),
    _claimed(
        "device-match",
        "four devices of one PCI root",
        hardware.gpus,
        2,
        exactly(count=4),
        constraints=[{"matchAttribute": hardware.PCI_ROOT}],
    ),
    _claimed("device-partitions", "two partitions that consume shared counters", two_partitions, 1, exactly(count=2)),
    _claimed(
        "device-backtracking", "seven partitions of eight, not the first", unequal_partitions, 1, exactly(count=7)
    ),
    _claimed(
        "device-capacity",
        "a part of the bandwidth of two devices",
        _shareable_devices,
        8,
        exactly(count=2, capacity=_PART_OF_BANDWIDTH),
        constraints=[{"distinctAttribute": INDEX}],
    ),
    _claimed(
        "device-taints",
        "a rule taints all devices, and each claim tolerates it",
        _tainted,
        DEVICES_PER_NODE,
        exactly(tolerations=[_TOLERATION]),
    ),
    _claimed(
        "device-list",
        "the second of two alternatives",
        hardware.gpus,
        DEVICES_PER_NODE,
        {"firstAvailable": _ALTERNATIVES},
    ),
    _with_resources("device-resource", f"one of {RESOURCE_CLASSES} extended resources of device classes", _explicit),
    _with_resources(
        "device-implicit", f"one of {RESOURCE_CLASSES} extended resources that are named after classes", _implicit
    ),
    replace(
        _claimed(
            "device-network",
            f"one of {hardware.NETWORK_DEVICES} devices that every node reaches",
            lambda _nodes: hardware.network_attached(),
            0,
            _LARGE_GPU,
        ),
        at_most=lambda _nodes: hardware.NETWORK_DEVICES - _NETWORK_SLACK,
    ),
)
"""In the order of the tables."""


def _held(number: int) -> Document:
    """Make a pod of low priority that uses a device of a full node."""
    document = placed(number, node(number // _FULL_DEVICES)["metadata"]["name"], cpu_milli=1, memory_mib=1)
    document["spec"]["resourceClaims"] = [{"name": CLASS, "resourceClaimName": f"held-{number:06d}"}]
    return document


def _held_claim(number: int) -> tuple[str, Document]:
    """Make the claim of such a pod, with its allocation."""
    owner, node_name = _held(number)["metadata"]["name"], node(number // _FULL_DEVICES)["metadata"]["name"]
    path, document = hardware.claim(number, exactly())
    document["metadata"]["name"] = f"held-{number:06d}"
    device = {"request": f"{CLASS}-0", "device": f"gpu-{number % _FULL_DEVICES}"}
    document["status"] = hardware.allocation(node_name, [device])
    document["status"]["reservedFor"] = [{"resource": "pods", "name": owner, "uid": f"uid-of-{owner}"}]
    return path, document


def _preempting(name: str, count: int) -> Workload:
    """Make a workload whose pods preempt the holders of some devices each."""

    def others(nodes: int, pods: int) -> Objects:
        held = map(_held_claim, range(nodes * _FULL_DEVICES))
        claims = (hardware.claim(number, exactly(count=count)) for number in range(pods))
        return chain(hardware.classes(), hardware.gpus(nodes, _FULL_DEVICES), held, claims)

    def preemptor(number: int) -> Document:
        claims = [{"name": CLASS, "resourceClaimName": hardware.claim_name(number)}]
        return pod(number, {**PREEMPTING, "resourceClaims": claims}, cpu_milli=1)

    return Workload(
        name,
        f"each pod preempts the holders of {count} devices",
        preemptor,
        before=lambda nodes, _pods: map(_held, range(nodes * _FULL_DEVICES)),
        others=others,
        at_most=lambda nodes: nodes,
        preempts=True,
        frees_devices=True,
    )


CORE_DEVICE_WORKLOADS = (
    _preempting("preemption-device", 1),
    _preempting("preemption-devices", _FULL_DEVICES),
    replace(
        _claimed(
            "device-impossible",
            "12 of 32 devices and three with one link, which only pairs have: not satisfiable",
            lambda nodes: hardware.linked(nodes, 32),
            100,
            exactly(count=12),
            exactly(count=3),
            constraints=[{"matchAttribute": LINK, "requests": ["gpu-1"]}],
        ),
        bound_of=lambda _pods: 0,
    ),
)
"""Workloads of the core alone: kube-scheduler frees no devices, and its search times out on every node."""


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
        exactly(count=2, capacity=_PART_OF_BANDWIDTH),
        in_use=_half_of(_SHARED),
        slices=_shareable_devices,
        uses=_SHARED,
        constraints=[{"distinctAttribute": INDEX}],
    ),
)
"""In the order of the tables."""
