"""Compiled PodDisruptionBudgets by namespace, for preemption.

A budget with an invalid selector is stored and matches nothing: the API server reports it to the owner, and preemption
must work without it.

Follows kube-scheduler v1.37.1 (``framework/preemption``, ``FilterVictimsWithPDBViolation``): a budget with a missing
or empty selector matches no pod, and no budget matches a pod without labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from scheduler_core.errors import SelectorError
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import MATCH_NOTHING, LabelMatcher, compile_label_selector
from scheduler_core.model.workloads import PodDisruptionBudget


class DisruptionBudget(Struct, frozen=True):
    """A compiled budget.

    Attributes:
        name: The name in the namespace.
        selector: Selects the pods that it protects.
        disruptions_allowed: Number of allowed disruptions.
        disrupted_pods: Names of pods whose disruption is included in that number already.
    """

    name: str
    selector: LabelMatcher
    disruptions_allowed: int
    disrupted_pods: frozenset[str]

    def protects(self, pod: Pod) -> bool:
        """Return whether disrupting ``pod``, in the budget's namespace, counts against the budget."""
        labels = pod.metadata.labels
        return bool(labels) and self.selector.matches(labels) and pod.metadata.name not in self.disrupted_pods


class DisruptionBudgets:
    """All budgets; every change increments ``version``."""

    __slots__ = ("_by_namespace", "version")

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}
        self.version = 0

    def __len__(self) -> int:
        return sum(len(budgets) for budgets in self._by_namespace.values())

    def of_namespace(self, namespace: str) -> Iterable[DisruptionBudget]:
        """Return the budgets of a namespace."""
        budgets: Mapping[str, DisruptionBudget] = self._by_namespace.get(namespace, {})
        return budgets.values()

    def assign(self, budget: PodDisruptionBudget) -> None:
        """Add or replace a budget."""
        meta, status = budget.metadata, budget.status
        compiled = DisruptionBudget(
            meta.name, _selector(budget), status.disruptions_allowed, frozenset(status.disrupted_pods)
        )
        self._by_namespace.setdefault(meta.namespace, {})[meta.name] = compiled
        self.version += 1

    def remove(self, namespace: str, name: str) -> None:
        """Remove a budget; no effect if it is not known."""
        budgets = self._by_namespace.get(namespace, {})
        if budgets.pop(name, None) is None:
            return
        if not budgets:
            del self._by_namespace[namespace]
        self.version += 1


def _selector(budget: PodDisruptionBudget) -> LabelMatcher:
    try:
        selector = compile_label_selector(budget.spec.selector)
    except SelectorError:
        return MATCH_NOTHING
    return MATCH_NOTHING if selector.is_everything else selector
