"""Models of the PodGroups of scheduler-plugins and of Kubernetes, with the fields that Bayplan reads.

They are structs and not models of :mod:`bayplan.resources`, because an API server that knows them has validated these
objects, and there may be many.

Sources: scheduler-plugins v0.28.9, ``apis/scheduling/v1alpha1/types.go``; Kubernetes v1.36.3,
``k8s.io/api/scheduling/v1alpha2/types.go`` (KEP-4671).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Quantities


class SchedulerPluginsSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a ``scheduling.x-k8s.io/v1alpha1`` PodGroup.

    Attributes:
        min_member: 0 if not set.
        min_resources: Total requests of ``minMember`` members.
        schedule_timeout_seconds: None if not set.
    """

    min_member: int = 0
    min_resources: Quantities | None = None
    schedule_timeout_seconds: int | None = None


class SchedulerPluginsGroup(Struct, frozen=True, rename="camel"):
    """A ``scheduling.x-k8s.io/v1alpha1`` PodGroup; ``status`` is stored as received."""

    metadata: ObjectMeta
    spec: SchedulerPluginsSpec = SchedulerPluginsSpec()
    status: dict[str, Any] = {}


class GangPolicy(Struct, gc=False, frozen=True, rename="camel"):
    """``schedulingPolicy.gang``."""

    min_count: int = 0


class SchedulingPolicy(Struct, gc=False, frozen=True, rename="camel"):
    """``spec.schedulingPolicy``: exactly one of the fields is set.

    Attributes:
        basic: Members are scheduled one by one.
        gang: ``minCount`` members are scheduled together or none is.
    """

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(Struct, gc=False, frozen=True, rename="camel"):
    """An entry of ``schedulingConstraints.topology``."""

    key: str = ""


class SchedulingConstraints(Struct, gc=False, frozen=True, rename="camel"):
    """``spec.schedulingConstraints``."""

    topology: tuple[TopologyConstraint, ...] | None = None


class NativeSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a ``scheduling.k8s.io`` PodGroup; admission has set ``priority`` from its PriorityClass."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | None = None
    priority: int | None = None


class NativeGroup(Struct, frozen=True, rename="camel"):
    """A ``scheduling.k8s.io`` PodGroup; ``status`` is stored as received."""

    metadata: ObjectMeta
    spec: NativeSpec = NativeSpec()
    status: dict[str, Any] = {}
