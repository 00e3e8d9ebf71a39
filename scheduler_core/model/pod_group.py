"""Pod groups: one model for the four APIs that define them, the group of a pod, and marks of other gang schedulers.

The watchers of the APIs translate their objects. The source is part of the key, because a pod that names ``train`` by
one API has nothing to do with an object of that name of another API, even in the same namespace. Volcano's groups are
read only on request; those of other gang schedulers are not read: a pod with only their marks is scheduled alone.

Sources: ``bayplan.dev/v1alpha1``; scheduler-plugins' ``scheduling.x-k8s.io/v1alpha1``; ``scheduling.k8s.io`` (KEP-4671)
in ``v1beta1`` of Kubernetes 1.37 and ``v1alpha2`` of Kubernetes 1.36. Marks: Volcano,
``apis/pkg/apis/scheduling/v1beta1/labels.go``; KAI Scheduler, ``pkg/common/constants``; Koordinator, plugin
Coscheduling; YuniKorn, ``pkg/common/constants``; scheduler-plugins, KEP 2 and its earlier API group.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod, ResourceClaimReference


class GroupSource(StrEnum):
    """The API of groups: the API group of PodGroups, or the resource and API group of CompositePodGroups."""

    BAYPLAN = "bayplan.dev"
    SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
    NATIVE = "scheduling.k8s.io"
    COMPOSITE = "compositepodgroups.scheduling.k8s.io"
    VOLCANO = "scheduling.volcano.sh"

    @property
    def kind(self) -> str:
        return "CompositePodGroup" if self is GroupSource.COMPOSITE else "PodGroup"

    @property
    def is_native(self) -> bool:
        """Whether kube-scheduler schedules its groups, too."""
        return self.api_group == GroupSource.NATIVE

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"

    @property
    def api_group(self) -> str:
        return (GroupSource.NATIVE if self is GroupSource.COMPOSITE else self).value


POD_GROUP_SOURCES = (GroupSource.BAYPLAN, GroupSource.SCHEDULER_PLUGINS, GroupSource.NATIVE, GroupSource.VOLCANO)
"""The APIs of PodGroups, which pods name."""

DEFAULT_SOURCES = frozenset(GroupSource) - {GroupSource.VOLCANO}
"""The APIs that count unless others are requested."""


NEWEST_VERSIONS: Mapping[GroupSource, str] = {
    GroupSource.BAYPLAN: "v1alpha1",
    GroupSource.SCHEDULER_PLUGINS: "v1alpha1",
    GroupSource.NATIVE: "v1beta1",
    GroupSource.COMPOSITE: "v1alpha3",
    GroupSource.VOLCANO: "v1beta1",
}
"""Newest version of each API that is read."""


POD_GROUP_LABELS: Mapping[GroupSource, str] = {
    GroupSource.BAYPLAN: "bayplan.dev/pod-group",
    GroupSource.SCHEDULER_PLUGINS: "scheduling.x-k8s.io/pod-group",
}
"""Labels by which pods join a group in their namespace; the native API uses ``spec.schedulingGroup``."""


GROUP_FIELDS: Mapping[GroupSource, str] = {
    **{source: f"label {label}" for source, label in POD_GROUP_LABELS.items()},
    GroupSource.NATIVE: "spec.schedulingGroup",
    GroupSource.VOLCANO: "annotation scheduling.k8s.io/group-name",
}
"""Fields of a pod that name its group, for messages."""


class GroupKey(NamedTuple):
    source: GroupSource
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def holder(self) -> str:
        """What reserves nodes under this key, for messages: a gang, or an object of :func:`held_key`."""
        kind, slash, name = self.name.partition("/")
        if not slash:
            return f"gang {self}"
        return f"{kind} {self.namespace}/{name}" if self.namespace else f"{kind} {name}"

    def holder_for(self, group: GroupKey | None) -> str:
        """Return :attr:`holder` for a message to a member of a group, on whose nodes other members may have slots."""
        is_own = (
            group is not None
            and group.source is GroupSource.BAYPLAN
            and self == held_key("PodGroup", group.namespace, group.name)
        )
        return f"other members of {self.holder}" if is_own else self.holder


def held_key(kind: str, namespace: str, name: str) -> GroupKey:
    """Return the key of room that is held for an object; no group has it, because no name has a slash."""
    return GroupKey(GroupSource.BAYPLAN, namespace, f"{kind}/{name}")


@dataclass(frozen=True, slots=True)
class GroupTopology:
    """The topology domain that members share.

    Attributes:
        key: Node label whose values are the domains.
        levels: Node labels of nested domains, from broad to narrow; the narrowest feasible one is chosen.
        prefers_allocated: Whether domains are ranked as in kube-scheduler, by feasible members and allocated share;
            else the domain with the least free resources is tried first.
    """

    key: str
    levels: tuple[str, ...] = ()
    is_required: bool = True
    prefers_allocated: bool = False


@dataclass(frozen=True, slots=True)
class GroupRun:
    """Record of the run of a group: what its members have completed, see :mod:`scheduler_core.queueing.gang_members`.

    Attributes:
        controllers: Controllers whose pods belong to the run, as kind, API group and UID.
        succeeded: Number of members that have succeeded, whether or not their pods still exist.
        since: Creation time of the newest ended pod of the runs before; None for none.
    """

    controllers: tuple[str, ...] = ()
    succeeded: int = 0
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Content of a PodGroup object.

    Attributes:
        min_member: Number of members that are scheduled together or not at all; at least 1.
        min_resources: Total requests of ``min_member`` members, in the units of
            :class:`scheduler_core.model.pod_requests.PodRequests` (millicores, bytes, counts).
        schedule_timeout_seconds: Time without success after which other groups go first; None for never.
        disrupts_whole: Whether a preemption evicts all members or none.
        is_strict: Whether nodes are reserved for it when smaller pods would be scheduled before it.
        hold_seconds: Time for which the room of a lost member is held for its replacement; 0 for none.
        preemption_policy: ``PreemptLowerPriority`` or ``Never``; None if the policies of its members apply.
        is_uniform: Whether an attempt fails if members differ in ``schedulerName``, priority or preemption policy from
            each other or from the group.
        waits_for_gated: Whether none of its waiting members is scheduled while a PreEnqueue plugin gates one of them.
        parent: Name of the CompositePodGroup that it is a child of, in its namespace; "" for none.
        resource_claims: Claims that are reserved for the group; its members name the same ones.
        run: Record of its run in its status; None for none.
        is_basic: Whether its policy is basic, so that its members are no gang.
        is_fresh: Whether its status is empty, so that nothing shows what a scheduler has done with it.
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
    version: str = ""
    preemption_policy: str | None = None
    preempts_in_domain: bool = True
    is_uniform: bool = False
    waits_for_gated: bool = False
    parent: str = ""
    resource_claims: tuple[ResourceClaimReference, ...] = ()
    run: GroupRun | None = None
    is_fresh: bool = False
    is_basic: bool = False
    hold_seconds: float = 0.0

    @property
    def api_version(self) -> str:
        return f"{self.key.source.api_group}/{self.version or NEWEST_VERSIONS[self.key.source]}"

    @property
    def parent_key(self) -> GroupKey | None:
        """Key of the CompositePodGroup that it is a child of; None for none."""
        return GroupKey(GroupSource.COMPOSITE, self.key.namespace, self.parent) if self.parent else None

    @property
    def may_preempt(self) -> bool:
        """Whether the topology constraint of the group, if any, lets the group and its members preempt."""
        return self.preempts_in_domain or self.topology is None


@dataclass(frozen=True, slots=True)
class CompositePodGroup:
    """Content of a CompositePodGroup object: a group of groups.

    Attributes:
        min_groups: Number of child groups that are scheduled together or not at all; at least 1.
        priority: Priority; that of a root counts for the whole tree.
        preemption_policy: ``PreemptLowerPriority`` or ``Never``; None if the policies of the pods apply.
    """

    key: GroupKey
    uid: str
    min_groups: int = 1
    parent: str = ""
    generation: int = 0
    priority: int = 0
    preemption_policy: str | None = None
    topology: GroupTopology | None = None
    disrupts_whole: bool = False
    version: str = ""

    @property
    def parent_key(self) -> GroupKey | None:
        """Key of the CompositePodGroup that it is a child of; None for a root."""
        return GroupKey(GroupSource.COMPOSITE, self.key.namespace, self.parent) if self.parent else None

    @property
    def as_unit(self) -> PodGroup:
        """A PodGroup with what the queue, the cycle and preemption need of a root."""
        return PodGroup(
            self.key,
            self.uid,
            self.min_groups,
            generation=self.generation,
            priority=self.priority,
            topology=self.topology,
            disrupts_whole=self.disrupts_whole,
            version=self.version,
            preemption_policy=self.preemption_policy,
            is_uniform=True,
            waits_for_gated=True,
        )


def group_key_of(pod: Pod, sources: Container[GroupSource] = DEFAULT_SOURCES) -> GroupKey | None:
    """Return the first group that :func:`group_keys_of` returns for a pod, which it is a member of; None for none."""
    labels = pod.metadata.labels
    if labels:
        for source, label in POD_GROUP_LABELS.items():
            name = labels.get(label)
            if name and source in sources:
                return GroupKey(source, pod.metadata.namespace, name)
    if GroupSource.VOLCANO in sources and (name := volcano_group(pod)):
        return GroupKey(GroupSource.VOLCANO, pod.metadata.namespace, name)
    return None if pod.spec.scheduling_group is None else _native_key_of(pod, sources)


def group_keys_of(pod: Pod, sources: Container[GroupSource] = DEFAULT_SOURCES) -> list[GroupKey]:
    """Return the groups that a pod names: by Bayplan's label, scheduler-plugins' label, and ``spec.schedulingGroup``.

    Volcano's annotation counts if there is no label.

    With Kubernetes' feature gate WorkloadWithJob the Job controller gives every pod a native group of the basic policy,
    so a label counts first.
    """
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    named = ((source, labels.get(label)) for source, label in POD_GROUP_LABELS.items() if source in sources)
    keys = [GroupKey(source, namespace, name) for source, name in named if name]
    if not keys and GroupSource.VOLCANO in sources and (volcano := volcano_group(pod)):
        keys.append(GroupKey(GroupSource.VOLCANO, namespace, volcano))
    native = _native_key_of(pod, sources)
    return keys if native is None else [*keys, native]


def names_several_groups(pod: Pod) -> bool:
    """Return whether a pod with a group may name another one: quickly, as most do not."""
    labels = pod.metadata.labels
    named = sum(label in labels for label in POD_GROUP_LABELS.values())
    return named + (pod.spec.scheduling_group is not None) > 1


def _native_key_of(pod: Pod, sources: Container[GroupSource]) -> GroupKey | None:
    native = pod.spec.scheduling_group
    if native is not None and native.pod_group_name and GroupSource.NATIVE in sources:
        return GroupKey(GroupSource.NATIVE, pod.metadata.namespace, native.pod_group_name)
    return None


ForeignGangs = Literal["Ignore", "Warn", "Hold"]
"""What happens to pods with a mark: scheduled alone, with an event, or held back."""

FOREIGN_MARKS: Mapping[str, str] = {
    "scheduling.k8s.io/group-name": "Volcano",
    "scheduling.volcano.sh/group-name": "Volcano",
    "pod-group-name": "KAI Scheduler",
    "gang.scheduling.koordinator.sh/name": "Koordinator",
    "yunikorn.apache.org/task-group-name": "YuniKorn",
    "pod-group.scheduling.sigs.k8s.io": "Koordinator or an earlier scheduler-plugins",
    "pod-group.scheduling.sigs.k8s.io/name": "an earlier scheduler-plugins",
}
"""Schedulers by the label or annotation of their members."""

_LABELS = frozenset(POD_GROUP_LABELS.values())


VOLCANO_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations of pods with the name of Volcano's PodGroup."""


