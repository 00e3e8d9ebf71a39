"""PodDisruptionBudgets as decoded from the API server: only the fields that preemption reads."""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta


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
    """A policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
