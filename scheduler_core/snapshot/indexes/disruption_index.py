"""Compiled PodDisruptionBudgets by namespace, for preemption.

A budget with an invalid selector is stored and matches nothing: the API server reports it to the owner, and preemption
must work without it.

Follows kube-scheduler v1.37.1 (``framework/preemption``, ``FilterVictimsWithPDBViolation``): a budget with a missing
or empty selector matches no pod, and no budget matches a pod without labels.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from msgspec import Struct

from scheduler_core.errors import SelectorError
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import MATCH_NOTHING, LabelMatcher, compile_label_selector
from scheduler_core.model.workloads import PodDisruptionBudget
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter

_REQUIREMENTS_PER_STEP = 16

_Found = WeakKeyDictionary[PodInfo, "tuple[dict[str, str], tuple[DisruptionBudget, ...]]"]
"""The budgets of pods, and the labels for which they were found."""


class DisruptionBudget(Struct, frozen=True):
    """A compiled budget.

    Attributes:
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

    __slots__ = ("_by_namespace", "_found", "_steps", "version")

    def __init__(self, steps: StepCounter) -> None:
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}
        self._found: dict[str, _Found] = {}
        self._steps = steps
        self.version = 0

    def __len__(self) -> int:
        return sum(len(budgets) for budgets in self._by_namespace.values())

    def protecting(self, info: PodInfo) -> tuple[DisruptionBudget, ...]:
        """Return the budgets against which the disruption of a pod counts; they are stored until one changes.

        A namespace may have hundreds of budgets of hundreds of requirements, and each attempt to preempt needs those of
        all pods that it may evict.
        """
        labels, namespace = info.pod.metadata.labels, info.pod.metadata.namespace
        budgets = self._by_namespace.get(namespace)
        if budgets is None:
            return ()
        stored = self._found.setdefault(namespace, WeakKeyDictionary())
        known = stored.get(info)
        if known is None or known[0] is not labels:
            found: list[DisruptionBudget] = []
            for budget in budgets.values():
                self._steps.upkeep(1 + len(budget.selector.requirements) // _REQUIREMENTS_PER_STEP)
                if budget.protects(info.pod):
                    found.append(budget)
            known = stored[info] = labels, tuple(found)
        return known[1]

    def assign(self, budget: PodDisruptionBudget) -> None:
        """Add or replace a budget."""
        meta, status = budget.metadata, budget.status
        compiled = DisruptionBudget(
            meta.name, _selector(budget), status.disruptions_allowed, frozenset(status.disrupted_pods)
        )
        self._by_namespace.setdefault(meta.namespace, {})[meta.name] = compiled
        self._found.pop(meta.namespace, None)
        self.version += 1

    def remove(self, namespace: str, name: str) -> None:
        """Remove a budget; no effect if it is not known."""
        budgets = self._by_namespace.get(namespace, {})
        if budgets.pop(name, None) is None:
            return
        self._found.pop(namespace, None)
        if not budgets:
            del self._by_namespace[namespace]
        self.version += 1


def _selector(budget: PodDisruptionBudget) -> LabelMatcher:
    try:
        selector = compile_label_selector(budget.spec.selector)
    except SelectorError:
        return MATCH_NOTHING
    return MATCH_NOTHING if selector.is_everything else selector
