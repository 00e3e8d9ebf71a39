"""What the cluster reports of kinds that stand around pods: namespaces, workloads, disruption budgets.

Owns which index each kind belongs to. Whoever watches calls it on the loop; changes that come while a cycle is
suspended are taken in their order when it is over. Why nothing is told to the queue: no plugin of kube-scheduler
v1.36.3 asks to be woken by these kinds (``eventhandlers.go`` has no handler for them, ``framework/types.go`` no
resource), so that the next attempt reads them and no pod is tried for their sake.
"""

from __future__ import annotations

from scheduler_core.cycle.context import CycleContext
from scheduler_core.model.disruption import PodDisruptionBudget
from scheduler_core.model.namespace import Namespace
from scheduler_core.model.workloads import Workload

PodSurrounding = Namespace | Workload | PodDisruptionBudget
"""Any of the kinds."""


class WorkloadFeed:
    """Takes changes of namespaces, services, owners of pods and budgets."""

    def __init__(self, context: CycleContext) -> None:
        self._columns = context.cache.columns
        self._report = context.suspension.report

    def added(self, shown: PodSurrounding) -> None:
        """An object has come, or is first seen."""
        self._report(self._added, shown)

    def _added(self, shown: PodSurrounding) -> None:
        match shown:
            case Namespace():
                self._columns.namespaces.assign(shown.metadata.name, shown.metadata.labels)
            case PodDisruptionBudget():
                self._columns.disruption_budgets.assign(shown)
            case _:
                self._columns.workloads.assign(shown)

    def updated(self, old: PodSurrounding, shown: PodSurrounding) -> None:
        """An object has changed; what alters nothing that is read (a count in its status) changes no index."""
        self._report(self._updated, old, shown)

    def _updated(self, old: PodSurrounding, shown: PodSurrounding) -> None:
        if isinstance(old, PodDisruptionBudget) and isinstance(shown, PodDisruptionBudget):
            # The other indexes compare on their own.
            if (old.spec, old.status) != (shown.spec, shown.status):
                self._columns.disruption_budgets.assign(shown)
            return
        self._added(shown)

    def deleted(self, gone: PodSurrounding) -> None:
        """An object is gone."""
        self._report(self._deleted, gone)

    def _deleted(self, gone: PodSurrounding) -> None:
        meta = gone.metadata
        match gone:
            case Namespace():
                self._columns.namespaces.remove(meta.name)
            case PodDisruptionBudget():
                self._columns.disruption_budgets.remove(meta.namespace, meta.name)
            case _:
                self._columns.workloads.remove(gone)
