"""Hypothetical storage events that might requeue a pod with claims; see :mod:`scheduler_core.explain.candidate_events`.

Claims created or bound, volumes and storage classes created, volume limits raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from scheduler_core.explain.candidate_events import Candidate
from scheduler_core.explain.nearest_nodes import NearMiss
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.storage import (
    CsiNode,
    CsiNodeDriver,
    DriverAllocatable,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_NEW_VOLUME = "new-volume"


def storage_changes(info: PodInfo, columns: NodeColumns, misses: Sequence[NearMiss]) -> Iterator[Candidate]:
    """Yield events of the pod's claims and of the CSI drivers of the nearest nodes."""
    storage = columns.storage
    for reference in info.volumes.claims:
        claim = storage.claims.get(reference.key)
        if claim is None:
            made = PersistentVolumeClaim(AnnotatedMeta(reference.name, info.pod.metadata.namespace))
            event = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
            yield Candidate(event, None, made, f"claim {reference.key} created")
        elif not claim.spec.volume_name:
            yield from _for_unbound(claim, columns)
    for miss in misses:
        csi_node = storage.csi_nodes.get(miss.node_name)
        if csi_node is not None:
            yield from _raised_limits(csi_node)


def _for_unbound(claim: PersistentVolumeClaim, columns: NodeColumns) -> Iterator[Candidate]:
    bound = replace(claim, spec=replace(claim.spec, volume_name=_NEW_VOLUME))
    event = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER)
    yield Candidate(event, claim, bound, f"claim {claim.key} bound to a volume")
    class_name = claim.spec.storage_class_name or ""
    if class_name and columns.storage.classes.get(class_name) is None:
        event = ClusterEvent(Resource.STORAGE_CLASS, Action.ADD)
        yield Candidate(event, None, StorageClass(ObjectMeta(class_name)), f"storage class {class_name} created")
    spec = PersistentVolumeSpec(
        capacity=dict(claim.spec.resources.requests),
        access_modes=claim.spec.access_modes,
        storage_class_name=class_name,
        volume_mode=claim.spec.volume_mode,
    )
    volume = PersistentVolume(AnnotatedMeta(_NEW_VOLUME), spec)
    words = f"a volume created that suits claim {claim.key}"
    yield Candidate(ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD), None, volume, words)


def _raised_limits(csi_node: CsiNode) -> Iterator[Candidate]:
    limited = [driver for driver in csi_node.spec.drivers if driver.allocatable is not None]
    if not limited:
        return
    raised = tuple(_with_one_more(driver) for driver in csi_node.spec.drivers)
    changed = replace(csi_node, spec=replace(csi_node.spec, drivers=raised))
    names = ", ".join(driver.name for driver in limited)
    words = f"the limit of volumes raised on node {csi_node.metadata.name} (driver {names})"
    yield Candidate(ClusterEvent(Resource.CSI_NODE, Action.UPDATE_OTHER), csi_node, changed, words)


def _with_one_more(driver: CsiNodeDriver) -> CsiNodeDriver:
    if driver.allocatable is None:
        return driver
    return replace(driver, allocatable=DriverAllocatable((driver.allocatable.count or 0) + 1))
