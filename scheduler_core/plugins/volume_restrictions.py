"""VolumeRestrictions: a disk that can be attached once is, and a ReadWriteOncePod claim has one pod.

Owns the two rejections and the hints. Must not know how disks in use are kept; that is
:mod:`scheduler_core.snapshot.volume_use`. Follows kube-scheduler v1.36.3,
``pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go``, down to its counting of a removed pod's
claims by name alone, whatever their namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    PodReads,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
    Reuse,
)
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SKIP, SUCCESS, Status, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_volumes import pod_volumes
from scheduler_core.model.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_DISK_TAKEN = 1
_CLAIM_IN_USE = 2
_REJECTIONS = {
    _DISK_TAKEN: unschedulable("node(s) had no available disk"),
    _CLAIM_IN_USE: unschedulable(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod"
    ),
}
_LOOK = PreFilterResult()
_NOTHING_TO_DO = PreFilterResult(SKIP)


class _OnePodClaims(Struct):
    """The pod's ReadWriteOncePod claims by name, and how often pods on nodes use them."""

    names: frozenset[str]
    uses: int

    def clone(self) -> _OnePodClaims:
        """A copy for a what-if."""
        return _OnePodClaims(self.names, self.uses)

    def count(self, other: PodInfo, sign: int) -> None:
        """Count what another pod uses in or out."""
        self.uses += sign * sum(claim.name in self.names for claim in other.volumes.mounted)


_STATE: StateKey[_OnePodClaims] = StateKey("VolumeRestrictions/readWriteOncePod")


class VolumeRestrictions(PreFilterPlugin, PreFilterExtensions, FilterPlugin):
    """Rules out nodes that hold the pod's disk already, and all of them while a one-pod claim is in use."""

    name = "VolumeRestrictions"
    reuse = Reuse(pod=PodReads.NOTHING)

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """A pod without volumes that are looked at is skipped always; of any other it cannot be told."""
        del nodes
        return None if pod.volumes.disks or pod.volumes.mounted else always

    def events_to_register(self) -> Sequence[EventRegistration]:
        """The going of a pod with a shared volume, a node's coming, and the coming of a claim of the pod."""
        return (
            EventRegistration(ClusterEvent(Resource.POD, Action.DELETE), after_pod_deletion),
            EventRegistration(ClusterEvent(Resource.NODE, Action.ADD)),
            EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), after_claim_creation),
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Find the one-pod claims and whether they are in use; a claim that does not exist rejects the pod."""
        storage = nodes.storage
        names: dict[str, str] = {}
        for claim in pod.volumes.mounted:
            found = storage.claims.get(claim.key)
            if found is None:
                return PreFilterResult(unresolvable(f'persistentvolumeclaim "{claim.name}" not found'))
            if READ_WRITE_ONCE_POD in found.spec.access_modes:
                names[claim.name] = claim.key
        uses = sum(storage.use.is_claim_mounted(key) for key in names.values())
        if not pod.volumes.disks and not uses:
            return _NOTHING_TO_DO
        state.write(_STATE, _OnePodClaims(frozenset(names), uses))
        return _LOOK

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """Count the claims of a pod that came."""
        del pod, nodes, row
        state.read(_STATE).count(added, 1)
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """Count the claims of a pod that went."""
        del pod, nodes, row
        state.read(_STATE).count(removed, -1)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows where a disk of the pod is taken; any row while a one-pod claim of it is in use."""
        in_use = state.read(_STATE).uses > 0
        taken = [
            row
            for disk in pod.volumes.disks
            for identity in disk.identities
            for row in nodes.storage.use.disk_rows(identity, read_only=disk.read_only)
        ]
        if not (in_use or taken):
            return None
        codes: Codes = np.full(nodes.size, _CLAIM_IN_USE if in_use else 0, dtype=np.int16)
        codes[taken] = _DISK_TAKEN
        return codes[rows]

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """Whether a disk or a claim is taken."""
        del state, pod
        return _REJECTIONS[code]


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the deleted pod, of the same namespace, had a disk that conflicts or a claim that both use."""
    del new
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if old.metadata.namespace != pod.metadata.namespace:
        return Hint.SKIP
    wanted, held = pod_volumes(pod), pod_volumes(old)
    if any(disk.conflicts_with(other) for disk in wanted.disks for other in held.disks):
        return Hint.QUEUE
    shared = {claim.name for claim in wanted.mounted} & {claim.name for claim in held.mounted}
    return Hint.QUEUE if shared else Hint.SKIP


def after_claim_creation(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the claim is one that the pod names."""
    del old
    if not isinstance(new, PersistentVolumeClaim):
        return Hint.QUEUE
    if new.metadata.namespace != pod.metadata.namespace:
        return Hint.SKIP
    names = {claim.name for claim in pod_volumes(pod).mounted}
    return Hint.QUEUE if new.metadata.name in names else Hint.SKIP
