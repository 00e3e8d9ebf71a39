"""Workloads of the benchmarks: nodes and pods, generated from their numbers.

The same number always gives the same object, and both schedulers get the same objects. They correspond to workloads of
kube-scheduler's own scheduler_perf (kubernetes v1.36.3, ``test/integration/scheduler_perf``): one constraint at a time,
on nodes that differ only in their zone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

ZONES = 3
NAMESPACE = "default"
SCHEDULER_NAME = "bench"
APP = "bench"
NODES_PATH = "/api/v1/nodes"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"

Document = dict[str, Any]


def node(number: int, *, cpu: str = "32", memory: str = "128Gi") -> Document:
    """Make a node in one of three zones."""
    name = f"node-{number:05d}"
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % ZONES}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(number: int, spec: Document | None = None, *, cpu_milli: int = 100, memory_mib: int = 200) -> Document:
    requests = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:06d}", "namespace": NAMESPACE, "labels": {"app": APP}},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container], **(spec or {})},
    }


def encoded(document: Document) -> bytes:
    return json.dumps(document).encode()


HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
CREATED_BEFORE = "bound"
UNSCHEDULABLE_EVERY = 5
PREEMPTING_PRIORITY = 1000
PRIORITY_CLASS = "bench-preempting"
PREEMPTING = {"priority": PREEMPTING_PRIORITY, "priorityClassName": PRIORITY_CLASS}
"""Fields of the spec of a pod that preempts others."""
_FULL_CPUS = 30
_SELECTOR = {"matchLabels": {"app": APP}}


def placed(number: int, node_name: str, **more: Any) -> Document:
    # There is no kubelet that ends them, so the grace period is 0.
    document = pod(number, {"nodeName": node_name, "terminationGracePeriodSeconds": 0}, **more)
    document["metadata"] |= {"name": f"{CREATED_BEFORE}-{number:06d}", "labels": {"app": "other"}}
    return document


def _affinity(kind: str, terms: list[Document], *, required: bool) -> Document:
    if required:
        return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    weighted = [{"weight": 1, "podAffinityTerm": term} for term in terms]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}


def _term(topology_key: str) -> Document:
    return {"topologyKey": topology_key, "labelSelector": _SELECTOR}


def _spread(when: str) -> Document:
    constraint = {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": _SELECTOR}
    return {"topologySpreadConstraints": [constraint]}


def _node_affinity(number: int) -> Document:
    zones = {"key": ZONE, "operator": "In", "values": [f"zone-{zone}" for zone in range(ZONES - 1)]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}
    return pod(number, {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})


def _mixed(number: int) -> Document:
    return pod(number, cpu_milli=64_000 if number % UNSCHEDULABLE_EVERY == 0 else 100)


def _nothing(_nodes: int, _pods: int) -> Iterator[Document]:
    yield from ()


def _full(nodes: int, _pods: int) -> Iterator[Document]:
    """Yield two pods of low priority for each node, which leave no room for a third."""
    for number in range(2 * nodes):
        name = node(number // 2)["metadata"]["name"]
        yield placed(number, name, cpu_milli=_FULL_CPUS * 500, memory_mib=1024)


def _spread_out(nodes: int, _pods: int) -> Iterator[Document]:
    for number in range(10_000):
        yield placed(number, node(number % nodes)["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Workload:
    """A backlog and its cluster.

    Attributes:
        before: Makes the bound pods, given the numbers of nodes and pods.
        others: Makes the other objects, each with the path of its collection, given the same numbers.
        bound_of: Number of pods that are bound at the end, given the number of pods.
        at_most: Maximum number of pods that fit, given the number of nodes.
        churn: Whether a bound pod is deleted for each pod that is bound.
        in_flight: Maximum number of waiting pods: each bound pod is deleted, and then the next one is created. 0 for
            all pods at once.
        preempts: Whether each pod preempts others, and so is attempted twice; fewer of these pods are measured.
        frees_devices: Whether the profile allows preemption to free devices.
        has_templates: Whether kube-controller-manager runs, which creates and deletes claims of templates.
    """

    name: str
    description: str
    pod: Callable[[int], Document] = pod
    before: Callable[[int, int], Iterator[Document]] = _nothing
    others: Callable[[int, int], Iterator[tuple[str, Document]]] = field(default=lambda _nodes, _pods: iter(()))
    bound_of: Callable[[int], int] = field(default=lambda pods: pods)
    at_most: Callable[[int], int] = field(default=lambda nodes: 100 * nodes)
    churn: bool = False
    in_flight: int = 0
    preempts: bool = False
    frees_devices: bool = False
    has_templates: bool = False


WORKLOADS = (
    Workload("basic", "equal pods"),
    Workload("sizes", "pods of different sizes", lambda number: pod(number, cpu_milli=50 + number % 9973)),
    Workload("node-affinity", "required node affinity to some zones", _node_affinity),
    Workload(
        "affinity",
        "required pod affinity by zone",
        lambda number: pod(number, _affinity("podAffinity", [_term(ZONE)], required=True)),
        at_most=lambda nodes: 30 * nodes,
    ),
    Workload(
        "preferred-affinity",
        "preferred pod affinity by host",
        lambda number: pod(number, _affinity("podAffinity", [_term(HOSTNAME)], required=False)),
    ),
    Workload(
        "anti-affinity",
        "required pod anti-affinity by host",
        lambda number: pod(number, _affinity("podAntiAffinity", [_term(HOSTNAME)], required=True)),
        at_most=lambda nodes: nodes,
    ),
    Workload("spread", "required spread over zones", lambda number: pod(number, _spread("DoNotSchedule"))),
    Workload("preferred-spread", "preferred spread over zones", lambda number: pod(number, _spread("ScheduleAnyway"))),
    Workload(
        "preemption",
        "each pod preempts a pod of lower priority",
        lambda number: pod(number, PREEMPTING, cpu_milli=10_000),
        before=_full,
        at_most=lambda nodes: nodes,
        preempts=True,
    ),
    Workload(
        "unschedulable",
        f"one pod of {UNSCHEDULABLE_EVERY} is infeasible",
        _mixed,
        bound_of=lambda pods: pods - -(-pods // UNSCHEDULABLE_EVERY),
    ),
    Workload("churn", "pods are deleted while others are bound", churn=True),
    Workload(
        "occupied",
        "10,000 pods bound before",
        before=_spread_out,
        at_most=lambda nodes: min(100 * nodes, 110 * nodes - 10_000),
    ),
)
"""In the order of the tables."""


def workload_named(name: str) -> Workload:
    """Return the workload with a name.

    Raises:
        KeyError: There is no such workload.
    """
    return {each.name: each for each in WORKLOADS}[name]
