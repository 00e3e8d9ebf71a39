"""What decides whether a running pod may be moved: annotations and local volumes, which no cycle reads.

They are decoded only if moves are planned. The volumes that count as local, and the annotation that forbids an
eviction, are those of the Cluster Autoscaler; generic ephemeral volumes count, too.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import Pod, PodSpec, Volume
from scheduler_core.model.pod_group import MarkedMeta, PodAnnotations, deletion_cost

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotation of a pod: ``"false"`` forbids its eviction, ``"true"`` allows it although the pod has local volumes."""
LONGEST_OWNER, MOST_REQUESTS = 64, 500
"""Longest UID of a controller, and most requested resources: both are stored before an eviction, for a restart."""
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


class EvictionMarks(PodAnnotations, gc=False, frozen=True, omit_defaults=True):
    """Annotations of a pod that name a gang or concern its eviction."""

    safe_to_evict: str = msgspec.field(default="", name=SAFE_TO_EVICT)


_NONE = EvictionMarks()


class MovableMeta(MarkedMeta, gc=False, frozen=True, rename="camel"):
    """Metadata with the annotations that concern an eviction."""

    annotations: EvictionMarks = _NONE


def is_decoded(pod: Pod) -> bool:
    """Return whether a pod was decoded with all that decides whether it may be moved."""
    return isinstance(pod.spec, MovableSpec) and isinstance(pod.metadata, (MovableMeta, AnnotatedMeta))


def safe_to_evict(pod: Pod) -> str:
    """Return the value of the annotation; "" for none."""
    metadata = pod.metadata
    if isinstance(metadata, AnnotatedMeta):
        return metadata.annotations.get(SAFE_TO_EVICT, "")
    return metadata.annotations.safe_to_evict if isinstance(metadata, MovableMeta) else ""


def cost_of_move(pod: Pod) -> int:
    """Return the deletion cost of a pod; 0 for a negative one."""
    return max(0, deletion_cost(pod.metadata))


def has_local_volumes(pod: Pod) -> bool:
    """Return whether data of a pod are lost when it leaves its node."""
    return any(isinstance(volume, LocalVolume) and volume.is_local for volume in pod.spec.volumes)
