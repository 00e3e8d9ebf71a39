"""Cluster events, and the queueing hints by which a plugin selects the events that may make a pod schedulable.

Follows ``k8s.io/kube-scheduler`` v0.37.1, ``framework/types.go``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntFlag, auto
from functools import wraps
from typing import TypeVar

from scheduler_core.model.pod import Pod

T = TypeVar("T")


class Resource(Enum):
    """Kinds whose changes may make a pod schedulable."""

    POD = "Pod"
    """In a registration: any of the next three."""
    ASSIGNED_POD = "AssignedPod"
    """A pod with a node, or one that gave up its nominated node."""
    UNSCHEDULED_POD = "UnscheduledPod"
    """A pod without a node, other than the unschedulable pod itself."""
    TARGET_POD = "TargetPod"
    """The unschedulable pod itself."""
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    DECLARED_KIND = "declared"
    """A kind that plugins declare; ``ClusterEvent.kind`` names it."""
    WILDCARD = "*"


class Action(IntFlag):
    """What happened, as bit flags; a registration may combine several."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_NODE_PREEMPTION_POLICY = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_SCALE_UP = auto()
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = auto()
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = auto()
    UPDATE_OTHER = auto()
    """Any other update; the only update action of kinds without more specific ones."""

    UPDATE = (
        UPDATE_NODE_ALLOCATABLE
        | UPDATE_NODE_LABEL
        | UPDATE_NODE_TAINT
        | UPDATE_NODE_CONDITION
        | UPDATE_NODE_ANNOTATION
        | UPDATE_NODE_DECLARED_FEATURE
        | UPDATE_NODE_PREEMPTION_POLICY
        | UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
        | UPDATE_POD_SCALE_UP
        | UPDATE_POD_TOLERATION
        | UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        | UPDATE_POD_GENERATED_RESOURCE_CLAIM
        | UPDATE_OTHER
    )
    ALL = ADD | DELETE | UPDATE


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A change of an object, or a set of such changes in a registration.

    Attributes:
        resource: The kind of the object.
        action: What happened; a registration may combine several actions, an event that occurred has one.
        label: The name for metrics and logs, such as AssignedPodDelete; "" derives it from kind and action.
        kind: The collection path of a DECLARED_KIND; see :meth:`ObjectKind.event`.
    """

    resource: Resource
    action: Action
    label: str = ""
    kind: str = ""

    @property
    def name(self) -> str:
        """The label; without one, kind and action in one word, such as NodeAdd."""
        if self.label:
            return self.label
        kind = self.kind.rpartition("/")[2] or self.resource.value
        words = ("Update",) if self.action is Action.UPDATE_OTHER else (self.action.name or "").split("_")
        return kind + "".join(word.capitalize() for word in words)

    def covers(self, happened: ClusterEvent) -> bool:
        """Return whether a registration for this event matches ``happened``."""
        if Resource.WILDCARD not in (self.resource, happened.resource):
            is_pod = self.resource is Resource.POD and happened.resource in PODS
            if self.resource is not happened.resource and not is_pod:
                return False
        if self.kind != happened.kind and Resource.WILDCARD not in (self.resource, happened.resource):
            return False
        return bool(self.action & happened.action)


PODS = frozenset({Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD, Resource.TARGET_POD})
"""The resources that are pods."""


class Hint(Enum):
    """Result of a queueing hint."""

    SKIP = auto()
    """The event cannot make the pod schedulable."""
    QUEUE = auto()
    """The event may make the pod schedulable: requeue it."""


HintFunction = Callable[[Pod, object | None, object | None], Hint]
"""Arguments: the unschedulable pod, the object before the change (None: added), and after it (None: deleted)."""


def hint_on(kind: type[T]) -> Callable[[Callable[[Pod, T | None, T | None], Hint]], HintFunction]:
    """Decorate a hint that takes objects of one type, such as ``Node``; an object of another type requeues the pod."""

    def decorate(function: Callable[[Pod, T | None, T | None], Hint]) -> HintFunction:
        @wraps(function)
        def hint(pod: Pod, old: object | None, new: object | None) -> Hint:
            if not isinstance(old, kind | None) or not isinstance(new, kind | None):
                return Hint.QUEUE
            return function(pod, old, new)

        return hint

    return decorate


@dataclass(frozen=True, slots=True)
class EventRegistration:
    """Registration of an event: pods that the plugin rejected are requeued on it if ``hint`` agrees (None: always)."""

    event: ClusterEvent
    hint: HintFunction | None = None


EVERY_EVENT = ClusterEvent(Resource.WILDCARD, Action.ALL)

UNSCHEDULED_POD_ADD = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)
TARGET_POD_UPDATE = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_OTHER)
ASSIGNED_POD_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE = ClusterEvent(Resource.NODE, Action.DELETE)
UNSCHEDULABLE_TIMEOUT = ClusterEvent(Resource.WILDCARD, Action.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE = ClusterEvent(Resource.WILDCARD, Action.ALL, "ForceActivate")
PROFILE_SWAPPED = ClusterEvent(Resource.WILDCARD, Action.ALL, "ProfileSwapped")
"""The framework of a profile was replaced, so the rejections by its old plugins no longer hold."""
