"""What updates of pods and nodes change, as events for the queue.

Follows kube-scheduler v1.37.1 (``framework/events.go``).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from scheduler_core.cycle.percentage_of_nodes import REGION_LABEL, ZONE_LABEL
from scheduler_core.errors import QuantityError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.model.node import Node, NodeStatus
from scheduler_core.model.pod import Pod, Quantities
from scheduler_core.model.pod_requests import accounted_milli, same_granted_resources
from scheduler_core.model.quantity import nano


def is_unchanged(old: Node, new: Node) -> bool:
    """Return whether an update changes nothing that the core reads, such as a heartbeat."""
    return (
        old.spec == new.spec
        and old.status == new.status
        and old.metadata.labels == new.metadata.labels
        and annotations_of(old) == annotations_of(new)
    )


def _declared_status(node: Node) -> list[object]:
    """Return the status fields that are decoded only because a plugin declares them."""
    fields = node.status.__struct_fields__[len(NodeStatus.__struct_fields__) :]
    return [getattr(node.status, name) for name in fields]


def node_events(old: Node, new: Node) -> list[ClusterEvent]:
    """Return the events of an updated node; a cordon is none, because it cannot make the node feasible."""
    actions: list[Action] = []
    if _differ(old.status.allocatable, new.status.allocatable):
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.spec.taints != new.spec.taints or (old.spec.unschedulable and not new.spec.unschedulable):
        actions.append(Action.UPDATE_NODE_TAINT)
    if _declared_status(old) != _declared_status(new):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if annotations_of(old) != annotations_of(new):
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.spec.pod_preemption_policy != new.spec.pod_preemption_policy:
        actions.append(Action.UPDATE_NODE_PREEMPTION_POLICY)
    if old.status.declared_features != new.status.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(Resource.NODE, action) for action in actions]


def _differ(old: Quantities, new: Quantities) -> bool:
    """Return whether amounts differ in value, not only in notation."""
    if old == new:
        return False
    try:
        return {name: nano(text) for name, text in old.items()} != {name: nano(text) for name, text in new.items()}
    except QuantityError:
        # One of the two is unreadable, and they differ as text.
        return True


def pod_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """Return the events of an updated pod."""
    actions: list[Action] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if old.spec != new.spec or not same_granted_resources(old, new):
        before, after = accounted_milli(old), accounted_milli(new)
        if _is_less(after, before):
            actions.append(Action.UPDATE_POD_SCALE_DOWN)
        if _is_less(before, after):
            actions.append(Action.UPDATE_POD_SCALE_UP)
        # Tolerations can only be added; their seconds may change, but matter only to running pods.
        if len(old.spec.tolerations) != len(new.spec.tolerations):
            actions.append(Action.UPDATE_POD_TOLERATION)
        if old.spec.scheduling_gates and not new.spec.scheduling_gates:
            actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if _claims(old) != _claims(new):
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    resource = Resource.ASSIGNED_POD if new.spec.node_name else Resource.TARGET_POD
    return [ClusterEvent(resource, action) for action in actions]


def _claims(pod: Pod) -> tuple[object, object]:
    """Return the claims that were created for a pod."""
    return pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status


def labelled_by_bind(before: Pod, pod: Pod) -> Pod:
    """Return a pod with the topology labels that the API server copies from the node when the pod is bound."""
    labels = pod.metadata.labels
    if before.metadata.labels == labels:
        return before
    copied = {key: labels[key] for key in (REGION_LABEL, ZONE_LABEL) if key in labels}
    return replace(before, metadata=replace(before.metadata, labels={**before.metadata.labels, **copied}))


def _is_less(amounts: Mapping[str, int], than: Mapping[str, int]) -> bool:
    """Return whether any request is lower or missing, even of a resource that is not counted."""
    return any(name not in amounts or amounts[name] < amount for name, amount in than.items())
