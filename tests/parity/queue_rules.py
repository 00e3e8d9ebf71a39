"""JSON format of sequences of calls of a scheduling queue, and the fake plugins of these sequences.

``tests/parity/oracle/queue_rules.go`` has the same plugins for kube-scheduler's queue. They are fake, because in-tree
plugins read so many fields that a random event hardly ever affects them.
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


class FakePluginError(SchedulerCoreError):
    """Error of a hint or a gate that fails on purpose."""


class Registration(msgspec.Struct, frozen=True):
    """Event that a plugin registers for, and the kind of its queueing hint."""

    resource: str
    actions: tuple[str, ...]
    hint: str


class SequenceProfile(msgspec.Struct, frozen=True):
    """Profile: its gates, and the registrations of its plugins."""

    gates: tuple[str, ...]
    plugins: dict[str, tuple[Registration, ...]]


class SequencePod(msgspec.Struct, frozen=True):
    """Fields of a pod that the fake plugins read; ``cpu`` is in milli-CPUs, ``note`` is an annotation."""

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


class SequenceEvent(msgspec.Struct, frozen=True):
    """Change of an object, of which only the labels matter."""

    resource: str
    action: str
    old: dict[str, str] | None = None
    new: dict[str, str] | None = None

    def cluster_event(self) -> ClusterEvent:
        """Return the event with the name that the feeds give it; a general update has no specific action."""
        action = Action.UPDATE_OTHER if self.action == "Update" else _ACTIONS[self.action]
        return ClusterEvent(Resource(self.resource), action)

    def objects(self) -> tuple[object | None, object | None]:
        """Return the object before and after the change."""
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
    """Object of any other kind."""

    metadata: ObjectMeta


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """Step of a sequence; unused fields have their defaults.

    Attributes:
        nth: Index of an attempt in flight, modulo their number.
        node: Nomination of an attempt; None keeps the nomination of the pod's status.
        but: Name of a pod that is excluded from the event.
        ms: Time to advance, in milliseconds.
    """

    op: str
    pod: SequencePod | None = None
    name: str = ""
    set: dict[str, Any] = {}
    nth: int = 0
    rejected: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    node: str | None = None
    event: SequenceEvent | None = None
    max_priority: int | None = None
    but: str = ""
    names: tuple[str, ...] = ()
    closed: bool = False
    ms: int = 0


class QueueSequence(msgspec.Struct, frozen=True, rename="camel"):
    """Steps of a queue in order, with times in milliseconds."""

    name: str
    initial_backoff_ms: int
    max_backoff_ms: int
    max_unschedulable_ms: int
    profiles: dict[str, SequenceProfile]
    steps: tuple[Step, ...]


_SEQUENCES = msgspec.json.Decoder(QueueSequence)


def decode_sequence(line: bytes) -> QueueSequence:
    """Decode one line of JSON.

    Raises:
        ConfigError: The line is not a sequence.
    """
    try:
        return _SEQUENCES.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            [Problem("", f"is not a line of -queue: {error}; see tests/parity/oracle/README.md")]
        ) from error


def own_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """Return the events of a waiting pod's change in kube-scheduler's queue, as ``PodSchedulingPropertiesChange``.

    Unlike Bayplan's feed, it returns an event also for fields that no plugin reads, so both queues get the same events.
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


class SequenceGate(PreEnqueuePlugin):
    """PreEnqueue plugin; at most one gate of a pod is closed, because the reference calls gates in random order.

    Args:
        closed: Names of the pods whose outer gate is closed; read at each call.
    """

    lock: ClassVar[str]
    """Name of the condition that closes this gate."""

    def __init__(self, closed: set[str]) -> None:
        self._closed = closed

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject the pod if the gate is closed."""
        return self.reject() if _closing_condition(pod.pod, self._closed) == self.lock else SUCCESS

    def reject(self) -> Status:
        """Return the status of a rejected pod."""
        return unschedulable("held")


class SpecGate(SequenceGate):
    """Gate for pods with scheduling gates."""

    name, lock = "SpecGate", "spec"


class LabelGate(SequenceGate):
    """Gate for pods with a label."""

    name, lock = "LabelGate", "label"


class OuterGate(SequenceGate):
    """Gate that depends on state outside the pod, like DefaultPreemption."""

    name, lock = "OuterGate", "outer"


class FaultGate(SequenceGate):
    """Gate like OuterGate that raises an error."""

    name, lock = "FaultGate", "outer"

    def reject(self) -> Status:
        """Raise an error."""
        raise FakePluginError("fake gate error; open the gate")


_GATES: Mapping[str, type[SequenceGate]] = {gate.name: gate for gate in (SpecGate, LabelGate, OuterGate, FaultGate)}


def _closing_condition(pod: Pod, closed: set[str]) -> str:
    if pod.spec.scheduling_gates:
        return "spec"
    if pod.metadata.labels.get(_HELD):
        return "label"
    return "outer" if pod.metadata.name in closed else ""


def rules_of(sequence: QueueSequence, closed: set[str]) -> dict[str, QueueingRules]:
    """Return the queueing rules of each profile.

    Args:
        closed: Names of the pods that OuterGate and FaultGate reject; read at each call.
    """
    return {name: _rules(profile, sequence, closed) for name, profile in sequence.profiles.items()}


def _rules(profile: SequenceProfile, sequence: QueueSequence, closed: set[str]) -> QueueingRules:
    registrations = {
        plugin: tuple(EventRegistration(_registered(entry), _HINTS[entry.hint]) for entry in entries)
        for plugin, entries in profile.plugins.items()
    }
    return QueueingRules(
        tuple(_GATES[gate](closed) for gate in profile.gates),
        registrations,
        sort_key,
        sequence.initial_backoff_ms / 1000,
        sequence.max_backoff_ms / 1000,
    )


def _registered(entry: Registration) -> ClusterEvent:
    action = Action(0)
    for name in entry.actions:
        action |= _ACTIONS[name]
    return ClusterEvent(Resource(entry.resource), action)


def sort_key(pod: QueuedPod) -> tuple[int, float, str]:
    """Return the key of PrioritySort, with ties broken by UID."""
    return -pod.info.priority, pod.timestamp, pod.uid


def _metadata(old: object | None, new: object | None) -> ObjectMeta:
    changed: Any = old if new is None else new
    meta: ObjectMeta = changed.metadata
    return meta


def _error(pod: Pod, old: object | None, new: object | None) -> Hint:
    raise FakePluginError("fake hint error; the pod is requeued")


def _when(condition: Callable[[Pod, object | None, object | None], bool]) -> Callable[..., Hint]:
    def hint(pod: Pod, old: object | None, new: object | None) -> Hint:
        return Hint.QUEUE if condition(pod, old, new) else Hint.SKIP

    return hint


_HINTS: Mapping[str, Callable[..., Hint]] = {
    "error": _error,
    "queue": _when(lambda _pod, _old, _new: True),
    "skip": _when(lambda _pod, _old, _new: False),
    "colour": _when(
        lambda pod, old, new: _metadata(old, new).labels.get(_COLOUR, "") == pod.metadata.labels.get(_COLOUR, "")
    ),
    "own": _when(lambda pod, old, new: _metadata(old, new).uid == pod.metadata.uid),
    "freed": _when(lambda _pod, _old, new: new is None),
}
