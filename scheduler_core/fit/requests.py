"""A request: pods with their groups, and a template of the nodes that could be added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from scheduler_core.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from scheduler_core.model.node import HOSTNAME, Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, PodGroup
from scheduler_core.model.storage import StorageObject
from scheduler_core.model.taints import Taint
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_OF_ONE_NODE = "node.kubernetes.io/"
"""Prefix of the taints that describe the state of one node, such as not-ready and unschedulable."""
_DAEMON_SET = "DaemonSet"


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A node of which copies are added.

    Attributes:
        node: The node; each copy has its own name and hostname label.
        daemon_pods: Pods that also run on each copy.
        devices_of: Name of the node of the cluster whose devices each copy has, too; "" for none.
        slices: ResourceSlices of the node, if it is no node of the cluster.
    """

    node: Node
    daemon_pods: tuple[Pod, ...] = ()
    devices_of: str = ""
    slices: tuple[ResourceSlice, ...] = ()

    @property
    def has_devices(self) -> bool:
        """Whether copies may have devices of ResourceSlices."""
        return bool(self.devices_of or self.slices)

    @classmethod
    def of_node(cls, nodes: NodeColumns, name: str) -> NodeTemplate | None:
        """Return a template of an existing node, with its pods of DaemonSets and static pods; None if there is none."""
        row = nodes.row_of(name)
        node = None if row == NO_ROW else nodes.nodes[row]
        if node is None:
            return None
        daemons = tuple(info.pod for info in nodes.pods[row].values() if is_daemon(info.pod))
        return cls(node, daemons, name)

    def copies(self, nodes: NodeColumns) -> Iterator[tuple[Node, list[PodInfo]]]:
        """Yield new nodes without end, each with its pods; no node of the cluster has their names."""
        node, number = self.node, 0
        labels = node.metadata.labels
        spec = replace(node.spec, taints=lasting_taints(node), unschedulable=False)
        while True:
            number += 1
            name = f"{node.metadata.name or 'new-node'}-new-{number}"
            if nodes.row_of(name) != NO_ROW:
                continue
            own = {**labels, HOSTNAME: name}
            meta = replace(node.metadata, name=name, uid=f"uid-of-{name}", labels=own)
            pods = [
                nodes.compile_pod(_moved(pod, name, f"{name}/{position}"))
                for position, pod in enumerate(self.daemon_pods)
            ]
            yield replace(node, metadata=meta, spec=spec), pods

    def slices_of(self, node_name: str) -> Iterator[ResourceSlice]:
        """Yield the slices of a copy, in pools of its own."""
        for each in self.slices:
            pool = replace(each.spec.pool, name=f"{each.spec.pool.name}/{node_name}")
            spec = replace(each.spec, pool=pool, node_name=node_name)
            yield replace(each, metadata=replace(each.metadata, name=f"{each.metadata.name}/{node_name}"), spec=spec)


def lasting_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints that a copy of a node has, too."""
    return tuple(taint for taint in node.spec.taints if not taint.key.startswith(_OF_ONE_NODE))


def is_daemon(pod: Pod) -> bool:
    """Return whether a pod is a static pod, or is controlled by a DaemonSet."""
    owners = pod.metadata.owner_references
    return any(owner.controller and owner.kind == _DAEMON_SET for owner in owners) or any(
        owner.kind == "Node" for owner in owners
    )


def _moved(pod: Pod, node_name: str, uid: str) -> Pod:
    meta = replace(pod.metadata, name=f"{pod.metadata.name}-{node_name}", uid=uid)
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node_name))


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """Pods for which nodes are looked for.

    Attributes:
        pods: The pods in the order of their creation: pods that wait, or that do not exist and have UIDs of their own.
        groups: PodGroups and CompositePodGroups that are created with them. A group of the cluster that a pod names
            need not be among them.
        claims: ResourceClaims that are created with them, unless they exist.
        classes: DeviceClasses that are created with them, unless they exist.
        storage: PersistentVolumeClaims, volumes and classes that are created with them, unless they exist.
        template: Template of new nodes; None for none.
        max_new: Maximum number of new nodes.
        may_evict: Whether evictions are considered as the profiles allow them.
        no_gangs: Why the pods of an owner cannot be one gang, by kind, namespace and name as in ``JobSet ml/train``.
    """

    pods: tuple[Pod, ...]
    groups: tuple[PodGroup | CompositePodGroup, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    storage: tuple[StorageObject, ...] = ()
    template: NodeTemplate | None = None
    max_new: int = 0
    may_evict: bool = True
    no_gangs: Mapping[str, str] = field(default_factory=dict)
