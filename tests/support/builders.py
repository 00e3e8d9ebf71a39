"""Builders of pods and nodes, which are the decoded objects that the scheduler uses.

UIDs are derived from namespace and name, so that results do not depend on the order of tests.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypedDict, Unpack

from scheduler_core.model.affinity import Affinity
from scheduler_core.model.meta import ObjectMeta, OwnerReference
from scheduler_core.model.node import ContainerImage, Node, NodeSpec, NodeStatus
from scheduler_core.model.pod import (
    Container,
    ContainerPort,
    ContainerRestartRule,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Quantities,
    ResourceRequirements,
    SchedulingGate,
    SchedulingGroup,
    TopologySpreadConstraint,
    Volume,
)
from scheduler_core.model.taints import Taint, Toleration

Amounts = Mapping[str, str | int]
"""Quantities by resource name, as in a manifest."""

DEFAULT_ALLOCATABLE: Amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}


class ContainerFields(TypedDict, total=False):
    """Keyword arguments of :func:`container`."""

    name: str
    image: str
    requests: Amounts
    limits: Amounts
    ports: Iterable[ContainerPort | int]
    restart_policy: str
    restart_actions: Iterable[str]


class PodFields(TypedDict, total=False):
    """Keyword arguments of :func:`pod`.

    ``requests``, ``image`` and ``ports`` belong to its only container; they are ignored with ``containers``.
    """

    namespace: str
    uid: str
    labels: Mapping[str, str]
    owners: Iterable[OwnerReference]
    created: datetime
    deleted: datetime
    requests: Amounts
    image: str
    ports: Iterable[ContainerPort | int]
    containers: Iterable[Container]
    init_containers: Iterable[Container]
    pod_requests: Amounts
    overhead: Amounts
    node_name: str
    node_selector: Mapping[str, str]
    affinity: Affinity
    tolerations: Iterable[Toleration]
    spread: Iterable[TopologySpreadConstraint]
    volumes: Iterable[Volume]
    gates: Iterable[str]
    group: str
    priority: int
    preemption_policy: str
    scheduler_name: str
    phase: str
    nominated_node: str
    conditions: Iterable[PodCondition]
    container_statuses: Iterable[ContainerStatus]
    start_time: datetime


class NodeFields(TypedDict, total=False):
    """Keyword arguments of :func:`node`; ``images`` are sizes in bytes by name."""

    labels: Mapping[str, str]
    taints: Iterable[Taint | str]
    allocatable: Amounts
    images: Mapping[str, int] | Iterable[ContainerImage]
    unschedulable: bool
    features: Iterable[str]


def container(**fields: Unpack[ContainerFields]) -> Container:
    """Return a container; an int among its ports is a TCP host port."""
    return Container(
        name=fields.get("name", "main"),
        image=fields.get("image", ""),
        resources=ResourceRequirements(
            requests=_quantities(fields.get("requests", {})), limits=_quantities(fields.get("limits", {}))
        ),
        ports=tuple(_port(port) for port in fields.get("ports", ())),
        restart_policy=fields.get("restart_policy", ""),
        restart_policy_rules=tuple(ContainerRestartRule(action) for action in fields.get("restart_actions", ())),
    )


def pod(name: str = "pod", **fields: Unpack[PodFields]) -> Pod:
    """Return a pod, by default a pending BestEffort pod with one container."""
    namespace = fields.get("namespace", "default")
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=fields.get("uid", f"uid-of-{namespace}-{name}"),
        labels=dict(fields.get("labels", {})),
        owner_references=tuple(fields.get("owners", ())),
        creation_timestamp=fields.get("created"),
        deletion_timestamp=fields.get("deleted"),
    )
    return Pod(metadata, _pod_spec(fields), _pod_status(fields))


def node(name: str = "node", **fields: Unpack[NodeFields]) -> Node:
    """Return a node, by default with 4 CPUs, 16 GiB and a capacity of 110 pods."""
    images = fields.get("images", ())
    if isinstance(images, Mapping):
        images = [ContainerImage((image,), size) for image, size in images.items()]
    allocatable = _quantities(fields.get("allocatable", DEFAULT_ALLOCATABLE))
    return Node(
        ObjectMeta(name=name, uid=f"uid-of-{name}", labels=dict(fields.get("labels", {}))),
        NodeSpec(
            unschedulable=fields.get("unschedulable", False),
            taints=tuple(taint(each) if isinstance(each, str) else each for each in fields.get("taints", ())),
        ),
        NodeStatus(
            capacity=allocatable,
            allocatable=allocatable,
            images=tuple(images),
            declared_features=tuple(fields.get("features", ())),
        ),
    )


def taint(text: str) -> Taint:
    """Parse a taint in kubectl's notation: ``key=value:Effect`` or ``key:Effect``."""
    label, _, effect = text.rpartition(":")
    key, _, value = label.partition("=")
    return Taint(key=key, value=value, effect=effect)


def _pod_spec(fields: PodFields) -> PodSpec:
    containers = fields.get("containers")
    if containers is None:
        requests, image, ports = fields.get("requests", {}), fields.get("image", ""), fields.get("ports", ())
        containers = (container(requests=requests, image=image, ports=ports),)
    pod_level = fields.get("pod_requests")
    group = fields.get("group")
    return PodSpec(
        node_name=fields.get("node_name", ""),
        scheduler_name=fields.get("scheduler_name", "default-scheduler"),
        priority=fields.get("priority"),
        preemption_policy=fields.get("preemption_policy", ""),
        node_selector=dict(fields.get("node_selector", {})),
        affinity=fields.get("affinity"),
        tolerations=tuple(fields.get("tolerations", ())),
        topology_spread_constraints=tuple(fields.get("spread", ())),
        containers=tuple(containers),
        init_containers=tuple(fields.get("init_containers", ())),
        overhead=_quantities(fields.get("overhead", {})),
        resources=None if pod_level is None else ResourceRequirements(requests=_quantities(pod_level)),
        volumes=tuple(fields.get("volumes", ())),
        scheduling_gates=tuple(SchedulingGate(gate) for gate in fields.get("gates", ())),
        scheduling_group=None if group is None else SchedulingGroup(group),
    )


def _pod_status(fields: PodFields) -> PodStatus:
    return PodStatus(
        phase=fields.get("phase", "Running" if fields.get("node_name") else "Pending"),
        nominated_node_name=fields.get("nominated_node", ""),
        conditions=tuple(fields.get("conditions", ())),
        container_statuses=tuple(fields.get("container_statuses", ())),
        start_time=fields.get("start_time"),
    )


def _port(port: ContainerPort | int) -> ContainerPort:
    return ContainerPort(container_port=port, host_port=port) if isinstance(port, int) else port


def _quantities(amounts: Amounts) -> Quantities:
    return dict(amounts)
