"""Event handlers for all objects but pods, nodes and PodGroups: storage, devices, workloads, and declared kinds.

Called on the event loop; while a cycle is suspended, changes are buffered and then applied in order. Objects that
cannot be read fail closed: what depends on them is not scheduled; see :mod:`scheduler_core.snapshot.node_columns`.

Follows kube-scheduler v1.37.1 (``eventhandlers.go``). A new version without a relevant change is an event too: a volume
that could not be bound because of a conflicting write can be bound once that write is known. Namespaces, workloads and
disruption budgets only update indexes: kube-scheduler has no event handler and no resource (``framework/types.go``) for
these kinds, so no plugin can register for them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.cycle.internal_errors import try_twice
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cluster_events import NODE_ADD, Action, ClusterEvent, Resource
from scheduler_core.framework.object_reads import DeclaredObject, ObjectKind
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler_core.model.storage import (
    UNREADABLE,
    CsiDriver,
    CsiDriverSpec,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
    VolumePhase,
)
from scheduler_core.model.workloads import Namespace, PodDisruptionBudget, PodDisruptionBudgetSpec, Workload
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, DeviceObject
from scheduler_core.snapshot.node_columns import KindStore, NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW


class NodeHolds:
    """Holds and releases nodes, and reports both to the pods and gangs that wait."""

    def __init__(self, columns: NodeColumns, queue: SchedulingQueue, freed: FreedCapacity) -> None:
        self._columns = columns
        self._queue = queue
        self._freed = freed

    def hold(self, node_name: str, source: str, reason: str) -> None:
        """Let a node accept no pods for a source, which holds at most one."""
        self._columns.hold_node(node_name, source, reason)
        self._freed.node_changed(node_name)

    def release(self, source: str) -> None:
        """End what a source holds; a node that is held no longer is like a new one for the pods that it rejected."""
        columns = self._columns
        if columns.held.is_empty:
            return
        node_name = columns.held.held_only_by(source)
        row = columns.row_of(node_name) if node_name else NO_ROW
        if row != NO_ROW:
            self._queue.on_event(NODE_ADD, None, columns.nodes[row])
            self._freed.node_changed(node_name)
        # Last: a release that an exception interrupted is repeated.
        columns.release_node(source)


log = logging.getLogger(__name__)

RESOURCES: Mapping[type[Any], Resource] = {
    PersistentVolume: Resource.PERSISTENT_VOLUME,
    PersistentVolumeClaim: Resource.PERSISTENT_VOLUME_CLAIM,
    StorageClass: Resource.STORAGE_CLASS,
    CsiNode: Resource.CSI_NODE,
    CsiDriver: Resource.CSI_DRIVER,
    CsiStorageCapacity: Resource.CSI_STORAGE_CAPACITY,
    VolumeAttachment: Resource.VOLUME_ATTACHMENT,
    ResourceClaim: Resource.RESOURCE_CLAIM,
    DeviceClass: Resource.DEVICE_CLASS,
    ResourceSlice: Resource.RESOURCE_SLICE,
}
"""The resource of each kind in events. A DeviceTaintRule has none: its changes are updates of the slices."""

_SLICE_UPDATE = ClusterEvent(Resource.RESOURCE_SLICE, Action.UPDATE_OTHER)

T = TypeVar("T", bound=DeclaredObject)
T_contra = TypeVar("T_contra", contravariant=True)


class ObjectIndex(Protocol[T_contra]):
    """Index of objects by kind and name."""

    def assign(self, shown: T_contra) -> None:
        """Add or replace an object; raise SchedulerCoreError if the object cannot be read; nothing was changed."""

    def remove(self, gone: T_contra) -> None:
        """Remove an object."""


class Feed(ABC, Generic[T]):
    """Event handlers for objects; while a cycle is suspended, changes are buffered and then applied in order."""

    def __init__(self, suspension: Suspension) -> None:
        self._run_or_defer = suspension.run_or_defer

    def added(self, shown: T) -> None:
        self._run_or_defer(self._added, shown)

    def updated(self, old: T, shown: T) -> None:
        self._run_or_defer(self._updated, old, shown)

    def deleted(self, gone: T) -> None:
        self._run_or_defer(self._deleted, gone)

    def unreadable(self, shown: T, reason: str) -> None:
        """Handle a version of an object that cannot be decoded.

        Args:
            shown: The fields of it that can be read; the whole object if ``reason`` is empty.
            reason: Why it cannot be decoded; "" if it can be again, before :meth:`updated` or :meth:`added`.
        """
        self._run_or_defer(self._unreadable, shown, reason)

    @abstractmethod
    def _added(self, shown: T) -> None: ...

    @abstractmethod
    def _updated(self, old: T, shown: T) -> None: ...

    @abstractmethod
    def _deleted(self, gone: T) -> None: ...

    @abstractmethod
    def _unreadable(self, shown: T, reason: str) -> None: ...


class ObjectFeed(Feed[T]):
    """Event handlers for the objects of one index; the same version again is ignored."""

    def __init__(self, index: ObjectIndex[T], queue: SchedulingQueue, suspension: Suspension) -> None:
        super().__init__(suspension)
        self._index = index
        self._queue = queue

    def _added(self, shown: T) -> None:
        if self._assigned(shown):
            self._on_event(_event(shown, Action.ADD), None, shown)

    def _updated(self, old: T, shown: T) -> None:
        if self._assigned(shown) and old != shown:
            self._on_event(_event(shown, Action.UPDATE_OTHER), old, shown)

    def _deleted(self, gone: T) -> None:
        self._index.remove(gone)
        self._release(gone)
        self._on_event(_event(gone, Action.DELETE), gone, None)

    def _unreadable(self, shown: T, reason: str) -> None:
        if reason:
            self._hold(shown, reason)
        elif self._assigned(shown):
            self._on_event(_event(shown, Action.ADD), None, shown)

    def _hold(self, shown: T, reason: str) -> None:
        """Keep pods from being scheduled by an object that cannot be read: without it, they wait for it."""
        self._index.remove(shown)

    def _release(self, shown: T) -> None:
        """End what :meth:`_hold` did beside the index; the object was read or deleted."""

    def _on_event(self, event: ClusterEvent, old: T | None, new: T | None) -> None:
        self._queue.on_event(event, old, new)

    def _assigned(self, shown: T) -> bool:
        try:
            self._index.assign(shown)
        except SchedulerCoreError as error:
            log.error("%s %s cannot be used: %s; correct it", _kind(shown), shown.metadata.name, error)  # noqa: TRY400 - the message is complete
            self._hold(shown, str(error))
            return False
        self._release(shown)
        return True


class StorageFeed(ObjectFeed[StorageObject]):
    """Event handlers for storage objects.

    An object that cannot be read counts as follows: pods with a claim of such a claim or volume wait; a CSIDriver
    requires capacity and the driver on the node; the nodes of a CSINode or VolumeAttachment accept no pods, because
    the number of volumes there is not known; a StorageClass or CSIStorageCapacity does not exist. These nodes accept no
    pods either while a change of such an object that raised is not delivered again.
    """

    def __init__(self, columns: NodeColumns, queue: SchedulingQueue, suspension: Suspension, holds: NodeHolds) -> None:
        super().__init__(columns.storage, queue, suspension)
        self._columns = columns
        self._holds = holds

    def _assigned(self, shown: StorageObject) -> bool:
        try:
            return super()._assigned(shown)
        except Exception:
            # Raised again, and delivered again; the version before may allow more volumes.
            try_twice(self._hold_for_change, shown)
            raise

    def _hold_for_change(self, shown: StorageObject) -> None:
        node_name = self._node_of(shown)
        if node_name:
            reason = f"node(s) had a change of their {_kind_name(shown)} that could not be handled yet"
            self._holds.hold(node_name, _change_of(shown), reason)

    def _node_of(self, shown: StorageObject) -> str:
        """Return the node whose volumes an object limits or counts; "" for none."""
        if isinstance(shown, CsiNode):
            return shown.metadata.name
        if not isinstance(shown, VolumeAttachment):
            return ""
        known = self._columns.storage.attachments.get(shown.metadata.name)
        return shown.spec.node_name or ("" if known is None else known.spec.node_name)

    def _hold(self, shown: StorageObject, reason: str) -> None:
        storage, name = self._columns.storage, shown.metadata.name
        match shown:
            case PersistentVolumeClaim():
                known = storage.claims.get(shown.key)
                storage.assign(replace(shown if known is None else known, status=VolumePhase(UNREADABLE)))
            case PersistentVolume():
                volume = storage.volumes.get(name) or replace(shown, spec=replace(shown.spec, capacity={}))
                storage.assign(replace(volume, status=VolumePhase(UNREADABLE)))
            case CsiDriver():
                storage.assign(CsiDriver(shown.metadata, CsiDriverSpec(True, True)))
            case CsiNode() | VolumeAttachment():
                node_name = self._node_of(shown)
                if node_name:
                    text = f"node(s) had a {_kind_name(shown)} that could not be decoded"
                    self._holds.hold(node_name, _source(shown), text)
            case _:
                super()._hold(shown, reason)

    def _release(self, shown: StorageObject) -> None:
        self._holds.release(_source(shown))
        self._holds.release(_change_of(shown))


class DeviceFeed(ObjectFeed[DeviceObject]):
    """Event handlers for resource claims, device classes and devices.

    Pods wait that use a claim that cannot be read, and devices that such an object may allocate or taint are not used.
    While pods with claims are gated because these objects are not listed yet, events of claims and slices requeue none:
    thousands of events would each be compared with thousands of pods. All are requeued when the lists are complete.
    """

    def __init__(self, index: DeviceIndex, queue: SchedulingQueue, suspension: Suspension) -> None:
        super().__init__(index, queue, suspension)
        self._devices = index
        self._held: set[str] = set()

    def _assigned(self, shown: DeviceObject) -> bool:
        try:
            return super()._assigned(shown)
        except Exception:
            # Raised again, and delivered again; until then, the devices that a claim allocates must not be used again.
            self._hold(shown, "")
            raise

    def _hold(self, shown: DeviceObject, reason: str) -> None:
        self._held.add(_source(shown))
        self._devices.hold(_source(shown), shown)

    def _release(self, shown: DeviceObject) -> None:
        if self._held and _source(shown) in self._held:
            self._held.remove(_source(shown))
            self._devices.release(_source(shown), shown)
            self._on_event(_SLICE_UPDATE, None, None)

    def withhold(self, reason: str) -> None:
        """Gate the pods with resource claims, because which devices are in use is not known; "" ends that."""
        self._run_or_defer(self._withhold, reason, are_lists_expected=False)

    def expect_lists(self, reason: str) -> None:
        """Gate pods as :meth:`withhold` does, until its next call, while the first lists are read.

        Pods are gated too if they request extended resources that no node offers: only devices can provide these.
        """
        self._run_or_defer(self._withhold, reason, are_lists_expected=True)

    def _on_event(self, event: ClusterEvent, old: DeviceObject | None, new: DeviceObject | None) -> None:
        if not self._devices.withheld or event.resource is Resource.DEVICE_CLASS:
            super()._on_event(event, old, new)

    def _withhold(self, reason: str, *, are_lists_expected: bool) -> None:
        opens_gates = self._devices.are_lists_expected and not are_lists_expected
        self._devices.withheld, self._devices.are_lists_expected = reason, are_lists_expected
        if opens_gates or not reason:
            self._queue.on_event(_SLICE_UPDATE, None, None)


def _event(changed: object, action: Action) -> ClusterEvent:
    resource = RESOURCES.get(type(changed))
    return _SLICE_UPDATE if resource is None else ClusterEvent(resource, action)


def _source(shown: DeclaredObject) -> str:
    return f"{type(shown).__name__}/{shown.metadata.namespace}/{shown.metadata.name}"


def _change_of(shown: DeclaredObject) -> str:
    return f"change of {_source(shown)}"


def _kind_name(shown: object) -> str:
    return _kind(shown).rpartition("/")[2]


def _kind(shown: object) -> str:
    resource = RESOURCES.get(type(shown))
    return DeviceTaintRule.__name__ if resource is None else resource.value


class DeclaredFeed(Feed[DeclaredObject]):
    """Event handlers for one declared kind."""

    def __init__(
        self, kind: ObjectKind[Any], store: KindStore[Any], queue: SchedulingQueue, suspension: Suspension
    ) -> None:
        super().__init__(suspension)
        self._kind = kind
        self._store = store
        self._queue = queue

    def _added(self, shown: DeclaredObject) -> None:
        self._store.assign(shown.metadata.namespace, shown.metadata.name, shown)
        self._queue.on_event(self._kind.event(Action.ADD), None, shown)

    def _updated(self, old: DeclaredObject, shown: DeclaredObject) -> None:
        self._store.assign(shown.metadata.namespace, shown.metadata.name, shown)
        self._queue.on_event(self._kind.event(Action.UPDATE_OTHER), old, shown)

    def _deleted(self, gone: DeclaredObject) -> None:
        self._store.remove(gone.metadata.namespace, gone.metadata.name)
        self._queue.on_event(self._kind.event(Action.DELETE), gone, None)

    def _unreadable(self, shown: DeclaredObject, reason: str) -> None:
        """Do nothing: the last version stays, for its plugin decides about it."""


_EVERY_POD = LabelSelector(match_expressions=(Requirement("bayplan.dev/unreadable", "DoesNotExist"),))
"""Selector of all pods: preemption ignores a budget with an empty selector, as kube-scheduler does."""

PodSurrounding = Namespace | Workload | PodDisruptionBudget
"""Any of these kinds."""


class WorkloadFeed(Feed[PodSurrounding]):
    """Event handlers for namespaces, services, owners of pods and disruption budgets."""

    def __init__(self, columns: NodeColumns, suspension: Suspension) -> None:
        super().__init__(suspension)
        self._columns = columns

    def _added(self, shown: PodSurrounding) -> None:
        match shown:
            case Namespace():
                self._columns.namespaces.assign(shown.metadata.name, shown.metadata.labels)
            case PodDisruptionBudget():
                self._columns.disruption_budgets.assign(shown)
            case _:
                self._columns.workloads.assign(shown)

    def _updated(self, old: PodSurrounding, shown: PodSurrounding) -> None:
        if isinstance(old, PodDisruptionBudget) and isinstance(shown, PodDisruptionBudget):
            # The other indexes compare on their own.
            if (old.spec, old.status) != (shown.spec, shown.status):
                self._columns.disruption_budgets.assign(shown)
            return
        self._added(shown)

    def _unreadable(self, shown: PodSurrounding, reason: str) -> None:
        """Handle a version that cannot be decoded.

        A budget allows no disruption of the pods that it selects, of all in its namespace if its selector cannot be
        read. A namespace keeps its last labels. Selectors of workloads, which are used only for defaults, stay.
        """
        if not reason:
            self._added(shown)
        elif isinstance(shown, PodDisruptionBudget):
            selector = shown.spec.selector
            if selector is None or selector == LabelSelector():
                selector = _EVERY_POD
            strict = PodDisruptionBudget(shown.metadata, PodDisruptionBudgetSpec(selector))
            self._columns.disruption_budgets.assign(strict)
        elif isinstance(shown, Namespace) and self._columns.namespaces.get(shown.metadata.name) is None:
            self._added(shown)

    def _deleted(self, gone: PodSurrounding) -> None:
        meta = gone.metadata
        match gone:
            case Namespace():
                self._columns.namespaces.remove(meta.name)
            case PodDisruptionBudget():
                self._columns.disruption_budgets.remove(meta.namespace, meta.name)
            case _:
                self._columns.workloads.remove(gone)
