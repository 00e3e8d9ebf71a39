"""The extension points: what a plugin may implement, and in which form.

Owns the abstract classes. A plugin subclasses every point that it serves, once. Filter and Score take all candidate
rows at once, because that is what makes a cycle cost microseconds; an author who prefers one node at a time subclasses
:class:`NodeFilterPlugin` or :class:`NodeScorePlugin` instead, and the runtime adapts it.

Follows the points of kube-scheduler v1.36.3 (``k8s.io/kube-scheduler/framework/interface.go``); differences:
QueueSort gives a key instead of a comparison, and Filter and Score work on columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.node_view import NodeView
from scheduler_core.framework.plugin import Normalization, Plugin, PodReads, Reads, Reuse
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.row_sums import RowSums
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

if TYPE_CHECKING:
    from scheduler_core.framework.diagnosis import Diagnosis

__all__ = [
    "MAX_NODE_SCORE",
    "BindPlugin",
    "Codes",
    "FilterPlugin",
    "NodeFilterPlugin",
    "NodeScorePlugin",
    "Normalization",
    "PermitPlugin",
    "PermitResult",
    "Plugin",
    "PodReads",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterPreview",
    "PostFilterResult",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterExtensions",
    "PreFilterPlugin",
    "PreFilterResult",
    "PreScorePlugin",
    "PreemptionCandidate",
    "PreemptionExtenders",
    "QueueSortPlugin",
    "Reads",
    "ReservePlugin",
    "Reuse",
    "ScorePlugin",
    "Scores",
    "Shortage",
    "SumsFilter",
]

Codes = NDArray[np.int16]
"""int16 per row asked about: 0 passes, any other number is the plugin's own and is explained by ``decode``."""
Scores = NDArray[np.int64]
"""int64 per row asked about."""

MAX_NODE_SCORE = 100


