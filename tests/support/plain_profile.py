"""Reference implementation of the default profile in plain Python, for one node at a time.

It follows kube-scheduler v1.36.3 (``plugins/{nodeunschedulable,tainttoleration,nodeaffinity,nodeports,noderesources,
imagelocality}``). Its own small pod and node types are converted to the decoded objects by their method ``real``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler_core.model.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Requirement,
)
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ContainerPort, Pod
from scheduler_core.model.taints import Toleration
from tests.support import builders
from tests.support.plain_scores import OneNode, plain_balanced, plain_least

MIB = 1024 * 1024
PLUGINS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration=3",
    "NodeAffinity=2",
    "NodePorts",
    "NodeResourcesFit=1",
    "NodeResourcesBalancedAllocation=1",
    "ImageLocality=1",
    "PrioritySort",
    "DefaultBinder",
)
"""Plugins that the reference implementation supports, with their default weights."""

Labels = dict[str, str]
Condition = tuple[str, str, tuple[str, ...]]
"""Key, operator (In, NotIn, Exists, DoesNotExist, Gt, Lt), values."""


@dataclass(frozen=True)
class PlainPod:
    """Pod; requests in milli-CPU and MiB, None if its container has no request."""

    name: str
    cpu: int | None = None
    memory: int | None = None
    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[tuple[Condition, ...], ...] = ()
    preferred: tuple[tuple[int, tuple[Condition, ...]], ...] = ()
    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    image: str = ""
    node_name: str = ""

    def real(self) -> Pod:
        """Return the decoded object."""
        requests: dict[str, str | int] = {}
        if self.cpu is not None:
            requests["cpu"] = f"{self.cpu}m"
        if self.memory is not None:
            requests["memory"] = f"{self.memory}Mi"
        affinity = NodeAffinity(
            required=NodeSelector(tuple(_term(term) for term in self.required)) if self.required else None,
            preferred=tuple(PreferredSchedulingTerm(weight, _term(term)) for weight, term in self.preferred),
        )
        return builders.pod(
            self.name,
            requests=requests,
            node_selector=dict(self.selector),
            affinity=Affinity(affinity),
            tolerations=[Toleration(key, operator, value, effect) for key, operator, value, effect in self.tolerations],
            ports=[
                ContainerPort(container_port=port, host_port=port, protocol=protocol, host_ip=address)
                for protocol, address, port in self.ports
            ],
            image=self.image,
            node_name=self.node_name,
        )


@dataclass(frozen=True)
class PlainNode:
    """Node with its running pods; allocatable in milli-CPU and MiB, image sizes in MiB."""

    name: str
    cpu: int
    memory: int
    pods: int
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    cordoned: bool = False
    images: tuple[tuple[str, int], ...] = ()
    running_pods: tuple[PlainPod, ...] = ()

    def real(self) -> Node:
        """Return the decoded object."""
        return builders.node(
            self.name,
            allocatable={"cpu": f"{self.cpu}m", "memory": f"{self.memory}Mi", "pods": self.pods},
            labels=dict(self.labels),
            taints=[builders.taint(f"{key}={value}:{effect}") for key, value, effect in self.taints],
            unschedulable=self.cordoned,
            images={image: size * MIB for image, size in self.images},
        )


def real_objects(cluster: Iterable[PlainNode]) -> list[Node | Pod]:
    """Return the nodes of a cluster, and then their running pods in the order of the names of the nodes."""
    nodes = list(cluster)
    by_name = sorted(nodes, key=lambda node: node.name)
    return [*(node.real() for node in nodes), *(pod.real() for node in by_name for pod in node.running_pods)]


def _term(conditions: tuple[Condition, ...]) -> NodeSelectorTerm:
    return NodeSelectorTerm(tuple(Requirement(key, operator, values) for key, operator, values in conditions))


Verdict = tuple[str, tuple[str, ...]]
"""Rejecting plugin and its reasons; ("", ()) if the node is feasible."""


def verdict(pod: PlainPod, node: PlainNode) -> Verdict:
    """Return the first filter plugin, in the profile's order, that rejects the pod, with its reasons."""
    if node.cordoned and not _tolerates(pod, ("node.kubernetes.io/unschedulable", "", "NoSchedule")):
        return "NodeUnschedulable", ("node(s) were unschedulable",)
    hard = [taint for taint in node.taints if taint[2] in ("NoSchedule", "NoExecute")]
    if not all(_tolerates(pod, taint) for taint in hard):
        return "TaintToleration", ("node(s) had untolerated taint(s)",)
    labels = dict(node.labels)
    selected = all(labels.get(key) == value for key, value in pod.selector)
    if not selected or (pod.required and not any(_matches(term, labels) for term in pod.required)):
        return "NodeAffinity", ("node(s) didn't match Pod's node affinity/selector",)
    if any(_ports_conflict(own, used) for own in pod.ports for other in node.running_pods for used in other.ports):
        return "NodePorts", ("node(s) didn't have free ports for the requested pod ports",)
    reasons = []
    if len(node.running_pods) + 1 > node.pods:
        reasons.append("Too many pods")
    if pod.cpu and pod.cpu > node.cpu - sum(other.cpu or 0 for other in node.running_pods):
        reasons.append("Insufficient cpu")
    if pod.memory and pod.memory > node.memory - sum(other.memory or 0 for other in node.running_pods):
        reasons.append("Insufficient memory")
    return ("NodeResourcesFit", tuple(reasons)) if reasons else ("", ())


