"""Kinds that select pods: services and workload owners, for the default selector of a pod."""

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
    """A v1 Service."""

    metadata: ObjectMeta
    spec: LabelPairsSpec = LabelPairsSpec()


class ReplicationController(Struct, gc=False, frozen=True, rename="camel"):
    """A v1 ReplicationController."""

    metadata: ObjectMeta
    spec: LabelPairsSpec = LabelPairsSpec()


class ReplicaSet(Struct, gc=False, frozen=True, rename="camel"):
    """An apps/v1 ReplicaSet."""

    metadata: ObjectMeta
    spec: LabelSelectorSpec = LabelSelectorSpec()


class StatefulSet(Struct, gc=False, frozen=True, rename="camel"):
    """An apps/v1 StatefulSet."""

    metadata: ObjectMeta
    spec: LabelSelectorSpec = LabelSelectorSpec()


Workload = Service | ReplicationController | ReplicaSet | StatefulSet
"""Any of the kinds."""
