"""Hypothetical storage events that might requeue a pod with claims; see :mod:`scheduler_core.explain.candidate_events`.

Claims created or bound, volumes and storage classes created, capacities grown, drivers registered, volumes detached,
volume limits raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from scheduler_core.explain.candidate_events import Candidate
from scheduler_core.explain.findings import NodeLacks
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.pod_requests import value
from scheduler_core.model.pod_volumes import ClaimReference
from scheduler_core.model.storage import (
    STORAGE,
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    CsiStorageCapacity,
    DriverAllocatable,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_NEW_VOLUME = "new-volume"


def storage_changes(info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[Candidate]:
    """Yield events of the pod's claims and of the CSI drivers of the nearest nodes."""
    storage = columns.storage
    for reference in info.volumes.claims:
        claim = storage.claims.get(reference.key)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            made = PersistentVolumeClaim(AnnotatedMeta(reference.name, info.pod.metadata.namespace))
            event = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
            again = "" if claim is None else f" again{_after_end(info, reference, columns)}"
            yield Candidate(event, None, made, f"claim {reference.key} created{again}")
        elif not claim.spec.volume_name:
            yield from _for_unbound(claim, columns)
            yield from _grown_capacities(claim, columns, misses)
    for miss in misses:
        csi_node = storage.csi_nodes.get(miss.node)
        if csi_node is not None:
            yield from _raised_limits(csi_node)
        yield from _registered_drivers(info, columns, miss.node, csi_node)
        yield from _detached(columns, miss.node)


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


def _after_end(info: PodInfo, reference: ClaimReference, columns: NodeColumns) -> str:
    """Return which pods keep a claim that is being deleted; its finalizer waits for their end."""
    users = sorted(
        other.key
        for pods in columns.pods
        for other in pods.values()
        if other.uid != info.uid and any(each.key == reference.key for each in other.volumes.claims)
    )
    if not users:
        return " after its deletion"
    more = f" and {len(users) - 1} more" if len(users) > 1 else ""
    return f" after its deletion, which waits for the end of pod {users[0]}{more}"


def _grown_capacities(
    claim: PersistentVolumeClaim, columns: NodeColumns, misses: Sequence[NodeLacks]
) -> Iterator[Candidate]:
    """Yield reports of enough storage capacity for a claim on the nearest nodes."""
    storage, requested = columns.storage, claim.spec.resources.requests.get(STORAGE)
    storage_class = storage.classes.get(claim.spec.storage_class_name or "")
    driver = None if storage_class is None else storage.drivers.get(storage_class.provisioner)
    if requested is None or storage_class is None or driver is None or not driver.spec.storage_capacity:
        return
    class_name = storage_class.metadata.name
    for miss in misses:
        row = columns.row_of(miss.node)
        node = columns.nodes[row] if row >= 0 else None
        if node is None:
            continue
        labels = node.metadata.labels
        capacity = next(iter(storage.capacities_reaching(class_name, labels)), None)
        if capacity is None:
            made = CsiStorageCapacity(ObjectMeta("new-capacity"), class_name, capacity=requested)
            words = f"a CSIStorageCapacity of class {class_name} with {requested} that includes node {miss.node}"
            yield Candidate(ClusterEvent(Resource.CSI_STORAGE_CAPACITY, Action.ADD), None, made, words)
        elif capacity.volume_limit is None or value(capacity.volume_limit) < value(requested):
            grown = replace(capacity, capacity=requested, maximum_volume_size=None)
            key = f"{capacity.metadata.namespace}/{capacity.metadata.name}"
            amounts = f"from {capacity.volume_limit} to {requested}"
            words = f"CSIStorageCapacity {key} of node {miss.node} grown {amounts}"
            yield Candidate(ClusterEvent(Resource.CSI_STORAGE_CAPACITY, Action.UPDATE), capacity, grown, words)


def _registered_drivers(
    info: PodInfo, columns: NodeColumns, node_name: str, csi_node: CsiNode | None
) -> Iterator[Candidate]:
    """Yield registrations of drivers that pods with their volumes need."""
    storage = columns.storage
    volumes = (storage.use.volume_of_claim(reference.key) for reference in info.volumes.claims)
    for name in dict.fromkeys(volume[0] for volume in volumes if volume is not None):
        driver = storage.drivers.get(name)
        if driver is None or not driver.spec.prevent_pod_scheduling_if_missing:
            continue
        added = CsiNodeDriver(name, DriverAllocatable(1))
        if csi_node is None:
            made = CsiNode(AnnotatedMeta(node_name), CsiNodeSpec((added,)))
            words = f"CSINode {node_name} created with driver {name}"
            yield Candidate(ClusterEvent(Resource.CSI_NODE, Action.ADD), None, made, words)
        elif all(each.name != name for each in csi_node.spec.drivers):
            changed = replace(csi_node, spec=replace(csi_node.spec, driver_list=(*csi_node.spec.drivers, added)))
            words = f"driver {name} registered in CSINode {node_name}, with a limit of volumes"
            yield Candidate(ClusterEvent(Resource.CSI_NODE, Action.UPDATE_OTHER), csi_node, changed, words)


def _detached(columns: NodeColumns, node_name: str) -> Iterator[Candidate]:
    """Yield deletions of attachments to a node whose volume no pod on the node uses."""
    storage, row = columns.storage, columns.row_of(node_name)
    used = {
        claim.spec.volume_name
        for other in columns.pods[row].values()
        for reference in other.volumes.claims
        if (claim := storage.claims.get(reference.key)) is not None
    }
    for attachment in storage.attachments:
        volume = attachment.spec.source.persistent_volume_name
        if attachment.spec.node_name == node_name and volume is not None and volume not in used:
            words = f"VolumeAttachment {attachment.metadata.name} deleted (volume {volume}, node {node_name})"
            yield Candidate(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE), attachment, None, words)


def _raised_limits(csi_node: CsiNode) -> Iterator[Candidate]:
    limited = [driver for driver in csi_node.spec.drivers if driver.allocatable is not None]
    if not limited:
        return
    raised = tuple(_with_one_more(driver) for driver in csi_node.spec.drivers)
    changed = replace(csi_node, spec=replace(csi_node.spec, driver_list=raised))
    names = ", ".join(driver.name for driver in limited)
    words = f"the limit of volumes raised on node {csi_node.metadata.name} (driver {names})"
    yield Candidate(ClusterEvent(Resource.CSI_NODE, Action.UPDATE_OTHER), csi_node, changed, words)


def _with_one_more(driver: CsiNodeDriver) -> CsiNodeDriver:
    if driver.allocatable is None:
        return driver
    return replace(driver, allocatable=DriverAllocatable((driver.allocatable.count or 0) + 1))
