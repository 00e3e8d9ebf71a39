"""What decides whether a running pod may be moved: annotations and local volumes, which no cycle reads.

They are decoded only if moves are planned. The volumes that count as local, and the annotation that forbids an
eviction, are those of the Cluster Autoscaler; generic ephemeral volumes count, too.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import Pod, PodSpec, Volume
from scheduler_core.model.pod_group import GroupMarks, MarkedMeta

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotation of a pod: ``"false"`` forbids its eviction, ``"true"`` allows it although the pod has local volumes."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_MEMORY = "Memory"


class EmptyDir(Struct, gc=False, frozen=True, omit_defaults=True):
    """A volume that ends with its pod."""

    medium: str = ""


class HostPath(Struct, gc=False, frozen=True, omit_defaults=True):
    """A directory of the node."""


class LocalVolume(Volume, gc=False, frozen=True, omit_defaults=True):
    """A volume with the sources that keep data on the node."""

    empty_dir: EmptyDir | None = msgspec.field(default=None, name="emptyDir")
    host_path: HostPath | None = msgspec.field(default=None, name="hostPath")

    @property
    def is_local(self) -> bool:
        """Whether data of the volume are lost when the pod leaves the node."""
        keeps = self.empty_dir is not None and self.empty_dir.medium != _MEMORY
        return keeps or self.host_path is not None or self.ephemeral is not None


class MovableSpec(PodSpec, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``spec`` with all volumes that decide whether the pod may be moved."""

    volumes: tuple[LocalVolume, ...] = ()


class EvictionMarks(GroupMarks, gc=False, frozen=True, omit_defaults=True):
    """Annotations of a pod that name a gang or concern its eviction."""

    safe_to_evict: str = msgspec.field(default="", name=SAFE_TO_EVICT)
    deletion_cost: str = msgspec.field(default="", name=DELETION_COST)


_NONE = EvictionMarks()


class MovableMeta(MarkedMeta, gc=False, frozen=True, rename="camel"):
    """Metadata with the annotations that concern an eviction."""

    annotations: EvictionMarks = _NONE


def is_decoded(pod: Pod) -> bool:
    """Return whether a pod was decoded with all that decides whether it may be moved."""
    return isinstance(pod.spec, MovableSpec) and isinstance(pod.metadata, (MovableMeta, AnnotatedMeta))


def safe_to_evict(pod: Pod) -> str:
    """Return the value of the annotation; "" for none."""
    return _annotation(pod, SAFE_TO_EVICT)


def deletion_cost(pod: Pod) -> int:
    """Return the cost in the annotation of a pod; 0 for none, for a negative one, or if it is no number."""
    text = _annotation(pod, DELETION_COST)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else 0


def has_local_volumes(pod: Pod) -> bool:
    """Return whether data of a pod are lost when it leaves its node."""
    return any(isinstance(volume, LocalVolume) and volume.is_local for volume in pod.spec.volumes)


def _annotation(pod: Pod, key: str) -> str:
    metadata = pod.metadata
    if isinstance(metadata, AnnotatedMeta):
        return metadata.annotations.get(key, "")
    if isinstance(metadata, MovableMeta):
        return metadata.annotations.safe_to_evict if key == SAFE_TO_EVICT else metadata.annotations.deletion_cost
    return ""
