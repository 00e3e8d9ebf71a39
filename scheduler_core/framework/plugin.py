"""Base class of all plugins, and the declaration of what a plugin's results depend on."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from pydantic import BaseModel

from scheduler_core.framework.cluster_events import EVERY_EVENT, EventRegistration
from scheduler_core.framework.object_reads import NO_EXTRA_READS, ObjectReads
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

if TYPE_CHECKING:
    from scheduler_core.framework.cycle_state import CycleState
    from scheduler_core.framework.handle import Handle


class Reads(Flag):
    """What the result of Filter or Score for one row depends on, besides the pod; combine flags with ``|``."""

    NODE = auto()
    """The Node object of the row."""
    PODS = auto()
    """The pods on the node of the row."""
    NODES = auto()
    """The Node objects of other rows."""
    DOMAINS = auto()
    """Counts of pods over topology domains."""
    ANYTHING = auto()
    """Anything else."""

    @property
    def is_row_local(self) -> bool:
        """Whether the result changes only when the row or a Node object changes."""
        return not self & (Reads.DOMAINS | Reads.ANYTHING)


class PodReads(Flag):
    """Aspects of a pod in which the pods of one workload often differ."""

    NOTHING = 0
    RESOURCES = auto()
    """Amounts of requests and limits of the pod and its containers, and its overhead.

    Which extended resources a pod requests is not part of it: pods of one class request the same ones.
    """
    LABELS = auto()
    """The labels of the pod."""
    IDENTITY = auto()
    """Name, UID and age."""
    ANYTHING = RESOURCES | LABELS | IDENTITY


class NodeChange(Flag):
    """Changes of nodes after which the scheduler itself needs a plugin's queueing hints."""

    NOTHING = 0
    CAPACITY = auto()
    """More free resources."""
    LABELS = auto()
    """Other labels."""


class Reuse(Struct, frozen=True):
    """A plugin's declaration of what its results depend on, so that they can be reused for the next pod.

    Attributes:
        filter: What its Filter reads; with ``DOMAINS`` or ``ANYTHING`` Filter is called for every pod.
        score: What its Score reads; likewise.
        pod: The aspects of the pod that any of its extension points reads.
        prepares_once: Whether PreFilter and PreScore return and prepare the same for all pods of a class, always; see
            :meth:`Plugin.reuse_check`.
    """

    filter: Reads = Reads.ANYTHING
    score: Reads = Reads.ANYTHING
    pod: PodReads = PodReads.ANYTHING
    prepares_once: bool = False


class Normalization(Enum):
    """How raw scores of all feasible nodes are mapped to 0..100."""

    NONE = auto()
    """The raw scores are within 0..100 already."""
    MAX = auto()
    """Scaled so that the highest score is 100."""
    REVERSE_MAX = auto()
    """Scaled like MAX, then subtracted from 100."""
    OWN = auto()
    """The plugin's ``normalize`` maps them."""


def always() -> bool:
    """Return True: a reuse check that always holds."""
    return True


class Plugin(ABC):
    """Base class of all plugins.

    Attributes:
        name: The name by which profiles enable the plugin; unique in a registry.
        args_model: The pydantic model of its args, None if it takes none.
        reads: What it reads of the cluster beyond what is always decoded.
        reuse: What its results depend on. The default, anything, calls the plugin for every pod.
        events: The events that may make a pod schedulable that it rejected; by default every event.
        hints_for: Changes of nodes whose queueing hints of this plugin also requeue pods and gangs that the scheduler
            itself rejected, because of a reservation, ``minResources`` or a topology domain.
        handles_resizes: Whether PreFilter, Filter and PostFilter are called for a running pod whose resize is deferred.
        may_fork: Whether a long search may continue in a copy of the process, made by ``fork``, in which the plugin's
            other threads do not run and whatever the plugin changes is lost.
        may_free_devices: Whether preemption for devices, if the profile enables it, may help a pod that it rejected.
    """

    name: ClassVar[str]
    args_model: ClassVar[type[BaseModel] | None] = None
    reads: ClassVar[ObjectReads] = NO_EXTRA_READS
    reuse: ClassVar[Reuse] = Reuse()
    events: ClassVar[Sequence[EventRegistration]] = (EventRegistration(EVERY_EVENT),)
    hints_for: ClassVar[NodeChange] = NodeChange.NOTHING
    handles_resizes: ClassVar[bool] = True
    may_fork: ClassVar[bool] = False
    may_free_devices: ClassVar[bool] = False

    def __init__(self, args: Any, handle: Handle) -> None:
        """Store the args and the handle.

        Args:
            args: An instance of ``args_model``, validated and with defaults; None if the plugin takes no args.
        """
        self.args = args
        self.handle = handle

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check for how long the results of PreFilter and PreScore hold for pods of the same class.

        Returns:
            A cheap check that is true while both would return and prepare the same; :func:`always` where that follows
            from the pod, as with ``prepares_once``. None (the default): both are called for every pod.
        """
        return always if self.reuse.prepares_once else None

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return :attr:`events`; override it if hints need the instance."""
        return self.events

    def planned_writes(self, state: CycleState, pod: PodInfo, node_name: str) -> Mapping[str, Any] | None:
        """Return what PreBind would write if the pod were bound to a feasible node.

        Args:
            state: State of the attempt in which the node was found feasible; nothing has changed since.

        Returns:
            The objects as they would be stored, by name, in plain JSON types; None (the default) if the plugin has
            nothing to write for the pod on any node.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most plugins hold nothing
        """Release resources; called when the last pod in flight that uses this instance is done."""
