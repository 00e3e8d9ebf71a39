"""The extension points: abstract classes that a plugin subclasses, one for each point that it implements.

Filter and Score receive all candidate rows in one call, which keeps a cycle in the microseconds. A plugin that prefers
one node at a time subclasses :class:`NodeFilterPlugin` or :class:`NodeScorePlugin`; the runtime adapts it.

Follows ``k8s.io/kube-scheduler`` v0.37.1, ``framework/interface.go``, but QueueSort returns a sort key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.plugin import Normalization, Plugin, PodReads, Reads, Reuse
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import RowSums

if TYPE_CHECKING:
    from scheduler_core.framework.diagnosis import Diagnosis

__all__ = [
    "CONTINUE", "MAX_NODE_SCORE", "BindPlugin", "Codes", "FilterPlugin", "NodeFilterPlugin", "NodeScorePlugin",
    "Normalization", "PermitPlugin", "PermitResult", "Plugin", "PodReads", "PostBindPlugin", "PostFilterPlugin",
    "PostFilterPreview", "PostFilterResult", "PreBindPlugin", "PreEnqueuePlugin", "PreFilterExtensions",
    "PreFilterPlugin", "PreFilterResult", "PreScorePlugin", "PreemptionCandidate", "PreemptionExtenders",
    "QueueSortPlugin", "Reads", "ReservePlugin", "Reuse", "ScorePlugin", "Scores", "Shortage", "SumsFilter",
]  # fmt: skip

Codes = NDArray[np.int16]
"""int16 per requested row: 0 passes, any other number is defined by the plugin and explained by its ``decode``."""
Scores = NDArray[np.int64]
"""int64 per requested row."""

MAX_NODE_SCORE = 100


class PreEnqueuePlugin(Plugin):
    """Decides whether a pod may enter the active queue; must be fast."""

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Return Success to admit the pod; any other status gates it until an event that the plugin registered."""

    def preview_gate(self, pod: PodInfo) -> Status:
        """Return what ``pre_enqueue`` would return, for a dry run; override it if ``pre_enqueue`` writes anything."""
        return self.pre_enqueue(pod)


class QueueSortPlugin(Plugin):
    """Orders the active queue; all profiles must use the same QueueSort plugin."""

    @abstractmethod
    def sort_key(self, pod: QueuedPod) -> Any:
        """Return a value that sorts lower the sooner the pod should be scheduled."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """Result of PreFilter: a status, and on Success the only nodes to consider, None for all."""

    status: Status = SUCCESS
    node_names: frozenset[str] | None = None


CONTINUE = PreFilterResult()  # Success, with all nodes to consider


class PreFilterPlugin(Plugin):
    """Runs once per pod before Filter; on Skip the plugin's Filter is not called for this pod."""

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Prepare data for Filter, reject the pod, restrict the nodes, or return Skip."""


class PreFilterExtensions(ABC):
    """Updates PreFilter's data while a dry run adds and removes pods; a mixin for a PreFilterPlugin."""

    @abstractmethod
    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """Update the data after ``added`` was added to ``row`` in a dry run for ``pod``."""

    @abstractmethod
    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, nodes: NodeColumns, row: int) -> Status:
        """Update the data after ``removed`` was removed from ``row`` in a dry run for ``pod``."""


class Shortage(Struct, frozen=True):
    """Insufficient amount of a resource on a node.

    Attributes:
        needed: What the pod needs; CPU in millicores, everything else in whole units.
        free: What is free, in the same unit; negative if the node is overcommitted.
    """

    resource: str
    needed: int
    free: int


