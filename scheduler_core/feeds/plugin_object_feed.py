"""Event handlers for the kinds that plugins declare: they update the kind's store and the queue.

While a cycle is suspended, changes are buffered and then applied in order.
"""

from __future__ import annotations

from typing import Any

from scheduler_core.cycle.suspension import Suspension
from scheduler_core.framework.cluster_events import Action
from scheduler_core.framework.object_reads import DeclaredObject, ObjectKind
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.declared_objects import KindStore


class DeclaredFeed:
    """Event handlers for one declared kind.

    Args:
        kind: The kind.
        store: The objects of this kind.
        queue: The queue.
        suspension: Buffers changes while a cycle is suspended.
    """

    def __init__(
        self, kind: ObjectKind[Any], store: KindStore[Any], queue: SchedulingQueue, suspension: Suspension
    ) -> None:
        self._kind = kind
        self._store = store
        self._queue = queue
        self._report = suspension.report

    def added(self, shown: DeclaredObject) -> None:
        """Handle an object that was created or is seen for the first time."""
        self._report(self._added, shown)

    def _added(self, shown: DeclaredObject) -> None:
        self._store.assign(shown.metadata.namespace, shown.metadata.name, shown)
        self._queue.on_event(self._kind.event(Action.ADD), None, shown)

    def updated(self, old: DeclaredObject, shown: DeclaredObject) -> None:
        """Handle an updated object."""
        self._report(self._updated, old, shown)

    def _updated(self, old: DeclaredObject, shown: DeclaredObject) -> None:
        self._store.assign(shown.metadata.namespace, shown.metadata.name, shown)
        self._queue.on_event(self._kind.event(Action.UPDATE_OTHER), old, shown)

    def deleted(self, gone: DeclaredObject) -> None:
        """Handle a deleted object."""
        self._report(self._deleted, gone)

    def _deleted(self, gone: DeclaredObject) -> None:
        self._store.remove(gone.metadata.namespace, gone.metadata.name)
        self._queue.on_event(self._kind.event(Action.DELETE), gone, None)
