"""Protocols between the core and the outside: a clock, writes to the cluster, extenders, traces and metrics.

The operator implements them with HTTP, the simulator in memory, and tests on virtual time. Only these protocols await.

Binds await because a binding cycle needs the outcome of its bind. Conditions, events and nominations are queued
instead, because the writer may merge, delay or drop them when newer ones replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn, ParamSpec, Protocol, TypeVar

from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod, PodCondition
from scheduler_core.model.storage import PersistentVolume, PersistentVolumeClaim

P = ParamSpec("P")
T = TypeVar("T")


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Prevent the callback from running; no effect after it ran."""


class Clock(Protocol):
    """Time; injected so that tests and simulations control it."""

    def now(self) -> float:
        """Return monotonic seconds from an arbitrary start."""

    def wall(self) -> datetime:
        """Return the date and time in UTC, for timestamps in objects."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` on the event loop after ``seconds``."""

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; 0 yields to other tasks once."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True)
class Event:
    """An ``events.k8s.io/v1`` event; ``type`` is Normal or Warning.

    ``note`` may have any length; the writer truncates it to the API's 1,024 bytes. ``reporting_controller`` is the
    scheduler name of the profile, as in kube-scheduler, so that filters on it match; the writer replaces a name that
    the API would reject.
    """

    regarding: ObjectReference
    type: str
    reason: str
    action: str
    note: str
    related: ObjectReference | None = None
    reporting_controller: str = "bayplan"


@dataclass(frozen=True, slots=True)
class Binding:
    """Binding of a pod, with annotations to add to it; the UID prevents binding a later pod of the same name."""

    namespace: str
    name: str
    uid: str
    node_name: str
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PodStatusPatch:
    """Change of a pod's status: a condition, the nomination, or both.

    ``nominated_node_name`` None leaves the nomination unchanged, "" clears it.
    """

    namespace: str
    name: str
    uid: str
    condition: PodCondition | None = None
    nominated_node_name: str | None = None


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """Deletion of a preemption victim; ``condition``, if given, is set on the pod first."""

    namespace: str
    name: str
    uid: str
    condition: PodCondition | None = None


class ClusterWriter(Protocol):
    """Writes of the core to the cluster."""

    async def bind(self, binding: Binding) -> None:
        """Bind a pod and drop queued patches of its status, so that PodScheduled=False never follows the bind.

        Raises:
            BoundElsewhereError: The pod is bound to another node.
            ConflictError: The pod is bound already.
            NotFoundError: The pod does not exist, or has another UID.
            ClusterWriteError: Any other failure; reading the pod confirmed that the bind did not happen.
            WriteTimeoutError: The response was lost and reading the pod failed: the outcome is unknown.
        """

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod as the API server has it now; None if it does not exist.

        Raises:
            ClusterWriteError: The API server could not be read.
        """

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Queue a patch; a later patch of the same pod is merged into it."""

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Queue a deletion.

        ``done`` is called on the event loop with the outcome: None when the pod was deleted, a NotFoundError when it
        did not exist, any other error when it may still exist.
        """

    def record(self, event: Event) -> None:
        """Queue an event; repeated events are merged, and when the queue is full the oldest are dropped."""


class StorageWriter(Protocol):
    """Writes of the core to volumes and claims, to bind them.

    Each write succeeds only if the object still has the given version, so that only one of two concurrent binders
    succeeds. Each method returns the object with its new version. It raises ConflictError if the object has another
    version now, NotFoundError if it does not exist or has another UID, and ClusterWriteError for any other failure.
    """

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Write a volume's ``spec.claimRef`` and its annotation ``pv.kubernetes.io/bound-by-controller``."""

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Write a claim's annotation ``volume.kubernetes.io/selected-node``, which triggers provisioning."""


