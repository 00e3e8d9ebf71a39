"""Generates pods, nodes, volumes and budgets of the simulated cluster.

Nodes are few and small, so that pods wait, preempt and conflict.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from scheduler_core.model.affinity import Affinity, LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.node import Node, NodeSpec, NodeStatus
from scheduler_core.model.pod import (
    ClaimVolumeSource,
    Container,
    ContainerPort,
    ContainerStatus,
    Pod,
    PodSpec,
    Quantities,
    ResourceRequirements,
    SchedulingGate,
    TopologySpreadConstraint,
    Volume,
)
from scheduler_core.model.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
    VolumePhase,
)
from scheduler_core.model.taints import Taint, Toleration
from scheduler_core.model.workloads import (
    Namespace,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from tests.simulation.api_server import NAMESPACE
from tests.simulation.plain_fit import APP
from tests.simulation.plugins import FAULT_LABEL, GATE_LABEL, INJECTED_FAULTS
from tests.simulation.profiles import PROFILES
from tests.support.affinities import affinity_to, anti_affinity_to, term

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
ZONES = ("a", "b", "c")
APPS = ("web", "db", "job")
TAINT = Taint("dedicated", "NoSchedule", "batch")
DYNAMIC_CLASS = "dynamic"
STATIC_CLASS = "static"
T = TypeVar("T")


def happens(rng: random.Random, share: float) -> bool:
    """Return true with probability *share*."""
    return rng.random() < share


def one_of(rng: random.Random, choices: Sequence[T]) -> T:
    """Return a random element."""
    return choices[rng.randrange(len(choices))]


def has_claims(pod: Pod) -> bool:
    """Return whether a pod needs volumes or devices, which the rival does not write."""
    return bool(pod.spec.volumes or pod.spec.resource_claims)


def node(rng: random.Random, name: str, uid: str) -> Node:
    """Return a random small node."""
    amounts: Quantities = {
        "cpu": f"{one_of(rng, (1500, 2000, 3000, 4000))}m",
        "memory": f"{one_of(rng, (2048, 4096, 8192))}Mi",
        "pods": str(one_of(rng, (4, 6, 10))),
    }
    return Node(
        ObjectMeta(name, uid=uid, labels={ZONE: one_of(rng, ZONES), HOST: name}),
        NodeSpec(taints=(TAINT,) if happens(rng, 0.1) else ()),
        NodeStatus(capacity=amounts, allocatable=amounts),
    )


def pod(rng: random.Random, name: str, uid: str) -> Pod:
    """Return a random pending pod; the claim of its volume has the pod's name."""
    labels = {APP: one_of(rng, APPS)}
    if happens(rng, 0.4):
        labels[FAULT_LABEL] = one_of(rng, INJECTED_FAULTS).replace(" ", "-")
    if happens(rng, 0.08):
        labels[GATE_LABEL] = "closed"
    spec = PodSpec(
        scheduler_name=PROFILES[happens(rng, 0.4)],
        priority=one_of(rng, (0, 0, 0, 5, 10, 100)),
        preemption_policy="Never" if happens(rng, 0.1) else "",
        containers=(_container(rng),),
        tolerations=(Toleration(TAINT.key, "Exists"),) if happens(rng, 0.15) else (),
        node_selector={ZONE: one_of(rng, ZONES)} if happens(rng, 0.15) else {},
        scheduling_gates=(SchedulingGate("example.com/later"),) if happens(rng, 0.12) else (),
        affinity=_affinity(rng, labels[APP]),
        topology_spread_constraints=_spread(rng, labels[APP]),
        volumes=(Volume("data", claim=ClaimVolumeSource(name)),) if happens(rng, 0.2) else (),
    )
    return Pod(ObjectMeta(name, NAMESPACE, uid=uid, generation=1, labels=labels), spec)