class GroupMarks(Struct, gc=False, frozen=True, omit_defaults=True):
    """Annotations of a pod that name a gang; msgspec skips all others."""

    volcano: str = msgspec.field(default="", name="scheduling.k8s.io/group-name")
    volcano_own: str = msgspec.field(default="", name="scheduling.volcano.sh/group-name")
    kai: str = msgspec.field(default="", name="pod-group-name")
    koordinator: str = msgspec.field(default="", name="gang.scheduling.koordinator.sh/name")
    yunikorn: str = msgspec.field(default="", name="yunikorn.apache.org/task-group-name")
    sigs: str = msgspec.field(default="", name="pod-group.scheduling.sigs.k8s.io")
    sigs_name: str = msgspec.field(default="", name="pod-group.scheduling.sigs.k8s.io/name")
    scheduler_plugins: str = msgspec.field(default="", name="scheduling.x-k8s.io/pod-group")
    bayplan: str = msgspec.field(default="", name="bayplan.dev/pod-group")

    def named(self) -> dict[str, str]:
        names = zip(GroupMarks.__struct_encode_fields__, GroupMarks.__struct_fields__, strict=True)
        return {key: value for key, name in names if (value := getattr(self, name))}


DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_INTEGER = re.compile(r"-[0-9]{1,18}|0|[1-9][0-9]{0,9}")


