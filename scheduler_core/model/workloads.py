"""What surrounds pods: services and owners for their default selector, namespaces, disruption budgets, priorities."""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta


class LabelPairsSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a kind that selects by label pairs only; without a selector (None) it selects nothing."""

    selector: dict[str, str] | None = None


class LabelSelectorSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a kind that has a full label selector."""

    selector: LabelSelector | None = None


class Service(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: LabelPairsSpec = LabelPairsSpec()


class ReplicationController(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: LabelPairsSpec = LabelPairsSpec()


class ReplicaSet(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: LabelSelectorSpec = LabelSelectorSpec()


class StatefulSet(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: LabelSelectorSpec = LabelSelectorSpec()


Workload = Service | ReplicationController | ReplicaSet | StatefulSet
"""Any of the kinds."""


class Namespace(Struct, gc=False, frozen=True):
    metadata: ObjectMeta


class PodDisruptionBudgetSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a budget, without the fields that only the disruption controller reads."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Struct, gc=False, frozen=True, rename="camel"):
    """``status`` of a budget.

    Attributes:
        disruptions_allowed: Number of further disruptions that are allowed; may be negative.
        disrupted_pods: Pods whose eviction the API server has allowed already, with the time, by name.
    """

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str | None] = {}


class PodDisruptionBudget(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PriorityClass(Struct, gc=False, frozen=True, rename="camel"):
    """A PriorityClass; the API server resolves that of a pod, but not that of a PodGroup or of a file."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
