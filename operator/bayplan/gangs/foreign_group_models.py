"""Models of the PodGroups of scheduler-plugins and of Kubernetes, with the fields that Bayplan reads.

They are structs and not models of :mod:`bayplan.resources`, because an API server that serves them has validated these
objects, and there may be many. The spec of a native PodGroup is stored as received: its version decides how it is
decoded, and a field that is not known here must not be dropped, because it may constrain the group.

Sources: scheduler-plugins v0.28.9, ``apis/scheduling/v1alpha1/types.go``; Kubernetes v1.36.3,
``k8s.io/api/scheduling/v1alpha2/types.go``, and v1.37.1, ``k8s.io/api/scheduling/v1beta1/types.go`` (KEP-4671).
"""

from __future__ import annotations

from typing import Any, Literal

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


class NativeGroup(Struct, frozen=True, rename="camel"):
    """A ``scheduling.k8s.io`` PodGroup or CompositePodGroup; ``spec`` and ``status`` are stored as received."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class _Strict(Struct, gc=False, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Part of a native spec; a field that is not known makes the object invalid."""


class Empty(_Strict, frozen=True):
    """Member of a union without fields."""


class GangPolicy(_Strict, frozen=True):
    """``schedulingPolicy.gang``."""

    min_count: int = 0


class SchedulingPolicy(_Strict, frozen=True):
    """``spec.schedulingPolicy``: exactly one of the fields is set.

    Attributes:
        basic: Members are scheduled one by one.
        gang: ``minCount`` members are scheduled together or none is.
    """

    basic: Empty | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(_Strict, frozen=True):
    """An entry of ``schedulingConstraints.topology``."""

    key: str = ""


class SchedulingConstraints(_Strict, frozen=True):
    """``spec.schedulingConstraints``."""

    topology: tuple[TopologyConstraint, ...] | None = None


class NativeSpec(_Strict, frozen=True):
    """Fields of ``spec`` that all versions have; admission has set ``priority`` from the PriorityClass."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None
    priority_class_name: str | None = None
    priority: int | None = None


class NativeSpecV1Alpha2(NativeSpec, frozen=True):
    """``spec`` in ``v1alpha2``; the template reference does not affect scheduling."""

    pod_group_template_ref: dict[str, Any] | None = None
    disruption_mode: Literal["Pod", "PodGroup"] | None = None


class DisruptionMode(_Strict, frozen=True):
    """``spec.disruptionMode`` in ``v1beta1``: exactly one of the fields is set.

    Attributes:
        single: Members are evicted one at a time.
        all: All members are evicted or none.
    """

    single: Empty | None = None
    all: Empty | None = None


class NativeSpecV1Beta1(NativeSpec, frozen=True):
    """``spec`` in ``v1beta1`` and ``v1alpha3``; the reference to the Workload does not affect scheduling."""

    workload_ref: dict[str, Any] | None = None
    disruption_mode: DisruptionMode | None = None
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None
    parent_composite_pod_group_name: str | None = None


class CompositeGangPolicy(_Strict, frozen=True):
    """``schedulingPolicy.gang`` of a CompositePodGroup."""

    min_group_count: int = 0


class CompositePolicy(_Strict, frozen=True):
    """``spec.schedulingPolicy`` of a CompositePodGroup: exactly one of the fields is set.

    Attributes:
        basic: Child groups are scheduled one by one.
        gang: ``minGroupCount`` child groups are scheduled together or none is.
    """

    basic: Empty | None = None
    gang: CompositeGangPolicy | None = None


class CompositeSpec(_Strict, frozen=True):
    """``spec`` of a ``v1alpha3`` CompositePodGroup; the reference to the Workload does not affect scheduling."""

    scheduling_policy: CompositePolicy = CompositePolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    workload_ref: dict[str, Any] | None = None
    disruption_mode: DisruptionMode | None = None
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None
    parent_composite_pod_group_name: str | None = None