class PodAnnotations(GroupMarks, gc=False, frozen=True, omit_defaults=True):
    """Annotations of a pod that name a gang, and its deletion cost."""

    deletion_cost: str = msgspec.field(default="", name=DELETION_COST)


_NONE = PodAnnotations()


class MarkedMeta(ObjectMeta, gc=False, frozen=True, rename="camel"):
    """Metadata of a pod with the annotations that are read."""

    annotations: PodAnnotations = _NONE


def volcano_group(pod: Pod) -> str:
    """Return the name of Volcano's PodGroup in the annotations of a pod; "" for none, or if they were not decoded."""
    annotations = getattr(pod.metadata, "annotations", _NONE)
    if isinstance(annotations, PodAnnotations):
        return annotations.volcano or annotations.volcano_own
    return str(annotations.get(VOLCANO_ANNOTATIONS[0]) or annotations.get(VOLCANO_ANNOTATIONS[1]) or "")


def deletion_cost(metadata: ObjectMeta) -> int:
    """Return the deletion cost of a pod; 0 if it has none, it is not an int32, or annotations were not decoded.

    Follows Kubernetes v1.37, ``pkg/apis/core/helper``: neither a plus sign nor leading zeros.
    """
    annotations = getattr(metadata, "annotations", _NONE)
    text = annotations.deletion_cost if isinstance(annotations, PodAnnotations) else annotations.get(DELETION_COST, "")
    if not _INTEGER.fullmatch(text):
        return 0
    return cost if -(2**31) <= (cost := int(text)) < 2**31 else 0


def foreign_gang(metadata: ObjectMeta) -> str:
    """Return what a pod's mark of another gang scheduler is, with the remedy; "" for none."""
    annotations = getattr(metadata, "annotations", _NONE)
    labels = metadata.labels
    if annotations is _NONE and not labels:
        return ""
    named = annotations.named() if isinstance(annotations, PodAnnotations) else annotations
    return described_mark(labels, named)


def described_mark(labels: Mapping[str, object], annotations: Mapping[str, object]) -> str:
    """Return the same as :func:`foreign_gang` for labels and annotations."""
    for kind, values in (("label", labels), ("annotation", annotations)):
        if FOREIGN_MARKS.keys().isdisjoint(values) and (kind == "label" or _LABELS.isdisjoint(values)):
            continue
        for key, scheduler in FOREIGN_MARKS.items():
            if values.get(key):
                return (
                    f'{kind} {key}="{values[key]}" names a gang of {scheduler}, which is not read; create a PodGroup '
                    "and name it in the label bayplan.dev/pod-group, or remove the mark"
                )
        for key in sorted(_LABELS):
            if kind == "annotation" and values.get(key):
                return f'annotation {key}="{values[key]}" names no PodGroup; make it a label'
    return ""
