"""Workloads with claims of templates on a real API server, most of them in a steady state.

They have the objects of kube-scheduler's scheduler_perf (kubernetes v1.37.1, ``test/integration/scheduler_perf/dra``):
ten devices a node, claims that kube-controller-manager creates from a template, and in the steady state ten pods that
wait at any time. Each bound pod is deleted, so that the number of devices in use stays the same. These are left out:
``PublishResourceSlices``, which schedules no pods; PodGroups with claims, list-typed attributes and compatibility
groups, which need feature gates; and scores of extended resources, which need a different profile.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from itertools import chain

from benchmarks import device_hardware as hardware
from benchmarks.device_hardware import CLASS, DRIVER, INDEX, PCI_ROOT, Objects
from benchmarks.device_workloads import exactly, two_partitions, unequal_partitions
from benchmarks.workloads import Document, Workload, pod

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


def _shareable(nodes: int) -> Objects:
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


def _half(uses: Uses) -> Callable[[int], int]:
    return lambda nodes: nodes * len(uses) // 2


def _all_but_ten(nodes: int) -> int:
    return nodes * DEVICES - IN_FLIGHT


_TWO, _SEVEN, _SHARED = _partitions(0, 1), _partitions(*range(1, 8)), _shares()

STEADY_DEVICE_WORKLOADS = (
    _workload(
        "device-templates",
        "a template; half of the devices are in use",
        exactly(),
        in_use=_half(_GPU_USES),
        in_flight=0,
    ),
    _workload("steady-empty", "steady state; no device is in use", exactly()),
    _workload("steady-half", "steady state; half of the devices are in use", exactly(), in_use=_half(_GPU_USES)),
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
        in_use=_half(_TWO),
        slices=two_partitions,
        uses=_TWO,
    ),
    _workload(
        "steady-backtracking",
        "steady state; seven partitions of eight, half of the nodes are in use",
        exactly(count=7),
        in_use=_half(_SEVEN),
        slices=unequal_partitions,
        uses=_SEVEN,
    ),
    _workload(
        "steady-capacity",
        "steady state; a part of the bandwidth of two devices, half is in use",
        exactly(count=2, capacity={"requests": {"bandwidth": _BANDWIDTH}}),
        in_use=_half(_SHARED),
        slices=_shareable,
        uses=_SHARED,
        constraints=[{"distinctAttribute": INDEX}],
    ),
)
"""In the order of the tables."""
