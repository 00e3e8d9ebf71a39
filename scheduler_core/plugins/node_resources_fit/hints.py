"""Queueing hints of NodeResourcesFit: changes of nodes and pods that may free resources for a pod.

The hints compare objects, not columns, because the columns contain the change already and its difference counts.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/fit.go``
(``isSchedulableAfterAssignedPodDelete`` and its neighbours, ``isSchedulableAfterNodeChange``,
``isSchedulableAfterDeviceClassEvent``).
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource, hint_on
from scheduler_core.framework.handle import Handle
from scheduler_core.model.devices import DeviceClass
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import PODS, in_units
from scheduler_core.model.quantity import nano, whole_units
from scheduler_core.snapshot.pod_info import once_per_event, requests_of


def after_pod_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Return whether a pod that was deleted or scaled down may free resources.

    Args:
        new: The other pod after; None if it was deleted.

    Returns:
        Queue if it was scheduled or nominated and freed something that ``pod`` requests; also if that is unknown.
    """
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if new is None:
        held = old.spec.node_name or old.status.nominated_node_name
        return Hint.QUEUE if held and not _is_elsewhere(old, pod) else Hint.SKIP
    if not isinstance(new, Pod):
        return Hint.QUEUE
    if not new.spec.node_name:
        return Hint.QUEUE if new.metadata.uid == pod.metadata.uid else Hint.SKIP
    if _is_elsewhere(new, pod):
        return Hint.SKIP
    before, after = requests_of(old).accounted, requests_of(new).accounted
    requested = requests_of(pod).accounted
    freed = any(amount and before.get(name, 0) > after.get(name, 0) for name, amount in requested.items())
    return Hint.QUEUE if freed else Hint.SKIP


def after_pod_growth(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Return whether a pod that was scaled up concerns ``pod``: a resize that fitted on their node may fit no more."""
    del old
    if not isinstance(new, Pod):
        return Hint.QUEUE
    return Hint.QUEUE if pod.has_deferred_resize and not _is_elsewhere(new, pod) else Hint.SKIP


def _is_elsewhere(other: Pod, pod: Pod) -> bool:
    """Return whether a pod is not on the node on which ``pod`` waits for its resize."""
    return pod.has_deferred_resize and other.spec.node_name != pod.spec.node_name


class FitHints:
    """Queueing hints that depend on the device classes as they are now."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def registrations(self) -> tuple[EventRegistration, ...]:
        """Return the events with their hints."""
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        device_class = ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE)
        return (
            EventRegistration(_FREED, after_pod_change),
            EventRegistration(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN), after_pod_change),
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_UP), after_pod_growth),
            EventRegistration(node, self.after_node_change),
            EventRegistration(device_class, after_class_change),
        )

    def after_node_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Return whether a node that was added or changed may have enough resources.

        Args:
            old: The node before; None if it was added.

        Returns:
            Queue if the empty node is large enough and something that ``pod`` requests has grown, or may be provided
            through devices.
        """
        if not isinstance(new, Node):
            return Hint.SKIP if new is None else Hint.QUEUE
        if pod.has_deferred_resize and new.metadata.name != pod.spec.node_name:
            return Hint.SKIP
        requested = {name: amount for name, amount in requests_of(pod).fit.items() if amount}
        room, places = _room(new)
        resolve = self._handle.nodes.devices.class_of_resource
        by_devices = {name for name in requested if not room.get(name, 0) and resolve(name) is not None}
        if places < 1 or any(
            amount > room.get(name, 0) for name, amount in requested.items() if name not in by_devices
        ):
            return Hint.SKIP
        if not isinstance(old, Node) or by_devices:
            return Hint.QUEUE
        old_room, old_places = _room(old)
        grown = places > old_places or any(room.get(name, 0) > old_room.get(name, 0) for name in requested)
        return Hint.QUEUE if grown else Hint.SKIP


@hint_on(DeviceClass)
def after_class_change(pod: Pod, old: DeviceClass | None, new: DeviceClass | None) -> Hint:
    """Return whether a device class that was added or changed may serve an extended resource of the pod."""
    if new is None:
        return Hint.SKIP
    requested, resource = requests_of(pod).fit, new.spec.extended_resource_name
    if old is not None and (old.spec.extended_resource_name or "") == (resource or ""):
        return Hint.SKIP
    if old is None and new.implicit_resource_name in requested:
        return Hint.QUEUE
    return Hint.QUEUE if resource is not None and resource in requested else Hint.SKIP


_FREED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)


@once_per_event
def _room(node: Node) -> tuple[Mapping[str, int], int]:
    quantities = {name: nano(quantity) for name, quantity in node.status.allocatable.items()}
    return in_units(quantities), whole_units(quantities.get(PODS, 0))
