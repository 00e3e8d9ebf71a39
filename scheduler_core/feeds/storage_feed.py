"""Event handlers for storage objects: they update the storage index and the queue.

Called on the event loop; while a cycle is suspended, changes are buffered and then applied in order. Unreadable objects
are ignored with an error in the log, so that one invalid quantity does not stop a watch.

Follows kube-scheduler v1.37.1 (``eventhandlers.go``). A new version without a relevant change is an event too: a volume
that could not be bound because of a conflicting write can be bound once that write is known.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.indexes.storage_index import StorageIndex

log = logging.getLogger(__name__)

_RESOURCES: dict[type[StorageObject], Resource] = {
    PersistentVolume: Resource.PERSISTENT_VOLUME,
    PersistentVolumeClaim: Resource.PERSISTENT_VOLUME_CLAIM,
    StorageClass: Resource.STORAGE_CLASS,
    CsiNode: Resource.CSI_NODE,
    CsiDriver: Resource.CSI_DRIVER,
    CsiStorageCapacity: Resource.CSI_STORAGE_CAPACITY,
    VolumeAttachment: Resource.VOLUME_ATTACHMENT,
}


class StorageFeed:
    """Event handlers for volumes, claims, storage classes and the other storage objects.

    Args:
        storage: The index of these objects.
        queue: The queue.
        suspension: Buffers changes while a cycle is suspended.
    """

    def __init__(self, storage: StorageIndex, queue: SchedulingQueue, suspension: Suspension) -> None:
        self._storage = storage
        self._queue = queue
        self._report = suspension.report

    def added(self, shown: StorageObject) -> None:
        """Handle an object that was created or is seen for the first time."""
        self._report(self._added, shown)

    def _added(self, shown: StorageObject) -> None:
        if self._assigned(shown):
            self._queue.on_event(ClusterEvent(_RESOURCES[type(shown)], Action.ADD), None, shown)

    def updated(self, old: StorageObject, shown: StorageObject) -> None:
        """Handle a new version of an object; the same version again is ignored."""
        self._report(self._updated, old, shown)

    def _updated(self, old: StorageObject, shown: StorageObject) -> None:
        if self._assigned(shown) and old != shown:
            self._queue.on_event(ClusterEvent(_RESOURCES[type(shown)], Action.UPDATE_OTHER), old, shown)

    def deleted(self, gone: StorageObject) -> None:
        """Handle a deleted object."""
        self._report(self._deleted, gone)

    def _deleted(self, gone: StorageObject) -> None:
        self._storage.remove(gone)
        self._queue.on_event(ClusterEvent(_RESOURCES[type(gone)], Action.DELETE), gone, None)

    def _assigned(self, shown: StorageObject) -> bool:
        try:
            self._storage.assign(shown)
        except SchedulerCoreError as error:
            kind = _RESOURCES[type(shown)].value
            log.error("%s %s is ignored: %s; correct it", kind, shown.metadata.name, error)  # noqa: TRY400 - the text says it all
            return False
        return True
