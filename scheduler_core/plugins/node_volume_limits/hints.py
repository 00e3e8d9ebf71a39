"""Queueing hints of NodeVolumeLimits: which events may make room for a pod's volumes.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/nodevolumelimits/csi.go``.
"""

from __future__ import annotations

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import CsiNode, PersistentVolumeClaim, VolumeAttachment
from scheduler_core.snapshot.pod_info import volumes_of


def registrations() -> tuple[EventRegistration, ...]:
    """Return the events with their hints."""
    return (
        EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.ADD)),
        EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.UPDATE), after_csi_node_update),
        EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), after_pod_deletion),
        EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), after_claim_creation),
        EventRegistration(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE), after_attachment_deletion),
    )


def after_csi_node_update(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the limit of a driver was raised; no limit counts as 0, as in kube-scheduler."""
    del pod
    if not isinstance(old, CsiNode) or not isinstance(new, CsiNode):
        return Hint.QUEUE
    before = {driver.name: driver.limit or 0 for driver in old.spec.drivers}
    raised = any((driver.limit or 0) > before.get(driver.name, 0) for driver in new.spec.drivers)
    return Hint.QUEUE if raised else Hint.SKIP


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod was scheduled or nominated and had volumes that count."""
    del pod, new
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if not (old.spec.node_name or old.status.nominated_node_name):
        return Hint.SKIP
    volumes = volumes_of(old)
    return Hint.QUEUE if volumes.claims or volumes.drivers else Hint.SKIP


def after_claim_creation(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod uses the claim."""
    del old
    if not isinstance(new, PersistentVolumeClaim):
        return Hint.QUEUE
    return Hint.QUEUE if new.key in {claim.key for claim in volumes_of(pod).claims} else Hint.SKIP


def after_attachment_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod has claims, or an in-tree volume of the attachment's driver."""
    del new
    if not isinstance(old, VolumeAttachment):
        return Hint.QUEUE
    volumes = volumes_of(pod)
    is_unreadable = any(inline.problem for inline in volumes.inline)
    if volumes.mounted or is_unreadable or old.spec.attacher in volumes.drivers:
        return Hint.QUEUE
    return Hint.SKIP