def with_requests(old: Pod, cpu_milli: int) -> Pod:
    """Return the pod with another CPU request."""
    [main] = old.spec.containers
    requests = {**main.resources.requests, "cpu": f"{cpu_milli}m"}
    changed = replace(main, resources=ResourceRequirements(requests))
    return replace(old, spec=replace(old.spec, containers=(changed,)))


def with_granted(new: Pod, old: Pod) -> Pod:
    """Return a resized pod to which the kubelet still grants the requests of its old version."""
    [main] = old.spec.containers
    granted = ContainerStatus("main", main.resources.requests, main.resources)
    return replace(new, status=replace(new.status, container_statuses=(granted,)))


def _container(rng: random.Random) -> Container:
    requests: Quantities = {
        "cpu": f"{one_of(rng, (100, 300, 500, 900, 1400, 2000))}m",
        "memory": f"{one_of(rng, (128, 512, 1024, 2048))}Mi",
    }
    if happens(rng, 0.1):
        requests = {}
    port = one_of(rng, (8080, 9090))
    ports = (ContainerPort(port, port),) if happens(rng, 0.1) else ()
    return Container("main", resources=ResourceRequirements(requests), ports=ports)


def _affinity(rng: random.Random, app: str) -> Affinity | None:
    if happens(rng, 0.12):
        return anti_affinity_to(term(app, HOST))
    if happens(rng, 0.07):
        return affinity_to(term(one_of(rng, APPS), ZONE))
    return None


def _spread(rng: random.Random, app: str) -> tuple[TopologySpreadConstraint, ...]:
    if not happens(rng, 0.12):
        return ()
    return (TopologySpreadConstraint(1, one_of(rng, (ZONE, HOST)), label_selector=LabelSelector({APP: app})),)


# -- storage, budgets and namespaces ---------------------------------------------------------------------------------


def classes() -> tuple[StorageClass, ...]:
    """Return two storage classes: dynamic and static provisioning; both wait for the first consumer."""
    mode = "WaitForFirstConsumer"
    return (
        StorageClass(AnnotatedMeta(DYNAMIC_CLASS, uid=DYNAMIC_CLASS), "csi.example.com", mode),
        StorageClass(AnnotatedMeta(STATIC_CLASS, uid=STATIC_CLASS), "kubernetes.io/no-provisioner", mode),
    )


def claim(rng: random.Random, name: str, uid: str) -> PersistentVolumeClaim:
    """Return a pending claim of a random class."""
    spec = PersistentVolumeClaimSpec(
        ("ReadWriteOnce",),
        resources=ResourceRequirements({"storage": "1Gi"}),
        storage_class_name=one_of(rng, (DYNAMIC_CLASS, STATIC_CLASS)),
    )
    return PersistentVolumeClaim(AnnotatedMeta(name, NAMESPACE, uid=uid), spec, VolumePhase("Pending"))


def volume(name: str, uid: str, zone: str) -> PersistentVolume:
    """Return a volume that is accessible from one zone."""
    term = NodeSelectorTerm((Requirement(ZONE, "In", (zone,)),))
    spec = PersistentVolumeSpec(
        {"storage": "2Gi"},
        ("ReadWriteOnce",),
        storage_class_name=STATIC_CLASS,
        node_affinity=VolumeNodeAffinity(NodeSelector((term,))),
    )
    return PersistentVolume(AnnotatedMeta(name, uid=uid), spec, VolumePhase("Available"))


def budget(app: str, allowed: int) -> PodDisruptionBudget:
    """Return a PodDisruptionBudget for the pods of an app."""
    return PodDisruptionBudget(
        ObjectMeta(f"keep-{app}", NAMESPACE, uid=f"keep-{app}"),
        PodDisruptionBudgetSpec(LabelSelector({APP: app})),
        PodDisruptionBudgetStatus(allowed),
    )


def namespace() -> Namespace:
    """Return the only namespace."""
    return Namespace(ObjectMeta(NAMESPACE, uid=NAMESPACE))
