"""Objects of one month of churn: every name is new in every month.

All names that users and controllers choose are covered: nodes, label keys and values, taints with timestamps, images,
extended resources, namespaces, services, volumes, drivers, pod groups and the pods that name all of these.
"""

from __future__ import annotations

from msgspec.structs import replace

from benchmarks.workloads import SCHEDULER_NAME
from scheduler_core.model.affinity import (
    Affinity,
    LabelSelector,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Requirement,
    WeightedPodAffinityTerm,
)
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta, OwnerReference
from scheduler_core.model.node import ContainerImage, Node, NodeSpec, NodeStatus
from scheduler_core.model.pod import (
    ClaimVolumeSource,
    Container,
    ContainerPort,
    Pod,
    PodSpec,
    Quantities,
    ResourceRequirements,
    TopologySpreadConstraint,
    Volume,
)
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, PodGroup
from scheduler_core.model.storage import (
    BIND_COMPLETED,
    ClaimPointer,
    CsiVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
    StorageObject,
)
from scheduler_core.model.taints import NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration
from scheduler_core.model.workloads import (
    LabelPairsSpec,
    LabelSelectorSpec,
    Namespace,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    ReplicaSet,
    Service,
)

GANG_MEMBERS = 2
_FEW = 20
_HOSTNAME = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
_ZONES = "abc"

Surrounding = Namespace | Service | ReplicaSet | PodDisruptionBudget


def node(month: int, number: int) -> Node:
    name = f"node-{month}-{number}"
    labels = {_HOSTNAME: name, _ZONE: _ZONES[number % 3], f"pool-{month}": name, "instance": f"i-{name}"}
    amounts: Quantities = {"cpu": "16", "memory": "64Gi", "pods": "110", f"vendor.com/device-{month}": "1000"}
    images = tuple(ContainerImage((f"registry/{month}-{image}:v1",), 100 << 20) for image in range(3))
    status = NodeStatus(amounts, amounts, images=images)
    return Node(ObjectMeta(name, uid=f"uid-of-{name}", labels=labels), NodeSpec(), status)


def leaving(which: Node, month: int) -> tuple[Node, Node]:
    """Return a node as an autoscaler taints it before its deletion: the values of the taints are timestamps."""
    stamp = f"{month}-{which.metadata.name}"
    candidate = Taint("DeletionCandidateOfClusterAutoscaler", PREFER_NO_SCHEDULE, stamp)
    doomed = Taint("ToBeDeletedByClusterAutoscaler", NO_SCHEDULE, stamp)
    return replace(which, spec=NodeSpec(taints=(candidate,))), replace(which, spec=NodeSpec(taints=(doomed,)))


def surroundings(month: int) -> list[Surrounding]:
    """Return a namespace with a service, a ReplicaSet and a disruption budget."""
    name = f"ns-{month}"
    selector = LabelSelector(match_labels={"app": f"app-{month}"})

    def meta(kind: str) -> ObjectMeta:
        return ObjectMeta(kind, namespace=name, uid=f"uid-of-{name}-{kind}")

    return [
        Namespace(ObjectMeta(name, uid=f"uid-of-{name}", labels={"team": name})),
        Service(meta("service"), LabelPairsSpec({"app": f"app-{month}"})),
        ReplicaSet(meta("replicas"), LabelSelectorSpec(selector)),
        PodDisruptionBudget(meta("budget"), PodDisruptionBudgetSpec(selector)),
    ]


def storage(month: int) -> list[StorageObject]:
    """Return a class of a new driver, with a volume that is bound to a claim."""
    of_class, namespace = f"class-{month}", f"ns-{month}"
    claim = AnnotatedMeta(
        "data", namespace, f"uid-of-{namespace}-data", resource_version="1", annotations={BIND_COMPLETED: "yes"}
    )
    pointer = ClaimPointer(namespace, "data", claim.uid)
    source = CsiVolumeSource(f"driver-{month}", f"handle-{month}")
    volume = PersistentVolumeSpec({"storage": "1Gi"}, claim_ref=pointer, storage_class_name=of_class, csi=source)
    wanted = PersistentVolumeClaimSpec(volume_name=f"volume-{month}", storage_class_name=of_class)
    return [
        StorageClass(AnnotatedMeta(of_class, uid=f"uid-of-{of_class}"), f"driver-{month}"),
        PersistentVolume(AnnotatedMeta(f"volume-{month}", uid=f"uid-of-volume-{month}", resource_version="1"), volume),
        PersistentVolumeClaim(claim, wanted),
    ]


