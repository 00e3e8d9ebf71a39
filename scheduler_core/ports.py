"""The outside world as the core sees it: a clock, and the cluster that is written to.

Owns the protocols and the values that cross them. Must not know how they are fulfilled: the operator fulfils them
with HTTP, the simulator in memory, tests on virtual time. Only what stands here may await.

Why binds await and everything else is handed over: a binding cycle must learn whether its bind happened, while
conditions, events and nominations may be merged, delayed or dropped when newer ones replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ParamSpec, Protocol, TypeVar

from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.storage import PersistentVolume, PersistentVolumeClaim

P = ParamSpec("P")
T = TypeVar("T")


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """Keep the callback from running; harmless when it has run."""


class Clock(Protocol):
    """Time, injected so that tests and simulations run on their own."""

    def now(self) -> float:
        """Monotonic seconds from an arbitrary start."""

    def wall(self) -> datetime:
        """The date and time in UTC, for what is written into objects."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` on the loop in ``seconds``."""

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; 0 lets other tasks run once."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Which object an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True)
class Event:
    """An ``events.k8s.io/v1`` event to be recorded; ``type`` is Normal or Warning.

    ``note`` may be of any length here; the writer cuts it at the API's 1,024 bytes. ``reporting_controller`` is the
    scheduler name of the profile that tells, as with kube-scheduler, so that who filters events by it finds them; the
    writer replaces a name that the API would refuse.
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
    """A pod to be bound to a node; the UID keeps it from hitting a later pod of the same name."""

    namespace: str
    name: str
    uid: str
    node_name: str


@dataclass(frozen=True, slots=True)
class PodStatusPatch:
    """What changes in a pod's status: a condition, the nomination, or both.

    ``nominated_node_name`` None leaves it as it is, "" clears it.
    """

    namespace: str
    name: str
    uid: str
    condition: PodCondition | None = None
    nominated_node_name: str | None = None


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod to be deleted (a preemption's victim); ``condition`` is set on it first where given."""

    namespace: str
    name: str
    uid: str
    condition: PodCondition | None = None


class ClusterWriter(Protocol):
    """Everything that the core changes in the cluster."""

    async def bind(self, binding: Binding) -> None:
        """Bind a pod, and drop what is queued for its status: a PodScheduled=False never follows the bind.

        Raises:
            BoundElsewhereError: The pod is bound to another node.
            ConflictError: The pod is bound already.
            NotFoundError: The pod, or this UID of it, is gone.
            ClusterWriteError: Anything else; the bind did not happen, as reading the pod confirmed.
            WriteTimeoutError: The answer was lost and the pod could not be read either: the outcome is unknown.
        """

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as the API server has it now; None when it is gone.

        Raises:
            ClusterWriteError: The API server could not be asked.
        """

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Queue a patch; a later one of the same pod is merged over it."""

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Queue a deletion.

        ``done`` is told on the loop how it ended: None when the pod was deleted, a NotFoundError when it was gone
        before, and any other error when it may still be there.
        """

    def record(self, event: Event) -> None:
        """Queue an event; repeated ones are merged, and under pressure the oldest are dropped."""


class StorageWriter(Protocol):
    """What the core changes of volumes and claims, for their binding.

    Each write holds only if the object is still of the version that is handed over, so that two binders cannot both
    succeed; each returns the object as it is then, with its new version.
    """

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Write a volume's ``spec.claimRef`` and its annotation ``pv.kubernetes.io/bound-by-controller``.

        Raises:
            ConflictError: The volume is of another version by now.
            NotFoundError: The volume, or this UID of it, is gone.
            ClusterWriteError: Anything else.
        """

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Write a claim's annotation ``volume.kubernetes.io/selected-node``, upon which a volume is made for it.

        Raises:
            ConflictError: The claim is of another version by now.
            NotFoundError: The claim, or this UID of it, is gone.
            ClusterWriteError: Anything else.
        """


@dataclass(frozen=True, slots=True)
class ExtenderVerdict:
    """What an extender's filter answers.

    Attributes:
        node_names: Nodes that it leaves, in its order.
        failed: Why it turns nodes away, by name; preemption may help there.
        unresolvable: Why it turns nodes away where preemption cannot help, by name.
    """

    node_names: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """Pods that would leave a node in favour of another.

    Attributes:
        pods: The victims, in the order in which they were given up.
        pdb_violations: How many of them their disruption budgets do not allow.
    """

    pods: tuple[Pod, ...]
    pdb_violations: int = 0


class ExtenderClient(Protocol):
    """One extender of one live profile; each call is one request to it.

    While it answers, the cycle that asked is suspended; :meth:`bind` is asked from the binding cycle, which is not.
    """

    async def filter(self, pod: Pod, node_names: Sequence[str]) -> ExtenderVerdict:
        """Ask which of some nodes a pod may have.

        Raises:
            ExtenderError: It is away, too late, answered an error or what cannot be read.
        """

    async def prioritize(self, pod: Pod, node_names: Sequence[str]) -> Mapping[str, int]:
        """Ask for scores by node name, as it gives them: 0 to 10, not yet weighted.

        Raises:
            ExtenderError: As for :meth:`filter`.
        """

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Ask which candidates of a preemption it leaves, by node name, and with which victims.

        Raises:
            ExtenderError: As for :meth:`filter`.
        """

    async def bind(self, binding: Binding) -> None:
        """Let it bind a pod.

        Raises:
            ExtenderError: As for :meth:`filter`; whether the pod is bound is then unknown.
        """

    async def close(self) -> None:
        """Drop connections; called once, after the last attempt of the instance that it belongs to."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One extension point of a cycle; times are the clock's, ``status`` is a status code's name."""

    name: str
    started: float
    ended: float
    status: str


@dataclass(frozen=True, slots=True)
class CycleTrace:
    """A cycle that is over.

    Attributes:
        kind: ``scheduling`` or ``binding``.
        namespace: The pod's.
        pod: The pod's name.
        profile: The scheduler name.
        revision: The profile's revision.
        node: The node that was chosen, "" for none.
        result: ``scheduled`` (of a scheduling cycle: it goes on to binding), ``unschedulable`` or ``error``.
        started: The clock's seconds.
        ended: The clock's seconds.
        stages: Its extension points, in order.
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
    """Is told of every cycle when it is over; must return at once."""

    def tell(self, trace: CycleTrace, follows: object) -> object:
        """Take a cycle.

        Args:
            trace: The cycle.
            follows: What was returned for the scheduling cycle that a binding cycle follows, None for none.

        Returns:
            Anything by which a later cycle is joined to this one.
        """


class Watchdog(Protocol):
    """Interrupts a plugin that takes longer than its time budget while nothing else can run."""

    def guarded(self, plugin: str, point: str, call: Callable[P, T]) -> Callable[P, T]:
        """Put a call into a plugin under watch.

        Args:
            plugin: The plugin's name.
            point: The extension point, as in the configuration.
            call: The plugin's method.

        Returns:
            A function that does the same, but raises a PluginError when the budget is used up. It interrupts the plugin
            in the plugin's own code only, never in a change of the scheduler's state that the plugin has asked for.
        """


class PluginMetrics(Protocol):
    """Numbers that plugins tell of themselves, by name; a name is of letters, digits and ``_``."""

    def count(self, name: str, amount: float = 1.0) -> None:
        """Raise a counter.

        Raises:
            PluginError: The name cannot be used, or is that of observations.
        """

    def observe(self, name: str, value: float) -> None:
        """Add one observation to a histogram, such as seconds.

        Raises:
            PluginError: The name cannot be used, or is that of a counter.
        """
