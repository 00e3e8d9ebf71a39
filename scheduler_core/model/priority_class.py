"""PriorityClass: read only if no API server has resolved it (files of ``bayplan simulate``)."""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.model.meta import ObjectMeta


class PriorityClass(Struct, gc=False, frozen=True, rename="camel"):
    """A ``scheduling.k8s.io/v1`` PriorityClass."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
