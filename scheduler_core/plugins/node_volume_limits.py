"""NodeVolumeLimits: a node attaches at most as many volumes of a CSI driver as the driver allows.

The attached volumes are counted by :mod:`scheduler_core.snapshot.indexes.volume_use`. A volume that has an attachment
but is used by no running pod counts in addition to the pod's own claim on the same volume, because it may be detaching.

If a CSIDriver requires it, pods with its volumes also need nodes where the driver is installed.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/nodevolumelimits/csi.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    Reuse,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SKIP, Status, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_volumes import ClaimReference, CsiVolume
from scheduler_core.model.storage import CsiNode, PersistentVolumeClaim, VolumeAttachment
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo, volumes_of
from scheduler_core.snapshot.row_cache import NO_LIMIT, CsiNodeColumns


def after_csi_node_update(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the limit of a driver was raised; no limit counts as 0, as in kube-scheduler."""
    if not isinstance(old, CsiNode) or not isinstance(new, CsiNode):
        return Hint.QUEUE
    before = {driver.name: driver.limit or 0 for driver in old.spec.drivers}
    raised = any((driver.limit or 0) > before.get(driver.name, 0) for driver in new.spec.drivers)
    return Hint.QUEUE if raised else Hint.SKIP


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod was scheduled or nominated and had volumes that count."""
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if not (old.spec.node_name or old.status.nominated_node_name):
        return Hint.SKIP
    volumes = volumes_of(old)
    return Hint.QUEUE if volumes.claims or volumes.drivers else Hint.SKIP


def after_claim_creation(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod uses the claim."""
    if not isinstance(new, PersistentVolumeClaim):
        return Hint.QUEUE
    return Hint.QUEUE if new.key in {claim.key for claim in volumes_of(pod).claims} else Hint.SKIP


def after_attachment_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod has claims, or an in-tree volume of the attachment's driver."""
    if not isinstance(old, VolumeAttachment):
        return Hint.QUEUE
    volumes = volumes_of(pod)
    is_unreadable = any(inline.problem for inline in volumes.inline)
    if volumes.mounted or is_unreadable or old.spec.attacher in volumes.drivers:
        return Hint.QUEUE
    return Hint.SKIP