class FilterPlugin(Plugin):
    """Rules out nodes, all in one call.

    Attributes:
        reasons: Statuses of the codes 1, 2, ...; override :meth:`decode` if a status depends on the pod.
        remaining_rows_only: Whether the filter is so expensive that it runs only on rows that no earlier one rejects.
    """

    reasons: ClassVar[Sequence[Status]] = ()
    remaining_rows_only: ClassVar[bool] = False

    @abstractmethod
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Filter rows.

        Args:
            rows: The rows to filter, some of which may have no node: their codes are ignored.

        Returns:
            int16 per row, 0 where the pod may run; None if it may run on every row.
        """

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        """Filter one row; must equal the result of :meth:`filter`. Override it if there is a faster way for one row."""
        codes = self.filter(state, pod, nodes, np.array([row], dtype=np.intp))
        return 0 if codes is None else int(codes[0])

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """Return the status for ``code``, which this plugin returned in the same attempt."""
        if not 0 < code <= len(self.reasons):
            raise PluginError(
                self.name, "filter", f"returned code {code}; its reasons have {len(self.reasons)} statuses"
            )
        return self.reasons[code - 1]

    def shortages(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> tuple[Shortage, ...]:
        """Return the insufficient resources of a rejected row; () (the default) if the reason is complete."""
        return ()

    def details(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> tuple[str, ...]:
        """Return what exactly a rejected row lacks, for explanations; () (the default) if the reason is complete."""
        return ()


class SumsFilter(ABC):
    """Filter that depends on the pods of a node only through their sums; a mixin for a FilterPlugin that reads PODS."""

    @abstractmethod
    def filter_sums(self, state: CycleState, pod: PodInfo, sums: RowSums) -> Codes | None:
        """Return what ``filter`` would return for rows with these sums: int16 each, None if all pass."""

    @property
    def exempts_resources(self) -> bool:
        """Whether its args exempt resources, so that a node may have too little of them."""
        return False

    def exempts(self, name: str) -> bool:
        """Return whether its args exempt a resource."""
        return False


class PortsFilter:
    """Filter that rejects nodes where a host port of the pod is in use; a mixin for a FilterPlugin."""


class NodeFilterPlugin(Plugin):
    """Rules out nodes, one per call."""

    @abstractmethod
    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        """Filter one node."""


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """Result of PostFilter; ``nominated_node`` "" clears the nomination, None leaves it unchanged."""

    status: Status
    nominated_node: str | None = None


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """Node where the pod would fit after the eviction of some pods.

    Attributes:
        victims: The pods to evict, most important first, including those that already terminate.
        pdb_violations: How many of the victims violate a PodDisruptionBudget.
    """

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class PostFilterPreview:
    """What PostFilter would do.

    Attributes:
        evicted, withdrawn: Pods that it would evict; pods whose nomination it would clear.
        released: Keys of the objects that it would release.
    """

    result: PostFilterResult
    candidates: tuple[PreemptionCandidate, ...] = ()
    evicted: tuple[PodInfo, ...] = ()
    withdrawn: tuple[PodInfo, ...] = ()
    released: tuple[str, ...] = ()


class PreemptionExtenders(Protocol):
    """The extenders of the profile that take part in preemption."""

    async def process_preemption(
        self, pod: PodInfo, found: Sequence[PreemptionCandidate]
    ) -> Sequence[PreemptionCandidate]:
        """Call the extenders and return the candidates that remain, possibly with other victims.

        Raises:
            ExtenderError: An extender that is not ignorable failed, or returned a node without victims.
        """


class PostFilterPlugin(Plugin):
    """Called when no node fits; may preempt pods and nominate a node."""

    @abstractmethod
    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Return Success if room is being made for the pod, Unschedulable if not."""

    async def post_filter_with(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, extenders: PreemptionExtenders
    ) -> PostFilterResult:
        """Run :meth:`post_filter` in a profile with extenders; the default ignores them. No other cycle runs now."""
        return self.post_filter(state, pod, self.handle.nodes, diagnosis)

    def preview(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterPreview | None:
        """Return what :meth:`post_filter` would do, without doing it; None (the default) if that is not known."""
        return None

    @contextmanager
    def previewed_after(self, count: int) -> Iterator[None]:
        """Make the previews of a block as if the plugin had run for *count* more pods before; for plugins that draw."""
        del count
        yield


class ReleasedClaim(Struct, frozen=True):
    """A claim whose devices are made available for a pod.

    Attributes:
        key: Namespace and name.
        is_deleted: Whether the claim is deleted, because an earlier attempt created it; else it is deallocated.
    """

    key: str
    uid: str
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class PostFilterAction:
    """What a PostFilter plugin is going to do; the default is nothing."""

    preemption: PreemptionCandidate | None = None
    released: ReleasedClaim | None = None


class PlannedPostFilter(PostFilterPlugin):
    """PostFilter plugin that plans first; a copy of the process, which must not change anything, only plans."""

    @abstractmethod
    def plan(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult, PostFilterAction]:
        """Return the result of :meth:`post_filter`, and what has to be done for it."""

    @abstractmethod
    def carry_out(self, pod: PodInfo, action: PostFilterAction) -> None:
        """Do what was planned; called after every plan, also if there is nothing to do."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Plan, and carry the plan out."""
        result, action = self.plan(state, pod, nodes, diagnosis)
        self.carry_out(pod, action)
        return result


class PreScorePlugin(Plugin):
    """Runs once per pod on the feasible nodes; on Skip the plugin's Score is not called for this pod."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Prepare data for Score or return Skip; ``rows`` are the feasible rows."""


class ScorePlugin(Plugin):
    """Scores feasible nodes, all in one call."""

    normalization: ClassVar[Normalization] = Normalization.NONE

    @abstractmethod
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return raw scores, int64 per row; higher is better after normalization."""

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        """Score one row; must equal the result of :meth:`score`. Override it if there is a faster way for one row."""
        return int(self.score(state, pod, nodes, np.array([row], dtype=np.intp))[0])

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        """Map the raw scores of all feasible rows to 0..100; called only with Normalization.OWN."""
        return raw


class NodeScorePlugin(Plugin):
    """Scores feasible nodes, one per call."""

    normalization: ClassVar[Normalization] = Normalization.NONE

    @abstractmethod
    def score_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        """Return the raw score of one node."""

    def normalize(self, state: CycleState, pod: PodInfo, raw: Mapping[str, int]) -> Mapping[str, int]:
        """Map raw scores by node name to 0..100; called only with Normalization.OWN."""
        return raw


class ReservePlugin(Plugin):
    """Reserves what the pod needs on its node between the decision and the binding."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Reserve; any status but Success ends the attempt and calls ``unreserve`` of all plugins."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo ``reserve``; called in reverse order, even if ``reserve`` failed or was not called. Must not fail.

        After an error of the scheduler it may be called twice.
        """


@dataclass(frozen=True, slots=True)
class PermitResult:
    """Result of Permit; with Wait, the longest wait in seconds."""

    status: Status = SUCCESS
    timeout_seconds: float = 0.0


class PermitPlugin(Plugin):
    """Approves, rejects or delays the binding.

    Attributes:
        gathers_gangs: Whether members of a gang wait for each other here. They are then attempted one by one, because a
            group cycle would wait for its own members.
    """

    gathers_gangs: ClassVar[bool] = False

    @abstractmethod
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Return whether the pod may be bound, or must wait first."""


class PreBindPlugin(Plugin):
    """Prepares what the pod needs before it is bound; may await."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Return Success if ``pre_bind`` has work to do, else Skip. Must be fast and change nothing."""
        return SUCCESS

    @abstractmethod
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Prepare; any status but Success ends the attempt."""


class BindPlugin(Plugin):
    """Binds pods."""

    @abstractmethod
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Bind the pod; on Skip the next Bind plugin is called."""


class PostBindPlugin(Plugin):
    """Called after a pod was bound."""

    @abstractmethod
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Clean up; the result of the attempt is final."""


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
"""Extension points by their name in the configuration, with the classes that implement them, in execution order."""


def serves(plugin: type[Plugin], point: str) -> bool:
    """Return whether a plugin class implements an extension point."""
    return issubclass(plugin, POINT_CLASSES[point])