class ClaimWriter(Protocol):
    """Writes of the core to resource claims, to allocate devices to pods.

    A write of a given version fails if the claim has another version, so that only one of two concurrent schedulers
    succeeds. Methods that return a claim return it with its new version. They raise ConflictError if the claim has
    another version now, or another UID, NotFoundError if a claim to read does not exist, and ClusterWriteError for any
    other failure.
    """

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        """Return a claim as the API server has it now."""

    async def write_finalizers(self, claim: ResourceClaim) -> ResourceClaim:
        """Write a claim's finalizers."""

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        """Write a claim's new allocation and its ``reservedFor``."""

    async def write_reservation(self, claim: ResourceClaim) -> ResourceClaim:
        """Write ``reservedFor`` and the allocation's timestamp of a claim that is allocated already."""

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Remove a claim's allocation, ``reservedFor`` and device states."""

    async def end_reservation(self, claim: ResourceClaim, consumer_uid: str) -> ResourceClaim:
        """Remove one consumer from a claim's ``reservedFor``, whatever its version is."""

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create a claim with a generated name, the pod as its owner, and the given requests."""

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim; no error if it does not exist."""

    async def write_extended_claim(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Write a pod's ``status.extendedResourceClaimStatus``."""


@dataclass(frozen=True, slots=True)
class ExtenderVerdict:
    """Result of an extender's filter.

    Attributes:
        node_names: Feasible nodes, in the extender's order.
        failed: Reasons for rejected nodes, by name; preemption may help there.
        unresolvable: Reasons for rejected nodes where preemption does not help, by name.
    """

    node_names: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """Preemption victims on one node.

    Attributes:
        pods: The victims, in the order in which they were chosen.
        pdb_violations: How many of them violate a PodDisruptionBudget.
    """

    pods: tuple[Pod, ...]
    pdb_violations: int = 0


class ExtenderClient(Protocol):
    """Client of one extender of one profile; each call is one request.

    The scheduling cycle is suspended during a request; :meth:`bind` is called from the binding cycle, which is not.
    Each method raises ExtenderError if the extender is unreachable, timed out, or returned an error or an invalid
    response; whether :meth:`bind` has bound the pod is then unknown.
    """

    async def filter(self, pod: Pod, node_names: Sequence[str]) -> ExtenderVerdict:
        """Return which of some nodes are feasible for a pod."""

    async def prioritize(self, pod: Pod, node_names: Sequence[str]) -> Mapping[str, int]:
        """Return scores by node name as the extender gives them: 0 to 10, not yet weighted."""

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Return the preemption candidates that the extender accepts, by node name, with their victims."""

    async def bind(self, binding: Binding) -> None:
        """Let the extender bind a pod."""

    async def close(self) -> None:
        """Close connections; called once, after the last attempt of the profile revision."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One extension point of a cycle; times are in the clock's seconds, ``status`` is the name of a status code."""

    name: str
    started: float
    ended: float
    status: str


@dataclass(frozen=True, slots=True)
class CycleTrace:
    """Trace of a finished cycle.

    Attributes:
        kind: ``scheduling`` or ``binding``.
        profile: The scheduler name.
        node: The chosen node, "" for none.
        result: ``scheduled`` (a scheduling cycle continues with binding), ``unschedulable`` or ``error``.
        started: Start in the clock's seconds.
    """

    kind: str
    namespace: str
    pod: str
    profile: str
    revision: str
    node: str
    result: str
    started: float
    ended: float
    stages: tuple[Stage, ...]


class Tracer(Protocol):
    """Receives a trace of every finished cycle; must return at once."""

    def record(self, trace: CycleTrace, follows: object) -> object:
        """Record a cycle.

        Returns:
            A value that links a later cycle to this one.
        """


class Watchdog(Protocol):
    """Interrupts a plugin that exceeds its time budget and blocks the event loop."""

    def guarded(self, plugin: str, point: str, call: Callable[P, T]) -> Callable[P, T]:
        """Wrap a plugin method so that it is interrupted when it exceeds its time budget.

        Returns:
            A function that calls it and raises a PluginError when the budget is used up. The interruption happens only
            in the plugin's own code, never while the plugin changes state of the scheduler.
        """


class SearchProcesses(Protocol):
    """Copies of this process, in which long searches continue; one at a time."""

    def fork(self, done: Callable[[bytes | None], None]) -> Callable[[bytes | None], NoReturn] | None:
        """Start a copy of this process, in which this method returns, too.

        Args:
            done: Called on the event loop of this process with the result of the copy; None if it ended without one.

        Returns:
            None in this process; in the copy a function that sends a result and ends the process.

        Raises:
            OSError: No process can be started.
        """

    def stop(self) -> None:
        """End the copy, whose result is dropped."""


class PluginMetrics(Protocol):
    """Metrics of plugins by name; a name consists of letters, digits and ``_``."""

    def count(self, name: str, amount: float = 1.0) -> None:
        """Increment a counter.

        Raises:
            PluginError: The name is invalid, or belongs to a histogram.
        """

    def observe(self, name: str, value: float) -> None:
        """Add one observation, such as seconds, to a histogram.

        Raises:
            PluginError: The name is invalid, or belongs to a counter.
        """
