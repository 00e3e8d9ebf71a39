"""Checks in plain Python whether a pod may be put on a node, by what the scheduler has received.

A second implementation of the rules that the simulation draws pods for: resources, number of pods, host ports, taints,
cordons, node selectors and anti-affinity by host. It does not use the core's columns or plugins, which are under test.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod

APP = "app"
_UNITS = {"m": 1, "": 1000, "Mi": 1, "Gi": 1024}


@lru_cache(maxsize=4096)
def _amount(text: str) -> int:
    """Return milli-CPU for CPUs, MiB for bytes; counts times 1,000."""
    digits = text.rstrip("mMGi")
    return int(digits) * _UNITS[text[len(digits) :]]


def requests_of(pod: Pod) -> tuple[int, int]:
    """Return the milli-CPU and MiB that a pod requests."""
    cpu = memory = 0
    for container in pod.spec.containers:
        requests = container.resources.requests
        cpu += _amount(str(requests.get("cpu", "0")))
        memory += _amount(str(requests.get("memory", "0Mi")))
    return cpu, memory


def ports_of(pod: Pod) -> set[int]:
    """Return the host ports of a pod."""
    return {port.host_port for container in pod.spec.containers for port in container.ports if port.host_port}


def room_of(node: Node) -> tuple[int, int, int]:
    """Return the milli-CPU, MiB and number of pods that a node allows."""
    allocatable = node.status.allocatable
    cpu, memory = _amount(str(allocatable["cpu"])), _amount(str(allocatable["memory"]))
    return cpu, memory, int(allocatable["pods"])


def misfit(pod: Pod, node: Node, there: Iterable[Pod]) -> str:
    """Return why a pod must not be put on a node beside the pods that are there; "" if it may."""
    others = list(there)
    if len(others) + 1 > room_of(node)[2]:
        return f"{len(others)} pods are there already"
    for name, asked, room, used in zip(
        ("cpu", "memory"),
        requests_of(pod),
        room_of(node)[:2],
        map(sum, zip(*(requests_of(other) for other in others), strict=True)) if others else (0, 0),
        strict=True,
    ):
        if asked and used + asked > room:
            return f"{name}: {used} of {room} are taken, {asked} are asked for"
    mine = ports_of(pod)
    if mine and any(mine & ports_of(other) for other in others):
        return f"host ports {sorted(mine)} are taken"
    return _rule_against(pod, node) or _pod_against(pod, others)


def _rule_against(pod: Pod, node: Node) -> str:
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


def _pod_against(pod: Pod, others: list[Pod]) -> str:
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
            return f"pod {one.metadata.name} will not be beside pod {other.metadata.name}"
    return ""
