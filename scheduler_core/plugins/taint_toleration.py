"""TaintToleration: filters and scores nodes by taints that the pod does not tolerate.

For each list of tolerations there are two tables by distinct taint list: whether it rejects the pod, and how many
PreferNoSchedule taints are not tolerated. A cluster of thousands of nodes has few distinct taint lists, so filtering is
one lookup per row, and tolerations are compared with taints once per taint list.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go``. PreScore only
finds the table early; Score works without it, where kube-scheduler fails the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    CONTINUE,
    Codes,
    FilterPlugin,
    Normalization,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Reads,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import SUCCESS, Status, unresolvable
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    Taint,
    Toleration,
    TolerationIndex,
)
from scheduler_core.snapshot.interning import DEFAULT_BOUNDS, BoundedTables, LoggedInterner, SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo, tolerations_of
from scheduler_core.step_counter import StepCounter

_Number = TypeVar("_Number", bound=np.generic)
_TOLERATIONS_OF_STEP = 25
_TAINTS_OF_STEP = 8
_TAINTS_AT_ONCE = 400

TaintLists = LoggedInterner[tuple[Taint, ...]]


class TolerationTable:
    """Effect of each distinct taint list on pods with one list of tolerations.

    Attributes:
        codes: int16 by taint list, 1 if a NoSchedule or NoExecute taint is not tolerated.
        counts: int64 by taint list, the number of PreferNoSchedule taints that are not tolerated.
        position: Position in the log of new taint lists up to which the table is current.
    """

    __slots__ = ("_tolerations", "codes", "counts", "counts_any", "position", "rejects")

    def __init__(self, tolerations: Sequence[Toleration]) -> None:
        self._tolerations = TolerationIndex(tolerations)
        self.codes: Codes = np.zeros(0, dtype=np.int16)
        self.counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.rejects = False
        self.counts_any = False
        self.position = 0

    def refresh(self, taint_lists: TaintLists, steps: StepCounter) -> None:
        """Compare the tolerations with the taint lists that were added since the last call."""
        position = taint_lists.assigned.position
        numbers = taint_lists.assigned.since(self.position)
        self.codes, self.counts = _resized(self.codes, len(taint_lists)), _resized(self.counts, len(taint_lists))
        compared = 0
        for number in range(len(taint_lists)) if numbers is None else set(numbers):
            taints = taint_lists.keys[number] or ()
            compared += 1 + len(taints)
            if compared >= _TAINTS_AT_ONCE:
                steps.spend_stored(compared // _TAINTS_OF_STEP)
                compared = 0
            untolerated = [taint.effect for taint in taints if not self._tolerations.tolerates(taint)]
            self.codes[number] = any(effect in (NO_SCHEDULE, NO_EXECUTE) for effect in untolerated)
            self.counts[number] = untolerated.count(PREFER_NO_SCHEDULE)
        self.rejects = bool(self.codes.any())
        self.counts_any = bool(self.counts.any())
        # Last, so that a refresh that raised is repeated.
        self.position = position


class TolerationTables:
    """Cache of tables by tolerations, for the columns of the last call."""

    __slots__ = ("_steps", "_tables", "_taint_lists")

    def __init__(self, bounds: SnapshotBounds = DEFAULT_BOUNDS, steps: StepCounter | None = None) -> None:
        self._steps = StepCounter() if steps is None else steps
        self._taint_lists: TaintLists | None = None
        self._tables: BoundedTables[tuple[Toleration, ...], TolerationTable] = BoundedTables(
            bounds.toleration_tables, bounds.table_items
        )

    def table(self, tolerations: tuple[Toleration, ...], taint_lists: TaintLists) -> TolerationTable:
        """Return the table of ``tolerations``, current for all of ``taint_lists``."""
        if taint_lists is not self._taint_lists:
            self._tables.clear()
            self._taint_lists = taint_lists
        table, is_dry = self._tables.get(tolerations), self._steps.is_dry
        if table is None or (is_dry and table.position != taint_lists.assigned.position):
            self._steps.spend_stored(1 + len(tolerations) // _TOLERATIONS_OF_STEP)
            table = TolerationTable(tolerations)
            if not is_dry:
                # A dry run must not change what a live attempt is charged for.
                self._tables.store(tolerations, len(tolerations), table)
        if table.position != taint_lists.assigned.position:
            table.refresh(taint_lists, self._steps)
        return table


_TABLE: StateKey[TolerationTable] = StateKey("TaintToleration/table")


def after_node_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the node rejected the pod before and no longer does."""
    if not isinstance(new, Node) or not isinstance(old, Node | None):
        return Hint.QUEUE
    tolerations = tolerations_of(pod)
    was_rejected = old is None or has_untolerated_taint(old.spec.taints, tolerations)
    return Hint.QUEUE if was_rejected and not has_untolerated_taint(new.spec.taints, tolerations) else Hint.SKIP


def after_toleration_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the update is of this pod."""
    if isinstance(new, Pod) and new.metadata.uid != pod.metadata.uid:
        return Hint.SKIP
    return Hint.QUEUE


class TaintToleration(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Rules out nodes with taints that the pod does not tolerate; PreferNoSchedule taints lower the score."""

    name = "TaintToleration"
    handles_resizes = False
    reasons = (unresolvable("node(s) had untolerated taint(s)"),)
    reuse = Reuse(filter=Reads.NODE, score=Reads.NODE, pod=PodReads.NOTHING)
    normalization = Normalization.REVERSE_MAX
    events = (
        EventRegistration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), after_node_change),
        EventRegistration(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION), after_toleration_change),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._tables = TolerationTables(handle.nodes.bounds, handle.nodes.steps)

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that holds while no new taint list occurs."""
        assigned, position = nodes.taint_sets.assigned, nodes.taint_sets.assigned.position
        return lambda: assigned.position == position

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Continue; the extension point is there so that a profile may name the plugin at it, as in kube-scheduler."""
        return CONTINUE

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows with an untolerated NoSchedule or NoExecute taint; None if no taint list has one."""
        table = self._tables.table(pod.pod.spec.tolerations, nodes.taint_sets)
        if not table.rejects:
            return None
        return table.codes.take(nodes.taint_set_ids[rows])

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Store the pod's table; never skips, because a pod without such taints scores 100 on all nodes."""
        state.write(_TABLE, self._tables.table(pod.pod.spec.tolerations, nodes.taint_sets))
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return the number of untolerated PreferNoSchedule taints, int64 per row; lower is better."""
        table = state.get(_TABLE) or self._tables.table(pod.pod.spec.tolerations, nodes.taint_sets)
        taint_lists = nodes.taint_set_ids[rows]
        if not table.counts_any:
            return np.zeros(len(taint_lists), dtype=np.int64)
        return table.counts.take(taint_lists)


def _resized(table: NDArray[_Number], length: int) -> NDArray[_Number]:
    grown = np.zeros(length, dtype=table.dtype)
    # There are fewer taint lists than before if the node columns were computed again.
    kept = min(len(table), length)
    grown[:kept] = table[:kept]
    return grown


def has_untolerated_taint(taints: Iterable[Taint], tolerations: TolerationIndex) -> bool:
    """Return whether a NoSchedule or NoExecute taint is not tolerated."""
    return any(taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerations.tolerates(taint) for taint in taints)