_FULL = 1
_FIRST_MISSING = 2
_REJECTION = unschedulable("node(s) exceed max volume count")
_DRIVERS: StateKey[tuple[str, ...]] = StateKey("NodeVolumeLimits/drivers")


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    """Rules out nodes that cannot attach the pod's volumes in addition."""

    name = "NodeVolumeLimits"
    handles_resizes = False
    reuse = Reuse(pod=PodReads.NOTHING)
    events = (
        EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.ADD)),
        EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.UPDATE), after_csi_node_update),
        EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), after_pod_deletion),
        EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), after_claim_creation),
        EventRegistration(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE), after_attachment_deletion),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._csi_nodes = CsiNodeColumns(handle.nodes)

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that always holds for a pod without claims and in-tree volumes, None for any other."""
        return None if pod.volumes.claims or pod.volumes.drivers else always

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Return Skip for a pod without claims and in-tree volumes."""
        return PreFilterResult() if pod.volumes.claims or pod.volumes.drivers else PreFilterResult(SKIP)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows where a driver is missing or at its limit, and all rows if a claim does not exist.

        Raises:
            PluginError: A claim belongs to another pod, or an in-tree volume cannot be translated.
        """
        use = nodes.storage.use
        new: dict[str, dict[CsiVolume, None]] = {}
        unmigrated: set[str] = set()
        for position, reference in enumerate(pod.volumes.claims):
            if not self._is_known(reference, pod, nodes):
                return np.full(len(nodes.alive[rows]), _FIRST_MISSING + position, dtype=np.int16)
            volume = use.volume_of_claim(reference.key)
            if volume is not None:
                new.setdefault(volume[0], {})[volume] = None
                if not use.is_migrated(reference.key):
                    unmigrated.add(volume[0])
        if pod.volumes.inline:
            self._count_inline(pod, nodes, rows, new)
        state.write(_DRIVERS, tuple(new))
        full: NDArray[np.bool_] | None = None
        for driver, volumes in new.items():
            limits = self._csi_nodes.limits(driver)
            if limits is not None:
                over = _over_limit(nodes, limits, driver, list(volumes))
                full = over if full is None else np.logical_or(full, over, out=full)
        codes = None if full is None else full.astype(np.int16)
        for position, driver in enumerate(reversed(new), start=1):
            missing = self._missing(nodes, driver, migrated=driver not in unmigrated)
            if missing is not None:
                codes = np.zeros(nodes.size, dtype=np.int16) if codes is None else codes
                codes[missing] = -position
        return None if codes is None else codes[rows]

    def _missing(self, nodes: NodeColumns, driver: str, *, migrated: bool) -> NDArray[np.bool_] | None:
        """Return where a driver that pods with its volumes need is not installed, bool[row]; None if there is none.

        Volumes of in-tree plugins count only on nodes with a CSINode.
        """
        found = nodes.storage.drivers.get(driver)
        if found is None or not found.spec.prevent_pod_scheduling_if_missing:
            return None
        installed = self._csi_nodes.installed(driver)
        missing = np.ones(nodes.size, dtype=np.bool_) if installed is None else ~installed
        return missing & self._csi_nodes.present() if migrated else missing

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """Return whether the node is full, or which driver is missing, or which claim does not exist."""
        if code == _FULL:
            return _REJECTION
        if code < 0:
            return unschedulable(f"{state.read(_DRIVERS)[code]} CSI driver is not installed on the node")
        claim = pod.volumes.claims[code - _FIRST_MISSING]
        return unresolvable(f'looking up PVC {claim.key}: persistentvolumeclaim "{claim.name}" not found')

    def details(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> tuple[str, ...]:
        """Return the limits of the drivers that are reached on a row, and what the CSINode lacks."""
        found, name, use = [], nodes.node_name(row), nodes.storage.use
        csi_node = nodes.storage.csi_nodes.get(name)
        for driver in state.get(_DRIVERS) or ():
            limits, present = self._csi_nodes.limits(driver), self._csi_nodes.installed(driver)
            attached = int(use.counts(driver, nodes.size)[row])
            if limits is not None and int(limits[row]) != NO_LIMIT and attached >= int(limits[row]):
                found.append(f"driver {driver} has {attached} volumes of at most {int(limits[row])} on the node")
            elif self._missing(nodes, driver, migrated=False) is not None and (present is None or not present[row]):
                lacking = f"CSINode {name} does not list it" if csi_node is not None else f"there is no CSINode {name}"
                found.append(f"driver {driver} is not installed on the node: {lacking}")
        return tuple(found)

    def _is_known(self, reference: ClaimReference, pod: PodInfo, nodes: NodeColumns) -> bool:
        if not reference.name:
            raise PluginError(self.name, "filter", "PersistentVolumeClaim had no name")
        claim = nodes.storage.claims.get(reference.key)
        if claim is None:
            return False
        if reference.is_ephemeral and not claim.metadata.is_controlled_by(pod.uid):
            message = f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
            raise PluginError(self.name, "filter", message)
        return True

    def _count_inline(
        self, pod: PodInfo, nodes: NodeColumns, rows: Rows, new: dict[str, dict[CsiVolume, None]]
    ) -> None:
        for inline in pod.volumes.inline:
            if not inline.problem:
                new.setdefault(inline.volume[0], {})[inline.volume] = None
            elif bool((self._csi_nodes.present() & nodes.alive)[rows].any()):
                message = f"converting volume({inline.name}) from inline to csi: {inline.problem}"
                raise PluginError(self.name, "filter", message)


def _over_limit(
    nodes: NodeColumns, limits: NDArray[np.int64], driver: str, volumes: Sequence[CsiVolume]
) -> NDArray[np.bool_]:
    """Return where a driver has too many volumes, without those that pods of the row already use, bool[row]."""
    use = nodes.storage.use
    added = np.full(nodes.size, len(volumes), dtype=np.int64)
    for volume in volumes:
        rows = use.rows_with(volume)
        if rows:
            added[rows] -= 1
    over: NDArray[np.bool_] = (limits != NO_LIMIT) & (added > 0) & (use.counts(driver, nodes.size) + added > limits)
    return over