class PreEnqueuePlugin(Plugin):
    """Decides whether a pod may enter the active queue; must be quick."""

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Success lets the pod in; any other answer holds it back until an event that the plugin registered."""


class QueueSortPlugin(Plugin):
    """Orders the active queue; all live profiles share one."""

    @abstractmethod
    def sort_key(self, pod: QueuedPod) -> Any:
        """A value that compares lower the sooner the pod should be tried."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """What PreFilter answers: a status, and on Success perhaps the only nodes to look at (None: all)."""

    status: Status = SUCCESS
    node_names: frozenset[str] | None = None


class PreFilterPlugin(Plugin):
    """Looks at the pod once before the nodes are; Skip leaves out the plugin's Filter for this pod."""

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Prepare, reject, narrow down or skip."""


class PreFilterExtensions(ABC):
    """Keeps what PreFilter computed true while a what-if adds and removes pods; mixed into a PreFilterPlugin."""

    @abstractmethod
    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """``added`` has been put on ``row``, as seen by ``pod``."""

    @abstractmethod
    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """``removed`` has been taken off ``row``, as seen by ``pod``."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """An amount of which a node has too little for a pod.

    Attributes:
        resource: The resource's name, such as ``cpu`` or ``pods``.
        needed: What the pod needs; cpu in milli, everything else in whole units.
        free: What is free, in the same unit; below 0 where the node is overcommitted.
    """

    resource: str
    needed: int
    free: int


class FilterPlugin(Plugin):
    """Rules out nodes, all at once."""

    @abstractmethod
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Judge rows.

        Args:
            state: The attempt's state.
            pod: The pod to place.
            nodes: The columns; freed rows among them may be answered in any way.
            rows: The rows to judge; index columns with it.

        Returns:
            int16 per row, 0 where the pod may run; None if it may run on every row.
        """

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        """Judge one row: what :meth:`filter` answers about it, which a plugin may know a quicker way to tell."""
        codes = self.filter(state, pod, nodes, np.array([row], dtype=np.intp))
        return 0 if codes is None else int(codes[0])

    @abstractmethod
    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """What ``code``, which this plugin answered in the same attempt, means."""

    def shortages(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> tuple[Shortage, ...]:
        """Of what a row that was rejected has too little; () (the default) where a reason says it all."""
        del state, pod, nodes, row
        return ()


class SumsFilter(ABC):
    """Reads the pods on a node through their sums alone; mixed into a FilterPlugin whose answers depend on ROW."""

    @abstractmethod
    def filter_sums(self, state: CycleState, pod: PodInfo, sums: RowSums) -> Codes | None:
        """The codes that ``filter`` would answer about rows with these sums: int16 each, None where all pass."""


class NodeFilterPlugin(Plugin):
    """Rules out nodes, one at a time."""

    @abstractmethod
    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        """Judge one node."""


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What PostFilter answers; ``nominated_node`` "" clears the nomination, None leaves it as it is."""

    status: Status
    nominated_node: str | None = None


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """A node where the pod would fit if some pods left it.

    Attributes:
        node_name: The node.
        victims: The pods that would have to leave, most important first; those that are ending already among them.
        pdb_violations: How many of them a PodDisruptionBudget protects.
    """

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class PostFilterPreview:
    """What PostFilter would do.

    Attributes:
        result: What it would answer.
        candidates: Every node that it would consider.
        evicted: Pods that it would evict.
        withdrawn: Pods whose nomination it would take back.
    """

    result: PostFilterResult
    candidates: tuple[PreemptionCandidate, ...] = ()
    evicted: tuple[PodInfo, ...] = ()
    withdrawn: tuple[PodInfo, ...] = ()


class PreemptionExtenders(Protocol):
    """The profile's extenders, as far as they have a say in preemption."""

    async def leave(self, pod: PodInfo, found: Sequence[PreemptionCandidate]) -> Sequence[PreemptionCandidate]:
        """Ask which candidates they leave, perhaps with other victims.

        Raises:
            ExtenderError: One that may not be ignored failed, or left a node without victims.
        """


class PostFilterPlugin(Plugin):
    """Called when no node fits; may make room and nominate a node."""

    @abstractmethod
    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Try to help: Success if room is being made, Unschedulable if not."""

    async def post_filter_with(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, extenders: PreemptionExtenders
    ) -> PostFilterResult:
        """The same in a profile with extenders; by default they are not asked. Nothing runs while it waits for them."""
        del extenders
        return self.post_filter(state, pod, self.handle.nodes, diagnosis)

    def preview(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterPreview | None:
        """What :meth:`post_filter` would do, changing nothing; None (the default) leaves that open."""
        del state, pod, nodes, diagnosis
        return None


class PreScorePlugin(Plugin):
    """Looks at the feasible nodes once; Skip leaves out the plugin's Score for this pod."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Prepare or skip; ``rows`` are the feasible ones."""


class ScorePlugin(Plugin):
    """Ranks feasible nodes, all at once."""

    normalization: ClassVar[Normalization] = Normalization.NONE

    @abstractmethod
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Raw scores, int64 per row; higher is better after normalisation."""

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        """Score one row: what :meth:`score` answers about it, which a plugin may know a quicker way to tell."""
        return int(self.score(state, pod, nodes, np.array([row], dtype=np.intp))[0])

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        """Map raw scores of all feasible rows to 0..100; only called with Normalization.OWN."""
        del state, pod
        return raw


class NodeScorePlugin(Plugin):
    """Ranks feasible nodes, one at a time."""

    normalization: ClassVar[Normalization] = Normalization.NONE

    @abstractmethod
    def score_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        """The raw score of one node."""

    def normalize(self, state: CycleState, pod: PodInfo, raw: Mapping[str, int]) -> Mapping[str, int]:
        """Map raw scores by node name to 0..100; only called with Normalization.OWN."""
        del state, pod
        return raw


class ReservePlugin(Plugin):
    """Holds what the pod needs on its node between the decision and the binding."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Hold it; anything but Success ends the attempt and unreserves all."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Give it back; called in reverse order, also where ``reserve`` was not reached or failed. Must not fail."""


@dataclass(frozen=True, slots=True)
class PermitResult:
    """What Permit answers; with Wait, for how many seconds at most."""

    status: Status = SUCCESS
    timeout_seconds: float = 0.0


class PermitPlugin(Plugin):
    """Allows, refuses or delays binding."""

    @abstractmethod
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Decide."""


class PreBindPlugin(Plugin):
    """Prepares what the pod needs to be bound; may await."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Whether ``pre_bind`` has anything to do: Success, or Skip. Must be quick and change nothing."""
        del state, pod, node_name
        return SUCCESS

    @abstractmethod
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Prepare; anything but Success ends the attempt."""


class BindPlugin(Plugin):
    """Binds the pod."""

    @abstractmethod
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Bind; Skip leaves it to the next plugin."""


class PostBindPlugin(Plugin):
    """Told after a pod was bound."""

    @abstractmethod
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Clean up; cannot change anything any more."""


POINT_CLASSES: Mapping[str, tuple[type[Plugin], ...]] = {
    "preEnqueue": (PreEnqueuePlugin,),
    "queueSort": (QueueSortPlugin,),
    "preFilter": (PreFilterPlugin,),
    "filter": (FilterPlugin, NodeFilterPlugin),
    "postFilter": (PostFilterPlugin,),
    "preScore": (PreScorePlugin,),
    "score": (ScorePlugin, NodeScorePlugin),
    "reserve": (ReservePlugin,),
    "permit": (PermitPlugin,),
    "preBind": (PreBindPlugin,),
    "bind": (BindPlugin,),
    "postBind": (PostBindPlugin,),
}
"""The configuration's name of each point and the classes that serve it, in the order of a pod's life."""


def serves(plugin: type[Plugin], point: str) -> bool:
    """Whether a plugin class serves an extension point."""
    return issubclass(plugin, POINT_CLASSES[point])
