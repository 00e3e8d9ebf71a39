"""What the cluster reports of kinds that plugins declare, taken into their store and the queue.

Owns which store and which event. Must not change either while a cycle is suspended: what comes then is taken when it is
over.
"""

from __future__ import annotations

from typing import Any

from scheduler_core.cycle.context import CycleContext
from scheduler_core.framework.cluster_events import Action
from scheduler_core.framework.object_reads import DeclaredObject, ObjectKind


class DeclaredFeed:
    """Takes changes of one declared kind.

    Args:
        context: The scheduler's.
        kind: The kind.
    """

    def __init__(self, context: CycleContext, kind: ObjectKind[Any]) -> None:
        self._context = context
        self._report = context.suspension.report
        self._kind = kind
        self._store = context.declared.declare(kind.path)

    def added(self, shown: DeclaredObject) -> None:
        """An object has come, or is first seen."""
        self._report(self._added, shown)

    def _added(self, shown: DeclaredObject) -> None:
        self._store.assign(shown.metadata.namespace, shown.metadata.name, shown)
        self._context.queue.on_event(self._kind.event(Action.ADD), None, shown)

    def updated(self, old: DeclaredObject, shown: DeclaredObject) -> None:
        """An object has changed."""
        self._report(self._updated, old, shown)

    def _updated(self, old: DeclaredObject, shown: DeclaredObject) -> None:
        self._store.assign(shown.metadata.namespace, shown.metadata.name, shown)
        self._context.queue.on_event(self._kind.event(Action.UPDATE_OTHER), old, shown)

    def deleted(self, gone: DeclaredObject) -> None:
        """An object is gone."""
        self._report(self._deleted, gone)

    def _deleted(self, gone: DeclaredObject) -> None:
        self._store.remove(gone.metadata.namespace, gone.metadata.name)
        self._context.queue.on_event(self._kind.event(Action.DELETE), gone, None)
