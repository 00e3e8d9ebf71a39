"""Marks by which other gang schedulers recognize the members of a gang.

Bayplan does not read the groups that they name, so that such a pod is scheduled alone.

Sources: Volcano, ``apis/pkg/apis/scheduling/v1beta1/labels.go``; KAI Scheduler, ``pkg/common/constants``; Koordinator,
plugin Coscheduling; YuniKorn, ``pkg/common/constants``; scheduler-plugins, KEP 2 and its earlier API group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import POD_GROUP_LABELS

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


class GroupMarks(Struct, gc=False, frozen=True, omit_defaults=True):
    """Annotations of a pod that name a gang; msgspec skips all others."""

    volcano: str = field(default="", name="scheduling.k8s.io/group-name")
    volcano_own: str = field(default="", name="scheduling.volcano.sh/group-name")
    kai: str = field(default="", name="pod-group-name")
    koordinator: str = field(default="", name="gang.scheduling.koordinator.sh/name")
    yunikorn: str = field(default="", name="yunikorn.apache.org/task-group-name")
    sigs: str = field(default="", name="pod-group.scheduling.sigs.k8s.io")
    sigs_name: str = field(default="", name="pod-group.scheduling.sigs.k8s.io/name")
    scheduler_plugins: str = field(default="", name="scheduling.x-k8s.io/pod-group")
    bayplan: str = field(default="", name="bayplan.dev/pod-group")

    def named(self) -> dict[str, str]:
        """Return the annotations that are set."""
        names = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        return {key: value for key, name in names if (value := getattr(self, name))}


_NONE = GroupMarks()


class MarkedMeta(ObjectMeta, gc=False, frozen=True, rename="camel"):
    """Metadata with the annotations that name a gang."""

    annotations: GroupMarks = _NONE


def foreign_gang(metadata: ObjectMeta) -> str:
    """Return what a pod's mark of another gang scheduler is, with the remedy; "" for none."""
    annotations = getattr(metadata, "annotations", _NONE)
    labels = metadata.labels
    if annotations is _NONE and not labels:
        return ""
    named = annotations.named() if isinstance(annotations, GroupMarks) else annotations
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
