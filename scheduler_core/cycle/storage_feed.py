"""What the cluster reports of storage, taken into the index and the queue.

Owns the translation: which kind of object is which resource of events. Whoever watches calls it on the loop; changes
that come while a cycle is suspended are taken in their order when it is over. An object that cannot be read is left
out, so that one bad quantity does not stop a watch.

Follows kube-scheduler v1.36.3 (``eventhandlers.go``); a CSIStorageCapacity or VolumeAttachment that is irrelevant to
every waiting pod costs a dictionary entry. A new version that alters nothing that the core reads is told, too: a volume
that could not be bound because someone else had written to it can be bound once that write is known.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import CycleContext
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
    """Takes changes of volumes, claims and what else storage is described by."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context
        self._report = context.suspension.report

    def added(self, shown: StorageObject) -> None:
        """An object has come, or is first seen."""
        self._report(self._added, shown)

    def _added(self, shown: StorageObject) -> None:
        if self._assigned(shown):
            self._context.queue.on_event(ClusterEvent(_RESOURCES[type(shown)], Action.ADD), None, shown)

    def updated(self, old: StorageObject, shown: StorageObject) -> None:
        """An object has changed, if only its version; the same version shown again is no news."""
        self._report(self._updated, old, shown)

    def _updated(self, old: StorageObject, shown: StorageObject) -> None:
        if self._assigned(shown) and old != shown:
            self._context.queue.on_event(ClusterEvent(_RESOURCES[type(shown)], Action.UPDATE_OTHER), old, shown)

    def deleted(self, gone: StorageObject) -> None:
        """An object is gone."""
        self._report(self._deleted, gone)

    def _deleted(self, gone: StorageObject) -> None:
        self._context.cache.columns.storage.remove(gone)
        self._context.queue.on_event(ClusterEvent(_RESOURCES[type(gone)], Action.DELETE), gone, None)

    def _assigned(self, shown: StorageObject) -> bool:
        try:
            self._context.cache.columns.storage.assign(shown)
        except SchedulerCoreError as error:
            kind = _RESOURCES[type(shown)].value
            log.error("%s %s is left out: %s; correct it", kind, shown.metadata.name, error)  # noqa: TRY400 - the text says it all
            return False
        return True
