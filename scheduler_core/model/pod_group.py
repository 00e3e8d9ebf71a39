"""A gang as the core sees it: one model for the three APIs that describe groups of pods.

Owns which group a pod belongs to. Must not know how a group is placed, nor how the APIs spell it: whoever watches them
translates. Why the source is part of the key: a pod that names ``train`` by one API has nothing to do with an object
of that name in another, be it in the same namespace.

Sources: ``bayplan.dev/v1alpha1``; scheduler-plugins' ``scheduling.x-k8s.io/v1alpha1``; Kubernetes 1.36's
``scheduling.k8s.io/v1alpha2`` (KEP-4671).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from scheduler_core.model.pod import Pod


class GroupSource(StrEnum):
    """The API group of a PodGroup."""

    BAYPLAN = "bayplan.dev"
    SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
    NATIVE = "scheduling.k8s.io"


POD_GROUP_LABELS: Mapping[GroupSource, str] = {
    GroupSource.BAYPLAN: "bayplan.dev/pod-group",
    GroupSource.SCHEDULER_PLUGINS: "scheduling.x-k8s.io/pod-group",
}
"""Labels by which pods join a group of their own namespace; for the native API ``spec.schedulingGroup`` does that."""


GROUP_FIELDS: Mapping[GroupSource, str] = {
    **{source: f"label {label}" for source, label in POD_GROUP_LABELS.items()},
    GroupSource.NATIVE: "spec.schedulingGroup",
}
"""The field of a pod that names the group, for messages."""


class GroupKey(NamedTuple):
    """Which group."""

    source: GroupSource
    namespace: str
    name: str

    def __str__(self) -> str:
        """``namespace/name``, as people name it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GroupTopology:
    """The domain of nodes that members share.

    Attributes:
        key: Node label whose values are the domains.
        levels: Node labels of domains inside those, from broad to narrow; the narrowest that fits is taken.
        is_required: Whether the group is placed in one domain of ``key`` or not at all.
        prefers_allocated: Whether domains are ranked as kube-scheduler ranks them, by members that fit and by allocated
            share; otherwise the domain with the least room is tried first.
    """

    key: str
    levels: tuple[str, ...] = ()
    is_required: bool = True
    prefers_allocated: bool = False


@dataclass(frozen=True, slots=True)
class PodGroup:
    """What a PodGroup object asks for.

    Attributes:
        key: Its name.
        uid: Its UID.
        min_member: How many members are placed together or not at all; at least 1.
        created: Its creation timestamp, UTC.
        generation: Its ``metadata.generation``.
        min_resources: What ``min_member`` members need in all, in the units of
            :class:`scheduler_core.model.pod_requests.PodRequests` (milli-CPU, bytes, counts).
        schedule_timeout_seconds: After how long without success it gives up its turn; None for never.
        priority: Its priority in the queue; None for the highest of its members.
        topology: Where members are to be together; None for anywhere.
        disrupts_whole: Whether a preemption takes all members or none.
        is_strict: Whether capacity is reserved for it when smaller pods pass it.
    """

    key: GroupKey
    uid: str
    min_member: int
    created: datetime | None = None
    generation: int = 0
    min_resources: Mapping[str, int] = field(default_factory=dict)
    schedule_timeout_seconds: float | None = None
    priority: int | None = None
    topology: GroupTopology | None = None
    disrupts_whole: bool = False
    is_strict: bool = False

    @property
    def may_preempt(self) -> bool:
        """Whether the group and its members may preempt.

        Pod groups of Kubernetes' own API with a topology constraint may not, as in kube-scheduler v1.36.3.
        """
        return self.key.source is not GroupSource.NATIVE or self.topology is None


def group_key_of(pod: Pod, sources: Container[GroupSource] = tuple(GroupSource)) -> GroupKey | None:
    """The group that a pod says it belongs to, None for none.

    A pod that names several belongs to the first of: its ``spec.schedulingGroup``, Bayplan's label, the label of
    scheduler-plugins.

    Args:
        pod: The pod.
        sources: The sources that count; labels and fields of the others are ignored.
    """
    namespace = pod.metadata.namespace
    native = pod.spec.scheduling_group
    if native is not None and native.pod_group_name and GroupSource.NATIVE in sources:
        return GroupKey(GroupSource.NATIVE, namespace, native.pod_group_name)
    labels = pod.metadata.labels
    if labels:
        for source, label in POD_GROUP_LABELS.items():
            name = labels.get(label)
            if name and source in sources:
                return GroupKey(source, namespace, name)
    return None
