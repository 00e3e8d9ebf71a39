"""Queueing hints of DynamicResources: which events may help a pod whose devices could not be allocated.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``isSchedulableAfterClaimChange``,
``isSchedulableAfterTargetPodUpdate``).
"""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_core.errors import DeviceError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.handle import Handle
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import Pod
from scheduler_core.model.quantity import nano
from scheduler_core.plugins.dynamic_resources.pod_claims import claims_of_pod

_CHANGED = Action.ADD | Action.UPDATE
_NODE = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE


class DeviceHints:
    """Queueing hints that read the claims as they are now."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def registrations(self) -> tuple[EventRegistration, ...]:
        """Return the events with their hints."""
        return (
            EventRegistration(ClusterEvent(Resource.NODE, _NODE)),
            EventRegistration(ClusterEvent(Resource.RESOURCE_CLAIM, _CHANGED | Action.DELETE), self.after_claim_change),
            EventRegistration(
                ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM), self.after_pod_update
            ),
            EventRegistration(ClusterEvent(Resource.DEVICE_CLASS, _CHANGED)),
            EventRegistration(ClusterEvent(Resource.RESOURCE_SLICE, _CHANGED)),
        )

    def after_claim_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if a claim of the pod was created or has another status, or if any claim lost its allocation."""
        if not isinstance(old, ResourceClaim | None) or not isinstance(new, ResourceClaim | None):
            return Hint.QUEUE
        had_devices = old is not None and old.status.allocation is not None
        if new is None:
            return Hint.QUEUE if had_devices else Hint.SKIP
        try:
            claims = claims_of_pod(pod, self._handle.nodes.devices)
        except DeviceError:
            return Hint.SKIP
        if had_devices and new.status.allocation is None:
            return Hint.QUEUE
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return Hint.SKIP
        return Hint.SKIP if old is not None and _is_same(old.status, new.status) else Hint.QUEUE

    def after_pod_update(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if all claims of the pod exist now."""
        del pod, old
        if not isinstance(new, Pod):
            return Hint.QUEUE
        try:
            claims_of_pod(new, self._handle.nodes.devices)
        except DeviceError:
            return Hint.SKIP
        return Hint.QUEUE


def _is_same(old: ResourceClaimStatus, new: ResourceClaimStatus) -> bool:
    """Return whether two statuses are equal, whatever the notation of their quantities."""
    return old == new or _without_notation(old) == _without_notation(new)


def _without_notation(status: ResourceClaimStatus) -> ResourceClaimStatus:
    allocation = status.allocation
    if allocation is None:
        return status
    results = tuple(
        replace(each, consumed_capacity={name: nano(amount) for name, amount in each.consumed_capacity.items()})
        for each in allocation.devices.results
    )
    return replace(status, allocation=replace(allocation, devices=replace(allocation.devices, results=results)))