def totals(pod: PlainPod, feasible: Sequence[PlainNode], cluster: Sequence[PlainNode]) -> list[int]:
    """Return the weighted score of each feasible node."""
    soft = [
        sum(taint[2] == "PreferNoSchedule" and not _tolerates(pod, taint) for taint in node.taints) for node in feasible
    ]
    worst = max(soft)
    taints = [100 if worst == 0 else 100 - 100 * count // worst for count in soft]
    preferences = [
        sum(weight for weight, term in pod.preferred if _matches(term, dict(node.labels))) for node in feasible
    ]
    best = max(preferences)
    affinity = [0 if best == 0 else 100 * weight // best for weight in preferences]
    return [
        3 * taints[position] + 2 * affinity[position] + _resource_scores(pod, node) + _image_score(pod, node, cluster)
        for position, node in enumerate(feasible)
    ]


def _resource_scores(pod: PlainPod, node: PlainNode) -> int:
    def scored_requests(each: PlainPod) -> tuple[int, int]:
        return 100 if each.cpu is None else each.cpu, (200 if each.memory is None else each.memory) * MIB

    cpu, memory = scored_requests(pod)
    used = [scored_requests(other) for other in node.running_pods]
    least = plain_least(
        [
            OneNode(node.cpu, sum(amounts[0] for amounts in used), cpu),
            OneNode(node.memory * MIB, sum(amounts[1] for amounts in used), memory),
        ]
    )
    if not pod.cpu and not pod.memory:
        return least
    balanced = plain_balanced(
        [
            OneNode(node.cpu, sum(other.cpu or 0 for other in node.running_pods), pod.cpu or 0),
            OneNode(
                node.memory * MIB, sum(other.memory or 0 for other in node.running_pods) * MIB, (pod.memory or 0) * MIB
            ),
        ]
    )
    return least + balanced


def _image_score(pod: PlainPod, node: PlainNode, cluster: Sequence[PlainNode]) -> int:
    images = dict(node.images)
    total = 0
    if pod.image in images:
        holders = [other for other in cluster if pod.image in dict(other.images)]
        size = dict(holders[0].images)[pod.image] * MIB
        total = int(size * (len(holders) / len(cluster)))
    low, high = 23 * MIB, 1000 * MIB
    return 100 * (min(max(total, low), high) - low) // (high - low)


def _tolerates(pod: PlainPod, taint: tuple[str, str, str]) -> bool:
    for key, operator, value, effect in pod.tolerations:
        if effect not in ("", taint[2]) or key not in ("", taint[0]):
            continue
        if operator == "Exists" or (operator in ("", "Equal") and value == taint[1]):
            return True
    return False


def _matches(term: Sequence[Condition], labels: Labels) -> bool:
    return bool(term) and all(_requirement_matches(labels.get(key), operator, values) for key, operator, values in term)


def _requirement_matches(actual: str | None, operator: str, values: tuple[str, ...]) -> bool:
    if operator in ("Gt", "Lt"):
        if actual is None or not actual.isdigit():
            return False
        return int(actual) > int(values[0]) if operator == "Gt" else int(actual) < int(values[0])
    if operator == "In":
        return actual in values
    if operator == "NotIn":
        return actual not in values
    return (actual is not None) is (operator == "Exists")


def _ports_conflict(own: tuple[str, str, int], used: tuple[str, str, int]) -> bool:
    addresses = {own[1] or "0.0.0.0", used[1] or "0.0.0.0"}  # noqa: S104 - compared, not listened on
    return own[0] == used[0] and own[2] == used[2] and (len(addresses) == 1 or "0.0.0.0" in addresses)  # noqa: S104 - as above