def group(month: int) -> PodGroup:
    name = f"gang-{month}"
    return PodGroup(GroupKey(GroupSource.BAYPLAN, f"ns-{month}", name), f"uid-of-{name}", GANG_MEMBERS)


def member(month: int, number: int) -> Pod:
    labels = {POD_GROUP_LABELS[GroupSource.BAYPLAN]: f"gang-{month}"}
    return _pod(month, f"member-{number}", labels, PodSpec(containers=(_container({"cpu": "10m"}),)))


def pod(month: int, number: int) -> Pod:
    app, name = f"app-{month}", f"pod-{number}"
    labels = {"app": app, f"key-{month}": "x", "name": f"{name}-{month}"}
    requests: Quantities = {"cpu": f"{10 + number % 50}m", "memory": str((1 << 20) + month)}
    spec = PodSpec(containers=(_container(requests, f"registry/{month}-{number % 3}:v1"),))
    exists = LabelSelector(match_expressions=(Requirement(f"key-{month}", "Exists"),))
    match number % 10:
        case 0:
            constraint = TopologySpreadConstraint(1, _ZONE, "ScheduleAnyway", exists)
            spec = replace(spec, topology_spread_constraints=(constraint,))
        case 1:
            term = PodAffinityTerm(_HOSTNAME, LabelSelector(match_labels={"name": f"{name}-{month}"}))
            spec = replace(spec, affinity=Affinity(pod_anti_affinity=PodAffinity(required=(term,))))
        case 2:
            team = LabelSelector(match_labels={"team": f"ns-{month}"})
            anywhere = PodAffinityTerm(_ZONE, exists, namespace_selector=team)
            preferred = PodAffinity(preferred=(WeightedPodAffinityTerm(5, anywhere),))
            spec = replace(spec, affinity=Affinity(pod_affinity=preferred))
        case 3:
            spec = replace(spec, tolerations=(Toleration(f"taint-{month}", "Exists"),))
        case 4:
            preference = NodeSelectorTerm((Requirement(f"pool-{month}", "Exists"),))
            affinity = NodeAffinity(preferred=(PreferredSchedulingTerm(3, preference),))
            spec = replace(spec, affinity=Affinity(node_affinity=affinity), node_selector={_ZONE: _ZONES[number % 3]})
        case 5:
            spec = replace(spec, containers=(_container({**requests, f"vendor.com/device-{month}": "1"}),))
        case 6 if number < _FEW:
            # These pods are infeasible, and are retried after each change.
            spec = replace(spec, containers=(_container({**requests, f"invented.com/{month}-{number}": "1"}),))
        case 7:
            port = ContainerPort(container_port=80, host_port=1024 + (97 * month + number) % 60_000)
            spec = replace(spec, containers=(replace(_container(requests), ports=(port,)),))
        case 8:
            spec = replace(spec, volumes=(Volume("data", claim=ClaimVolumeSource("data")),))
        case 9:
            spec = replace(spec, scheduler_name=f"scheduler-{month}-{number}")
    return _pod(month, name, labels, spec)


def _pod(month: int, name: str, labels: dict[str, str], spec: PodSpec) -> Pod:
    namespace = f"ns-{month}"
    owner = OwnerReference("ReplicaSet", "replicas", f"uid-of-{namespace}-replicas", "apps/v1", controller=True)
    meta = ObjectMeta(name, namespace, f"uid-of-{namespace}-{name}", labels=labels, owner_references=(owner,))
    if not spec.scheduler_name.startswith("scheduler-"):
        spec = replace(spec, scheduler_name=SCHEDULER_NAME)
    return Pod(meta, spec)


def _container(requests: Quantities, image: str = "") -> Container:
    return Container(name="main", image=image, resources=ResourceRequirements(requests=requests))
