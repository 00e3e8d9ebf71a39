"""Nodes as decoded from the API server: only the fields that scheduling reads."""

from __future__ import annotations

from msgspec import Struct, field

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Quantities
from scheduler_core.model.taints import Taint

HOSTNAME = "kubernetes.io/hostname"
"""Label with the name of a node."""


class PodPreemptionPolicy(Struct, gc=False, frozen=True, rename="camel"):
    """``spec.podPreemptionPolicy``: the owners that have disabled preemption for deferred resizes on the node."""

    disable_resize_preemption: tuple[str, ...] = ()


class NodeSpec(Struct, gc=False, frozen=True, rename="camel"):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_preemption_policy: PodPreemptionPolicy | None = None

    @property
    def disables_resize_preemption(self) -> bool:
        policy = self.pod_preemption_policy
        return policy is not None and bool(policy.disable_resize_preemption)


class ContainerImage(Struct, gc=False, frozen=True, rename="camel"):
    """An image on a node; ``name_list`` is None, null on the wire, for an image without a name; the size in bytes."""

    name_list: tuple[str, ...] | None = field(default=(), name="names")
    size_bytes: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return self.name_list or ()


class NodeStatus(Struct, gc=False, frozen=True, rename="camel"):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
