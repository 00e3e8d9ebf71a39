"""Event handlers for namespaces, workloads and disruption budgets: they update the indexes.

Called on the event loop; while a cycle is suspended, changes are buffered and then applied in order. The queue gets no
events: kube-scheduler v1.37.1 has no event handler (``eventhandlers.go``) and no resource (``framework/types.go``) for
these kinds, so no plugin can register for them.
"""

from __future__ import annotations

from scheduler_core.cycle.suspension import Suspension
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.workloads import Namespace, PodDisruptionBudget, PodDisruptionBudgetSpec, Workload
from scheduler_core.snapshot.node_columns import NodeColumns

_EVERY_POD = LabelSelector(match_expressions=(Requirement("bayplan.dev/unreadable", "DoesNotExist"),))
"""Selector of all pods: preemption ignores a budget with an empty selector, as kube-scheduler does."""

PodSurrounding = Namespace | Workload | PodDisruptionBudget
"""Any of these kinds."""


class WorkloadFeed:
    """Event handlers for namespaces, services, owners of pods and disruption budgets.

    Args:
        columns: The columns, with the indexes of these objects.
        suspension: Buffers changes while a cycle is suspended.
    """

    def __init__(self, columns: NodeColumns, suspension: Suspension) -> None:
        self._columns = columns
        self._report = suspension.report

    def added(self, shown: PodSurrounding) -> None:
        """Handle an object that was created or is seen for the first time."""
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
        """Handle an updated object; changes that the core does not read, such as counts in a status, are ignored."""
        self._report(self._updated, old, shown)

    def _updated(self, old: PodSurrounding, shown: PodSurrounding) -> None:
        if isinstance(old, PodDisruptionBudget) and isinstance(shown, PodDisruptionBudget):
            # The other indexes compare on their own.
            if (old.spec, old.status) != (shown.spec, shown.status):
                self._columns.disruption_budgets.assign(shown)
            return
        self._added(shown)

    def unreadable(self, shown: PodSurrounding, reason: str) -> None:
        """Handle a version of an object that cannot be decoded.

        A budget allows no disruption of the pods that it selects, of all in its namespace if its selector cannot be
        read. A namespace keeps its last labels. Selectors of workloads, which are used only for defaults, stay.

        Args:
            shown: The fields of it that can be read; the whole object if ``reason`` is empty.
            reason: Why it cannot be decoded; "" if it can be again, before :meth:`updated` or :meth:`added`.
        """
        self._report(self._unreadable, shown, reason)

    def _unreadable(self, shown: PodSurrounding, reason: str) -> None:
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

    def deleted(self, gone: PodSurrounding) -> None:
        """Handle a deleted object."""
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
