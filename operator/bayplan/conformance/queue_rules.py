"""The lives of scheduling queues as they are written down, and the plugins that occur in them.

Owns the wire form, and what gates and hints of such a life answer; the reference's side of the same plugins is
``hack/oracle/queue_rules.go``. Must not know what a queue makes of it. Why plugins of its own: those in the tree look
at so much that a random event would hardly ever matter to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from scheduler_core.errors import ConfigError, Problem, SchedulerCoreError
from scheduler_core.framework.cluster_events import (
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    Resource,
)
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.snapshot.pod_info import PodInfo

_NAMESPACE = "default"
_COLOUR, _HELD = "colour", "held"

_ACTIONS: Mapping[str, Action] = {
    "Add": Action.ADD,
    "Delete": Action.DELETE,
    "Update": Action.UPDATE,
    "All": Action.ALL,
    "UpdateNodeAllocatable": Action.UPDATE_NODE_ALLOCATABLE,
    "UpdateNodeLabel": Action.UPDATE_NODE_LABEL,
    "UpdateNodeTaint": Action.UPDATE_NODE_TAINT,
    "UpdatePodLabel": Action.UPDATE_POD_LABEL,
    "UpdatePodScaleDown": Action.UPDATE_POD_SCALE_DOWN,
    "UpdatePodToleration": Action.UPDATE_POD_TOLERATION,
    "UpdatePodSchedulingGatesEliminated": Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
}


class NoAnswerError(SchedulerCoreError):
    """A hint or a gate that cannot tell."""


class Registration(msgspec.Struct, frozen=True):
    """An event that a plugin asks to be told of, and the kind of its hint."""

    resource: str
    actions: tuple[str, ...]
    hint: str


class LifeProfile(msgspec.Struct, frozen=True):
    """A profile: its gates, and what its plugins registered."""

    gates: tuple[str, ...]
    plugins: dict[str, tuple[Registration, ...]]


class LifePod(msgspec.Struct, frozen=True):
    """A pod as far as these plugins read it; ``cpu`` in millis, ``note`` is an annotation."""

    name: str
    profile: str
    priority: int
    labels: dict[str, str]
    gated: bool
    nominated: str
    tolerations: int
    cpu: int
    note: str

    def pod(self, uid: str) -> Pod:
        """The Kubernetes object."""
        meta: dict[str, Any] = {"name": self.name, "namespace": _NAMESPACE, "uid": uid, "labels": self.labels}
        if self.note:
            meta["annotations"] = {"note": self.note}
        spec = {
            "schedulerName": self.profile,
            "priority": self.priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{self.cpu}m"}}}],
            "schedulingGates": [{"name": "g"}] if self.gated else [],
            "tolerations": [{"key": str(number), "operator": "Exists"} for number in range(self.tolerations)],
        }
        status = {"nominatedNodeName": self.nominated}
        return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


class LifeEvent(msgspec.Struct, frozen=True):
    """A change of an object of which the labels are all that counts."""

    resource: str
    action: str
    old: dict[str, str] | None = None
    new: dict[str, str] | None = None

    def cluster_event(self) -> ClusterEvent:
        """The event as the feeds name it: a general update is one that is not told apart further."""
        resource = Resource.POD if self.resource == "AssignedPod" else Resource(self.resource)
        action = Action.UPDATE_OTHER if self.action == "Update" else _ACTIONS[self.action]
        return ClusterEvent(resource, action)

    def objects(self) -> tuple[object | None, object | None]:
        """The object before and after."""
        return self._object(self.old), self._object(self.new)

    def _object(self, labels: dict[str, str] | None) -> object | None:
        if labels is None:
            return None
        meta = {"name": "it", "namespace": _NAMESPACE, "uid": "it", "labels": labels}
        if self.resource == "AssignedPod":
            return msgspec.convert({"metadata": meta, "spec": {"nodeName": "n0"}}, Pod)
        if self.resource == Resource.NODE.value:
            return msgspec.convert({"metadata": meta}, Node)
        return Labelled(msgspec.convert(meta, ObjectMeta))


class Labelled(msgspec.Struct, frozen=True):
    """An object of some other kind."""

    metadata: ObjectMeta


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that happens; what it does not need is left at its default.

    Attributes:
        nth: Which attempt of those in flight, counted around.
        node: What an attempt decides about the nomination; None leaves it to the pod's status.
        but: The name of a pod that is not told of the event.
        ms: How long time passes, in milliseconds.
    """

    op: str
    pod: LifePod | None = None
    name: str = ""
    set: dict[str, Any] = {}
    nth: int = 0
    rejected: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    node: str | None = None
    event: LifeEvent | None = None
    max_priority: int | None = None
    but: str = ""
    names: tuple[str, ...] = ()
    closed: bool = False
    ms: int = 0


class QueueLife(msgspec.Struct, frozen=True, rename="camel"):
    """What a queue is told, in order; times in milliseconds."""

    name: str
    initial_backoff_ms: int
    max_backoff_ms: int
    max_unschedulable_ms: int
    profiles: dict[str, LifeProfile]
    steps: tuple[Step, ...]


