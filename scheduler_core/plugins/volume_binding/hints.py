"""Queueing hints of VolumeBinding: which events may help a pod whose claims could not be bound.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/volumebinding/volume_binding.go``.
"""

from __future__ import annotations

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.model.pod import Pod
from scheduler_core.model.quantity import value
from scheduler_core.model.storage import (
    MIGRATED_PLUGINS,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler_core.snapshot.pod_info import volumes_of

_CHANGED = Action.ADD | Action.UPDATE


def registrations() -> tuple[EventRegistration, ...]:
    """Return the events with their hints."""
    return (
        EventRegistration(ClusterEvent(Resource.STORAGE_CLASS, _CHANGED), after_class_change),
        EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, _CHANGED), after_claim_change),
        EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME, _CHANGED)),
        EventRegistration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
        EventRegistration(ClusterEvent(Resource.CSI_NODE, _CHANGED), after_csi_node_change),
        EventRegistration(ClusterEvent(Resource.CSI_DRIVER, Action.UPDATE), after_driver_update),
        EventRegistration(ClusterEvent(Resource.CSI_STORAGE_CAPACITY, _CHANGED), after_capacity_change),
    )


def after_class_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a class was added, or its allowed topologies changed."""
    del pod
    if not isinstance(old, StorageClass) or not isinstance(new, StorageClass):
        return Hint.QUEUE
    return Hint.SKIP if old.allowed_topologies == new.allowed_topologies else Hint.QUEUE


def after_claim_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod uses the claim."""
    del old
    if not isinstance(new, PersistentVolumeClaim):
        return Hint.QUEUE
    return Hint.QUEUE if new.key in {claim.key for claim in volumes_of(pod).claims} else Hint.SKIP


def after_csi_node_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a CSINode was added, or the plugins that are migrated to its drivers changed."""
    del pod
    if not isinstance(old, CsiNode) or not isinstance(new, CsiNode):
        return Hint.QUEUE
    before, after = (each.metadata.annotations.get(MIGRATED_PLUGINS, "") for each in (old, new))
    return Hint.SKIP if before == after else Hint.QUEUE


def after_driver_update(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a driver of an inline volume of the pod stopped to report its capacity."""
    if not isinstance(old, CsiDriver) or not isinstance(new, CsiDriver):
        return Hint.QUEUE
    if not old.spec.storage_capacity or new.spec.storage_capacity:
        return Hint.SKIP
    inline = (volume.csi for volume in pod.spec.volumes if volume.csi is not None)
    return Hint.QUEUE if any(csi.driver == new.metadata.name for csi in inline) else Hint.SKIP


def after_capacity_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a capacity was added, or its largest volume size grew."""
    del pod
    if not isinstance(old, CsiStorageCapacity) or not isinstance(new, CsiStorageCapacity):
        return Hint.QUEUE
    before, after = old.volume_limit, new.volume_limit
    if after is None:
        return Hint.SKIP
    return Hint.QUEUE if before is None or value(after) > value(before) else Hint.SKIP
