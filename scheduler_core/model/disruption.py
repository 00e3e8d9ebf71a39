"""PodDisruptionBudgets as decoded from the API server: the fields that preemption reads, no others."""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta


class PodDisruptionBudgetSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a budget; how many pods it wants is the disruption controller's to read."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Struct, gc=False, frozen=True, rename="camel"):
    """``status`` of a budget.

    Attributes:
        disruptions_allowed: How many more of its pods may be disrupted; may be below 0.
        disrupted_pods: Pods whose eviction the API server has let pass already, with its time, by name.
    """

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str | None] = {}


class PodDisruptionBudget(Struct, gc=False, frozen=True, rename="camel"):
    """A policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