_LIVES = msgspec.json.Decoder(QueueLife)


def decode_life(line: bytes) -> QueueLife:
    """Decode one line of JSON.

    Raises:
        ConfigError: It is not the life of a queue.
    """
    try:
        return _LIVES.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"is not a line of -queue: {error}; see hack/oracle/README.md")]) from error


def own_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """What kube-scheduler's queue makes of a change of a waiting pod (``PodSchedulingPropertiesChange``).

    The feed, which tells Bayplan's queue, leaves out changes in which nothing is different that plugins read; here
    there is always an event, so that both queues are told the same.
    """
    actions: list[Action] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if _cpu(new) < _cpu(old):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        actions.append(Action.UPDATE_POD_TOLERATION)
    return [ClusterEvent(Resource.POD, action) for action in actions or [Action.UPDATE_OTHER]]


def _cpu(pod: Pod) -> int:
    return int(str(pod.spec.containers[0].resources.requests["cpu"]).removesuffix("m"))


class LifeGate(PreEnqueuePlugin):
    """Holds back pods; at most one gate of a pod is closed at a time, as the reference asks gates in random order.

    Args:
        closed: Names of the pods that are held from outside; read whenever it is asked.
    """

    lock: ClassVar[str]
    """What of a pod closes it."""

    def __init__(self, closed: set[str]) -> None:
        self._closed = closed

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Hold it back or not."""
        return self.refuse() if _closing(pod.pod, self._closed) == self.lock else SUCCESS

    def refuse(self) -> Status:
        """What is said to a pod that is held back."""
        return unschedulable("held")


class SpecGate(LifeGate):
    """Holds pods with scheduling gates."""

    name, lock = "SpecGate", "spec"


class LabelGate(LifeGate):
    """Holds pods with a label."""

    name, lock = "LabelGate", "label"


class OuterGate(LifeGate):
    """Holds pods by what does not show on them, as preemption does."""

    name, lock = "OuterGate", "outer"


class FaultGate(LifeGate):
    """As OuterGate, but that it fails."""

    name, lock = "FaultGate", "outer"

    def refuse(self) -> Status:
        """Raise."""
        raise NoAnswerError("no answer; open the gate")


_GATES: Mapping[str, type[LifeGate]] = {gate.name: gate for gate in (SpecGate, LabelGate, OuterGate, FaultGate)}


def _closing(pod: Pod, closed: set[str]) -> str:
    if pod.spec.scheduling_gates:
        return "spec"
    if pod.metadata.labels.get(_HELD):
        return "label"
    return "outer" if pod.metadata.name in closed else ""


def rules_of(life: QueueLife, closed: set[str]) -> dict[str, QueueingRules]:
    """What each profile tells the queue.

    Args:
        life: The life.
        closed: Names of the pods that OuterGate and FaultGate hold; read whenever they are asked.
    """
    return {name: _rules(profile, life, closed) for name, profile in life.profiles.items()}


def _rules(profile: LifeProfile, life: QueueLife, closed: set[str]) -> QueueingRules:
    registrations = {
        plugin: tuple(EventRegistration(_registered(entry), _HINTS[entry.hint]) for entry in entries)
        for plugin, entries in profile.plugins.items()
    }
    return QueueingRules(
        tuple(_GATES[gate](closed) for gate in profile.gates),
        registrations,
        sort_key,
        life.initial_backoff_ms / 1000,
        life.max_backoff_ms / 1000,
    )


def _registered(entry: Registration) -> ClusterEvent:
    action = Action(0)
    for name in entry.actions:
        action |= _ACTIONS[name]
    resource = Resource.POD if entry.resource == "AssignedPod" else Resource(entry.resource)
    return ClusterEvent(resource, action)


def sort_key(pod: QueuedPod) -> tuple[int, float, str]:
    """PrioritySort's, with ties settled by UID, which both sides know."""
    return -pod.info.priority, pod.timestamp, pod.uid


def _shown(old: object | None, new: object | None) -> ObjectMeta:
    shown: Any = old if new is None else new
    meta: ObjectMeta = shown.metadata
    return meta


def _error(pod: Pod, old: object | None, new: object | None) -> Hint:
    del pod, old, new
    raise NoAnswerError("no idea; the pod is retried")


def _when(condition: Callable[[Pod, object | None, object | None], bool]) -> Callable[..., Hint]:
    def hint(pod: Pod, old: object | None, new: object | None) -> Hint:
        return Hint.QUEUE if condition(pod, old, new) else Hint.SKIP

    return hint


_HINTS: Mapping[str, Callable[..., Hint]] = {
    "error": _error,
    "queue": _when(lambda _pod, _old, _new: True),
    "skip": _when(lambda _pod, _old, _new: False),
    "colour": _when(
        lambda pod, old, new: _shown(old, new).labels.get(_COLOUR, "") == pod.metadata.labels.get(_COLOUR, "")
    ),
    "own": _when(lambda pod, old, new: _shown(old, new).uid == pod.metadata.uid),
    "freed": _when(lambda _pod, _old, new: new is None),
}
