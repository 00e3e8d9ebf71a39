"""Plain Python implementation of the filters that the simulation's pods use, independent of the core under test.

The filters are resources, number of pods, host ports, taints, cordons, node selectors and anti-affinity by host.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, Quantities

APP = "app"
_UNITS = {"m": 1, "": 1000, "Mi": 1, "Gi": 1024}


@lru_cache(maxsize=4096)
def _amount(text: str) -> int:
    """Return milli-CPU for CPUs, MiB for bytes, and counts times 1,000."""
    digits = text.rstrip("mMGi")
    return int(digits) * _UNITS[text[len(digits) :]]


def requests_of(pod: Pod) -> tuple[int, int]:
    """Return the milli-CPU and MiB that a pod requests, or that the kubelet still grants it."""
    cpu, memory = _sum(container.resources.requests for container in pod.spec.containers)
    if pod.status.container_statuses:
        # Simulated pods have one container.
        for granted in pod.status.container_statuses:
            in_effect = {} if granted.resources is None else granted.resources.requests
            for amounts in (granted.allocated_resources, in_effect):
                cpu, memory = map(max, (cpu, memory), _sum((amounts,)))
    return cpu, memory


def _sum(requests: Iterable[Quantities]) -> tuple[int, int]:
    cpu = memory = 0
    for amounts in requests:
        cpu += _amount(str(amounts.get("cpu", "0")))
        memory += _amount(str(amounts.get("memory", "0Mi")))
    return cpu, memory


def ports_of(pod: Pod) -> set[int]:
    """Return the host ports of a pod."""
    return {port.host_port for container in pod.spec.containers for port in container.ports if port.host_port}


def capacity_of(node: Node) -> tuple[int, int, int]:
    """Return the milli-CPU, MiB and number of pods that a node can hold."""
    allocatable = node.status.allocatable
    cpu, memory = _amount(str(allocatable["cpu"])), _amount(str(allocatable["memory"]))
    return cpu, memory, int(allocatable["pods"])


def rejection_reason(pod: Pod, node: Node, there: Iterable[Pod]) -> str:
    """Return why a pod must not run on a node with the given pods; "" if it may."""
    others = list(there)
    if len(others) + 1 > capacity_of(node)[2]:
        return f"{len(others)} pods are on the node already"
    for name, requested, capacity, used in zip(
        ("cpu", "memory"),
        requests_of(pod),
        capacity_of(node)[:2],
        map(sum, zip(*(requests_of(other) for other in others), strict=True)) if others else (0, 0),
        strict=True,
    ):
        if requested and used + requested > capacity:
            return f"{name}: {used} of {capacity} are used, {requested} are requested"
    ports = ports_of(pod)
    if ports and any(ports & ports_of(other) for other in others):
        return f"host ports {sorted(ports)} are used"
    return _node_rejection(pod, node) or _anti_affinity_rejection(pod, others)


def _node_rejection(pod: Pod, node: Node) -> str:
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule" and not any(each.tolerates(taint) for each in pod.spec.tolerations):
            return f"taint {taint.key} is not tolerated"
    if node.spec.unschedulable:
        return "the node is cordoned"
    labels = node.metadata.labels
    for key, value in pod.spec.node_selector.items():
        if labels.get(key) != value:
            return f"the node's label {key} is {labels.get(key)}, not {value}"
    return ""


def _anti_affinity_rejection(pod: Pod, others: list[Pod]) -> str:
    for one, other in [(pod, other) for other in others] + [(other, pod) for other in others]:
        affinity = one.spec.affinity
        if affinity is None or affinity.pod_anti_affinity is None:
            continue
        if any(
            term.topology_key == "kubernetes.io/hostname"
            and term.label_selector is not None
            and term.label_selector.match_labels.get(APP) == other.metadata.labels.get(APP)
            for term in affinity.pod_anti_affinity.required
        ):
            return f"pod {one.metadata.name} has anti-affinity to pod {other.metadata.name}"
    return ""
