"""VolumeZone: a pod runs in the zones and regions of the labels of its bound volumes.

The node affinity of a volume is handled by VolumeBinding. A node without zone and region labels accepts every volume,
because a cluster with a single zone need not label its nodes.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/volumezone/volume_zone.go``.
"""

from __future__ import annotations

from collections.abc import Callable
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
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, unresolvable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_volumes import BETA_REGION, BETA_ZONE, NO_VOLUMES, REGION, ZONE, ZONES_SEPARATOR
from scheduler_core.model.selectors import EXISTS, IN, LabelRequirement
from scheduler_core.model.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler_core.snapshot.indexes.storage_index import StorageIndex
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.node_selector_matching import NodeMatching
from scheduler_core.snapshot.pod_info import PodInfo, volumes_of

_TOPOLOGY_KEYS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_SUCCESSOR = {BETA_ZONE: ZONE, BETA_REGION: REGION}

_WRONG_ZONE = 1
_REJECTION = unresolvable("node(s) had no available volume zone")

_Places = tuple[LabelRequirement, ...]
_PLACES: StateKey[_Places] = StateKey("VolumeZone/places")


def after_class_creation(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the class binds claims when their first consumer is scheduled."""
    if not isinstance(new, StorageClass):
        return Hint.QUEUE
    return Hint.QUEUE if new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else Hint.SKIP


def after_claim_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod uses the claim."""
    if not isinstance(new, PersistentVolumeClaim):
        return Hint.QUEUE
    return Hint.QUEUE if new.key in {claim.key for claim in volumes_of(pod).mounted} else Hint.SKIP


def after_volume_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the volume was added, or its zones or regions changed."""
    if not isinstance(new, PersistentVolume) or not isinstance(old, PersistentVolume):
        return Hint.QUEUE
    return Hint.SKIP if _places(old) == _places(new) else Hint.QUEUE


class VolumeZone(PreFilterPlugin, FilterPlugin):
    """Rules out nodes that are not in the zones of the pod's volumes."""

    name = "VolumeZone"
    handles_resizes = False
    reuse = Reuse(pod=PodReads.NOTHING)
    events = (
        EventRegistration(ClusterEvent(Resource.STORAGE_CLASS, Action.ADD), after_class_creation),
        EventRegistration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
        EventRegistration(
            ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE), after_claim_change
        ),
        EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE), after_volume_change),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._matching = NodeMatching(handle.nodes)

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that always holds for a pod without claims, None for any other."""
        return None if pod.volumes.mounted else always

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Read the labels of the pod's volumes; reject the pod if a claim that should be bound is not."""
        if pod.volumes is NO_VOLUMES:
            return PreFilterResult(SKIP)
        places, status = _places_of_pod(pod, nodes.storage)
        if not status.is_success:
            return PreFilterResult(status)
        if not places:
            return PreFilterResult(SKIP)
        state.write(_PLACES, places)
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows that have zone or region labels, but not those of every volume.

        Raises:
            PluginError: Claims cannot be read; only if PreFilter, which detects that, is not enabled.
        """
        places = state.get(_PLACES)
        if places is None:
            places, status = _places_of_pod(pod, nodes.storage)
            if status.code is Code.ERROR:
                raise PluginError(self.name, "filter", status.message)
            if not status.is_success:
                return np.full(len(nodes.alive[rows]), _WRONG_ZONE + 1, dtype=np.int16)
        if not places:
            return None
        matching = self._matching
        is_placed = matching.label(LabelRequirement(_TOPOLOGY_KEYS[0], EXISTS), rows)
        for key in _TOPOLOGY_KEYS[1:]:
            np.logical_or(is_placed, matching.label(LabelRequirement(key, EXISTS), rows), out=is_placed)
        fits: NDArray[np.bool_] | None = None
        for place in places:
            here = _within(matching, place, rows)
            fits = here if fits is None else np.logical_and(fits, here, out=fits)
        return None if fits is None else (is_placed & ~fits).astype(np.int16)

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """Return the only rejection, or that of PreFilter if PreFilter is not enabled."""
        if code == _WRONG_ZONE:
            return _REJECTION
        return _places_of_pod(pod, self.handle.nodes.storage)[1]


def _within(matching: NodeMatching, place: LabelRequirement, rows: Rows) -> NDArray[np.bool_]:
    """Return where a node has one of the values; a deprecated label is also looked up under its new name."""
    here = matching.label(place, rows)
    successor = _SUCCESSOR.get(place.key)
    if successor is not None:
        renamed = matching.label(LabelRequirement(successor, IN, place.values), rows)
        lacks = ~matching.label(LabelRequirement(place.key, EXISTS), rows)
        here = here | (lacks & renamed)
    return here


def _places_of_pod(pod: PodInfo, storage: StorageIndex) -> tuple[_Places, Status]:
    places: list[LabelRequirement] = []
    for reference in pod.volumes.mounted:
        if not reference.name:
            return (), unresolvable("PersistentVolumeClaim had no name")
        claim = storage.claims.get(reference.key)
        if claim is None:
            return (), unresolvable(f'persistentvolumeclaim "{reference.name}" not found')
        name = claim.spec.volume_name
        if not name:
            status = _unbound_status(claim, storage)
            if status.is_success:
                continue
            return (), status
        volume = storage.volumes.get(name)
        if volume is None:
            return (), unresolvable(f'persistentvolume "{name}" not found')
        places.extend(_places(volume))
    return tuple(places), SUCCESS


def _unbound_status(claim: PersistentVolumeClaim, storage: StorageIndex) -> Status:
    """Return Success for a claim that waits for its first consumer."""
    name = claim.class_name
    if not name:
        return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
    storage_class = storage.classes.get(name)
    if storage_class is None:
        return unresolvable(f'storageclass.storage.k8s.io "{name}" not found')
    if storage_class.volume_binding_mode is None:
        return unresolvable(f'VolumeBindingMode not set for StorageClass "{name}"')
    if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return SUCCESS
    return unresolvable("PersistentVolume had no name")


def _places(volume: PersistentVolume) -> list[LabelRequirement]:
    """Return the zones and regions of a volume's labels; a list that contains an empty entry is ignored."""
    places: list[LabelRequirement] = []
    for key in _TOPOLOGY_KEYS:
        text = volume.metadata.labels.get(key)
        if text is None:
            continue
        values = {value.strip() for value in text.split(ZONES_SEPARATOR)}
        if "" not in values:
            places.append(LabelRequirement(key, IN, tuple(sorted(values))))
    return places
