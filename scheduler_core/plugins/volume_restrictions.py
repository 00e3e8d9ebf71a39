"""VolumeRestrictions: disks that can be attached only once, and claims with access mode ReadWriteOncePod.

The disks in use are stored in :mod:`scheduler_core.snapshot.indexes.volume_use`. Follows kube-scheduler v1.37.1,
``pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go``, including that a removed pod's claims are
counted by name, regardless of their namespace.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    CONTINUE,
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
from scheduler_core.model.pod_volumes import NO_VOLUMES, do_disks_conflict
from scheduler_core.model.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo, volumes_of

_DISK_TAKEN = 1
_CLAIM_IN_USE = 2
_SKIPPED = PreFilterResult(SKIP)


class _OnePodClaims(Struct):
    """The pod's ReadWriteOncePod claims by name, and the number of their uses by pods on nodes."""

    names: frozenset[str]
    uses: int

    def clone(self) -> _OnePodClaims:
        return _OnePodClaims(self.names, self.uses)

    def count(self, other: PodInfo, sign: int) -> None:
        """Add (1) or subtract (-1) the claims that another pod uses."""
        self.uses += sign * sum(claim.name in self.names for claim in other.volumes.mounted)


_STATE: StateKey[_OnePodClaims] = StateKey("VolumeRestrictions/readWriteOncePod")


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the deleted pod was in the same namespace and used a conflicting disk or the same claim."""
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if old.metadata.namespace != pod.metadata.namespace:
        return Hint.SKIP
    wanted, held = volumes_of(pod), volumes_of(old)
    if do_disks_conflict(wanted.disks, held.disks):
        return Hint.QUEUE
    shared = {claim.name for claim in wanted.mounted} & {claim.name for claim in held.mounted}
    return Hint.QUEUE if shared else Hint.SKIP


def after_claim_creation(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod uses the claim."""
    if not isinstance(new, PersistentVolumeClaim):
        return Hint.QUEUE
    if new.metadata.namespace != pod.metadata.namespace:
        return Hint.SKIP
    names = {claim.name for claim in volumes_of(pod).mounted}
    return Hint.QUEUE if new.metadata.name in names else Hint.SKIP


class VolumeRestrictions(PreFilterPlugin, PreFilterExtensions, FilterPlugin):
    """Rules out nodes where a disk of the pod is in use, and all nodes while a ReadWriteOncePod claim is in use."""

    name = "VolumeRestrictions"
    handles_resizes = False
    reasons = (
        unschedulable("node(s) had no available disk"),
        unschedulable(
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
            "another pod"
        ),
    )
    reuse = Reuse(pod=PodReads.NOTHING)
    events = (
        EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), after_pod_deletion),
        EventRegistration(ClusterEvent(Resource.NODE, Action.ADD)),
        EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), after_claim_creation),
    )

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that always holds for a pod without disks and claims, None for any other."""
        return None if pod.volumes.disks or pod.volumes.mounted else always

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Find the ReadWriteOncePod claims and whether they are in use; a missing claim rejects the pod."""
        if pod.volumes is NO_VOLUMES:
            return _SKIPPED
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
            return _SKIPPED
        state.write(_STATE, _OnePodClaims(frozenset(names), uses))
        return CONTINUE

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        state.read(_STATE).count(added, 1)
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        state.read(_STATE).count(removed, -1)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows where a disk of the pod is in use; all rows while a ReadWriteOncePod claim of it is in use."""
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
