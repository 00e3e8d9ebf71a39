"""JSON form of the lives of scheduling queues, and the plugins that occur in them.

The reference's side of the same plugins is ``tests/parity/oracle/queue_rules.go``. The plugins are made for this
purpose: the in-tree plugins read so much that a random event would hardly ever affect them.
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
from scheduler_core.queueing.gates_and_hints import QueueingRules
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
    """Raised by a hint or a gate that fails."""


class Registration(msgspec.Struct, frozen=True):
    """An event that a plugin registers for, and the kind of its hint."""

    resource: str
    actions: tuple[str, ...]
    hint: str


class LifeProfile(msgspec.Struct, frozen=True):
    """A profile: its gates, and the registrations of its plugins."""

    gates: tuple[str, ...]
    plugins: dict[str, tuple[Registration, ...]]


class LifePod(msgspec.Struct, frozen=True):
    """The fields of a pod that these plugins read; ``cpu`` in milli, ``note`` is an annotation."""

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
        """Return the Kubernetes object."""
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
    """A change of an object; only its labels matter."""

    resource: str
    action: str
    old: dict[str, str] | None = None
    new: dict[str, str] | None = None

    def cluster_event(self) -> ClusterEvent:
        """Return the event as the feeds name it: a general update is one without a more specific action."""
        action = Action.UPDATE_OTHER if self.action == "Update" else _ACTIONS[self.action]
        return ClusterEvent(Resource(self.resource), action)

    def objects(self) -> tuple[object | None, object | None]:
        """Return the object before and after."""
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
    """An object of any other kind."""

    metadata: ObjectMeta


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """One step of a life; fields that it does not need have their defaults.

    Attributes:
        nth: Index of an attempt in flight, modulo their number.
        node: Nomination that an attempt decides; None leaves it to the pod's status.
        but: Name of a pod that does not get the event.
        ms: Time to advance, in milliseconds.
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
    """The steps of a queue, in order; times in milliseconds."""

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
        raise ConfigError(
            [Problem("", f"is not a line of -queue: {error}; see tests/parity/oracle/README.md")]
        ) from error


def own_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """Return the events of a waiting pod's change in kube-scheduler's queue.

    Follows ``PodSchedulingPropertiesChange``. Bayplan's feed skips changes of fields that no plugin reads; here there
    is always an event, so that both queues get the same ones.
    """
    actions: list[Action] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if _cpu(new) < _cpu(old):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if _cpu(new) > _cpu(old):
        actions.append(Action.UPDATE_POD_SCALE_UP)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        actions.append(Action.UPDATE_POD_TOLERATION)
    return [ClusterEvent(Resource.TARGET_POD, action) for action in actions or [Action.UPDATE_OTHER]]


def _cpu(pod: Pod) -> int:
    return int(str(pod.spec.containers[0].resources.requests["cpu"]).removesuffix("m"))


class LifeGate(PreEnqueuePlugin):
    """PreEnqueue plugin; at most one gate of a pod is closed at a time, as the reference runs gates in random order.

    Args:
        closed: Names of the pods that are held from outside; read at each call.
    """

    lock: ClassVar[str]
    """The property of a pod that closes this gate."""

    def __init__(self, closed: set[str]) -> None:
        self._closed = closed

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject the pod if the gate is closed."""
        return self.refuse() if _closing(pod.pod, self._closed) == self.lock else SUCCESS

    def refuse(self) -> Status:
        """Return the status of a rejected pod."""
        return unschedulable("held")


class SpecGate(LifeGate):
    """Gate for pods with scheduling gates."""

    name, lock = "SpecGate", "spec"


class LabelGate(LifeGate):
    """Gate for pods with a label."""

    name, lock = "LabelGate", "label"


class OuterGate(LifeGate):
    """Gate that depends on something outside of the pod, like preemption."""

    name, lock = "OuterGate", "outer"


class FaultGate(LifeGate):
    """Like OuterGate, but it raises."""

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
    """Return each profile's queueing rules.

    Args:
        life: The life.
        closed: Names of the pods that OuterGate and FaultGate hold; read at each call.
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
    return ClusterEvent(Resource(entry.resource), action)


def sort_key(pod: QueuedPod) -> tuple[int, float, str]:
    """Sort like PrioritySort, with ties broken by UID, which both sides have."""
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
