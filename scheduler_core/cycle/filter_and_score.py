"""Node selection for one pod: filter, score, and choose the best node.

A search changes nothing but the position of the next partial search; its caller reports the result of a live attempt.
Follows kube-scheduler v1.37.1 (``schedulePod``, ``findNodesThatFitPod``) with two differences: every feasible node is
scored unless a percentage is set, and ties are resolved by a seeded hash of node names, so that decisions do not depend
on the order in which nodes were added.

With a percentage, the next search starts where the last one ended. Nodes are grouped by region and zone in the order of
their creation, and the groups are visited in turns (``numFeasibleNodesToFind``, ``nextStartNodeIndex``,
``backend/cache/node_tree.go``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.contested_nodes import ContestedNodes
from scheduler_core.cycle.gang_constraints import NodeReservations
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.diagnosis import EXTENDER, Diagnosis, Verdicts
from scheduler_core.framework.extension_points import Scores
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.status import GANG_SCHEDULING, Code, Status, unresolvable
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.runtime.filtering import (
    NARROWED,
    decode_verdict,
    filter_with_nominated_pods,
    narrowed_status,
    run_filters,
    run_pre_filters,
)
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.scoring import ScoreTable, Scoring, run_pre_scores, run_scores
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import NO_ROW

_PRE_FILTER, _FILTER = CycleStage.PRE_FILTER, CycleStage.FILTER
_PRE_SCORE, _SCORE = CycleStage.PRE_SCORE, CycleStage.SCORE
_NO_ROWS: NDArray[np.intp] = np.empty(0, dtype=np.intp)
_FIRST_OWN_VERDICT = NARROWED - 1
"""Verdict of the first status that no plugin returned, such as an extender's; further ones are lower."""
_MIXER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class NoNodesError(SchedulerCoreError):
    def __str__(self) -> str:
        return "no nodes available to schedule pods"


class Feasible(Struct):
    """Feasible nodes of a pod.

    Attributes:
        rows: intp[k], ascending; empty for none.
        nominated_only: Whether only nodes that are tried first were evaluated.
        node_names: The only nodes that PreFilter allows; None for all.
    """

    rows: NDArray[np.intp]
    diagnosis: Diagnosis
    nominated_only: bool = False
    node_names: frozenset[str] | None = None


@dataclass(slots=True, eq=False)
class NodeSelection:
    """Searches the feasible nodes of a pod, and selects the best of them.

    Its methods raise NoNodesError if the cluster has no nodes, and PluginError if a plugin raised, or returned what its
    point does not allow; so does the constructor of :class:`FilterRun`.
    """

    cache: ClusterCache
    nominator: NominatedPods
    reservations: NodeReservations
    partial: PartialSearch
    contested: ContestedNodes
    seed: int
    nodes: NodeColumns = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = self.cache.columns

    def find_feasible(self, attempt: Attempt, *, everywhere: bool = False) -> Feasible:
        """Run PreFilter and Filter, without extenders.

        Args:
            everywhere: Whether to evaluate all nodes whatever percentage is set, as explanations need it; the position
                of the next partial search does not change then.
        """
        search = FilterRun(attempt, self)
        if search.is_rejected:
            return search.ended(_NO_ROWS)
        # The room on the nominated node was freed for this pod, so it is taken even if another node scores better.
        first = search.first_tried()
        if len(first):
            return search.ended(first, nominated_only=True)
        return search.ended(search.rows(everywhere=everywhere))

    def find_all(self, attempt: Attempt) -> Feasible:
        """Return all feasible nodes, whatever node is nominated; the diagnosis of the others is complete."""
        search = FilterRun(attempt, self)
        rows = _NO_ROWS if search.is_rejected else search.rows(everywhere=True)
        return Feasible(rows, search.ended(_NO_ROWS).diagnosis)

    def select(self, attempt: Attempt, feasible: Feasible) -> str:
        """Return the best of the feasible nodes; there must be at least one."""
        rows = feasible.rows
        row = int(rows[0])
        if len(rows) > 1:
            row = self.best_row(attempt, rows, score_feasible(self.nodes, attempt, rows).totals)
        return self.nodes.node_name(row)

    def best_row(self, attempt: Attempt, rows: NDArray[np.intp], totals: Scores) -> int:
        """Return the row with the highest total, int64 per row; ties are resolved by the seed."""
        return self.row_of_ties(attempt, self.best_rows(rows, totals))

    def best_rows(self, rows: NDArray[np.intp], totals: Scores) -> NDArray[np.intp]:
        """Return the rows with the highest total, int64 per row; contested nodes only if no other row is left."""
        if self.contested.avoided:
            # Room that the kubelet frees on a contested node, by rejecting a pod, is taken by the rival as well.
            others = self.contested.others(rows)
            if others.any():
                rows, totals = rows[others], totals[others]
        return rows[np.flatnonzero(totals == totals.max())]

    def row_of_ties(self, attempt: Attempt, tied: NDArray[np.intp]) -> int:
        """Return one of at least one tied rows, by the seed, the pod and the names of the nodes."""
        if len(tied) == 1:
            return int(tied[0])
        number = attempt.queued.attempts if attempt.number is None else attempt.number
        text = f"{self.seed}/{attempt.info.key}/{number}"
        bits = np.uint64(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little"))
        # Names, and not rows: the order in which nodes were added must not change decisions.
        mixed = (self.nodes.name_hashes[tied] ^ bits) * _MIXER
        mixed ^= mixed >> _SHIFT
        mixed *= _MIXER
        return int(tied[int(mixed.argmax())])


class FilterRun:
    """Search for the feasible nodes of one pod in steps, so that extenders can be called between them.

    Attributes:
        diagnosis: Why nodes are infeasible; complete after :meth:`ended`.
        is_rejected: Whether PreFilter rejected the pod, so that no node must be evaluated.
    """

    def __init__(self, attempt: Attempt, selection: NodeSelection) -> None:
        """Run PreFilter."""
        nodes, state, info = selection.nodes, attempt.state, attempt.info
        if nodes.count == 0:
            raise NoNodesError
        self._attempt, self._selection, self._nodes = attempt, selection, nodes
        self._reservations = selection.reservations
        state.recorder.enter(_PRE_FILTER)
        self._pre_filter = outcome = run_pre_filters(attempt.instance, state, info, nodes)
        state.recorder.leave(_PRE_FILTER, outcome.status.code)
        self._narrowed: Status | None = None
        self._own_verdicts: dict[Status, int] = {}
        self._own_statuses: list[Status] = []
        self._nominated_node, self._nominated_verdict = NO_ROW, 0
        self._nominated: dict[int, int] | None = None
        self._reserved_for: set[GroupKey] = set()
        self.diagnosis = Diagnosis(nodes.count, np.zeros(nodes.size, dtype=np.int32), nodes.alive, self._decode)
        self.diagnosis.rejected_by.update(outcome.narrowing)
        self.is_rejected = not outcome.status.is_success
        if self.is_rejected:
            self.diagnosis.pre_filter = outcome.status
            _note_rejection(self.diagnosis, outcome.status)

    def _decode(self, verdict: int) -> Status:
        if verdict == NARROWED:
            if self._narrowed is None:
                self._narrowed = narrowed_status(self._pre_filter.narrowing)
            return self._narrowed
        if verdict <= _FIRST_OWN_VERDICT:
            return self._own_statuses[_FIRST_OWN_VERDICT - verdict]
        attempt = self._attempt
        return decode_verdict(attempt.instance, attempt.state, attempt.info, self._nodes, verdict)

    def _filter(self, rows: Rows) -> Verdicts:
        attempt, nodes, nominator = self._attempt, self._nodes, self._selection.nominator
        nominated = self._nominated
        if nominated is None and not nominator.node_by_uid:
            nominated = self._nominated = {}
        elif nominated is None:
            # A nominated node is filtered first, and mostly alone.
            among = None if isinstance(rows, slice) or len(rows) > 1 else frozenset(rows.tolist())
            nominated = filter_with_nominated_pods(
                attempt.instance,
                attempt.state,
                attempt.info,
                nodes,
                nominator,
                among=among,
                find_cached=self._selection.cache.get,
            )
            if among is None:
                self._nominated = nominated
        return _merge(run_filters(attempt.instance, attempt.state, attempt.info, nodes, rows), rows, nominated)

    def _reject_reserved(self, rows: Rows) -> None:
        """Reject nodes reserved for a gang, as unresolvable, if the pod would use the gang's room there."""
        if not self._reservations.by_gang:
            return
        verdicts = self.diagnosis.verdicts
        requested = None if isinstance(rows, slice) else rows
        attempt = self._attempt
        for gang, refused in self._reservations.blocking(attempt.queued.group, attempt.info):
            blocked = refused if requested is None else np.intersect1d(refused, requested)
            reserved_verdict = self._verdict(
                unresolvable(f"node(s) were reserved for {gang.holder_for(attempt.queued.group)}").of(GANG_SCHEDULING)
            )
            # A node that is unresolvable already keeps its own reason.
            for verdict in set(verdicts[blocked].tolist()):
                if not verdict or self._decode(verdict).code is Code.UNSCHEDULABLE:
                    verdicts[blocked[verdicts[blocked] == verdict]] = reserved_verdict
                    self._reserved_for.add(gang)

    def first_tried(self) -> NDArray[np.intp]:
        """Return the feasible rows among those that are tried first: the nominated node, then those of held room."""
        nominated = self._attempt.info.pod.status.nominated_node_name
        if nominated and len(rows := self._nominated_row(nominated)):
            return rows
        if not self._reservations.by_gang:
            return _NO_ROWS
        rows, among = self._reservations.preferred_rows(self._attempt.info), self._attempt.among
        if among is not None:
            rows = rows[among[rows]]
        names = self._pre_filter.node_names
        if names is not None:
            rows = np.array([row for row in rows.tolist() if self._nodes.names[row] in names], dtype=np.intp)
        return self._filtered(rows) if len(rows) else rows

    def _nominated_row(self, name: str) -> NDArray[np.intp]:
        self._nominated_node = self._nodes.row_of(name)
        if self._nominated_node == NO_ROW:
            return _NO_ROWS
        among = self._attempt.among
        if among is not None and not among[self._nominated_node]:
            return _NO_ROWS
        found = self._filtered(np.array([self._nominated_node], dtype=np.intp))
        self._nominated_verdict = int(self.diagnosis.verdicts[self._nominated_node])
        return found

    def _filtered(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        recorder, verdicts = self._attempt.state.recorder, self.diagnosis.verdicts
        recorder.enter(_FILTER)
        verdicts[rows] = self._filter(rows)
        self._reject_reserved(rows)
        recorder.leave(_FILTER, Code.SUCCESS)
        return rows[np.flatnonzero(verdicts[rows] == 0)]

    def rows(self, *, everywhere: bool = False) -> NDArray[np.intp]:
        """Return the feasible rows, ascending; with ``everywhere``, whatever percentage is set."""
        nodes, diagnosis, names = self._nodes, self.diagnosis, self._pre_filter.node_names
        rows: Rows = ALL_ROWS
        if names is not None:
            named = sorted(row for name in names if (row := nodes.row_of(name)) != NO_ROW)
            rows = np.array(named, dtype=np.intp)
            diagnosis.verdicts[:] = NARROWED
        among = self._attempt.among
        if among is not None:
            rows = np.flatnonzero(among & nodes.alive) if isinstance(rows, slice) else rows[among[rows]]
            diagnosis.verdicts[~among] = self._verdict(unresolvable(self._attempt.among_reason).of(GANG_SCHEDULING))
        recorder = self._attempt.state.recorder
        recorder.enter(_FILTER)
        diagnosis.verdicts[rows] = self._filter(rows)
        self._reject_reserved(rows)
        candidates = nodes.count if isinstance(rows, slice) else len(rows)
        partial = self._selection.partial
        limit = None if everywhere else partial.limit(self._attempt.instance, candidates)
        if limit is not None:
            fitting = partial.first_feasible(diagnosis, rows, limit)
        else:
            fitting = np.flatnonzero((diagnosis.verdicts == 0) & nodes.alive)
        recorder.leave(_FILTER, Code.SUCCESS)
        return fitting

    def ended(self, rows: NDArray[np.intp], *, nominated_only: bool = False) -> Feasible:
        """Return the result; its diagnosis is complete if no row is feasible."""
        diagnosis, narrowing = self.diagnosis, self._pre_filter.narrowing
        self._attempt.feasible_count = len(rows)
        if not len(rows) and not self.is_rejected:
            if self._nominated_verdict and self._pre_filter.node_names is not None:
                # The nominated node was evaluated first: it keeps its own reason, and the plugin that rejected it is
                # listed with those that narrowed the search, as in kube-scheduler's diagnosis.
                diagnosis.verdicts[self._nominated_node] = self._nominated_verdict
                own = self._decode(self._nominated_verdict)
                self._narrowed = narrowed_status(tuple({*narrowing, own.plugin}))
            for status, _ in diagnosis.counted():
                _note_rejection(diagnosis, status)
            if self._reserved_for:
                # Such a pod may fit when a reservation leaves it more room.
                diagnosis.reserved_for = frozenset(self._reserved_for)
                diagnosis.rejected_by |= self._attempt.instance.capacity_plugins
            if not self._nodes.held.is_empty:
                # A node that accepts pods again is reported as an added one.
                diagnosis.rejected_by |= self._attempt.instance.capacity_plugins
        return Feasible(rows, diagnosis, nominated_only, self._pre_filter.node_names)

    def rejected_by_extenders(self, rejections: Mapping[str, Status]) -> Feasible:
        """Return the result if extenders rejected all feasible nodes.

        Args:
            rejections: Statuses from extenders by node name, also of nodes that were not sent to them.
        """
        found, nodes, diagnosis = self.ended(_NO_ROWS), self._nodes, self.diagnosis
        # A node without a reason, not evaluated or dropped by an extender without one, counts as unresolvable.
        silent = nodes.alive & ((diagnosis.verdicts == 0) | ~diagnosis.evaluated)
        is_narrowed = self._pre_filter.node_names is not None
        diagnosis.verdicts[silent] = NARROWED if is_narrowed else self._verdict(unresolvable())
        diagnosis.evaluated = nodes.alive
        for name, status in rejections.items():
            row = nodes.row_of(name)
            if row != NO_ROW:
                diagnosis.verdicts[row] = self._verdict(status)
        diagnosis.rejected_by.add(EXTENDER)
        return found

    def _verdict(self, status: Status) -> int:
        """Return the verdict that stands for a status of no plugin."""
        verdict = self._own_verdicts.get(status)
        if verdict is None:
            verdict = self._own_verdicts[status] = _FIRST_OWN_VERDICT - len(self._own_statuses)
            self._own_statuses.append(status)
        return verdict


def _note_rejection(diagnosis: Diagnosis, status: Status) -> None:
    if status.plugin:
        diagnosis.rejected_by.add(status.plugin)
        if status.code_name == "Pending":
            diagnosis.pending_on.add(status.plugin)


def _merge(verdicts: Verdicts, rows: Rows, nominated: dict[int, int]) -> Verdicts:
    """Use the verdict with nominated pods where it is a rejection."""
    if not nominated:
        return verdicts
    if isinstance(rows, slice):
        for row, verdict in nominated.items():
            if verdict:
                verdicts[row] = verdict
        return verdicts
    for position, row in enumerate(rows.tolist()):
        if nominated.get(row):
            verdicts[position] = nominated[row]
    return verdicts


def score_feasible(
    nodes: NodeColumns, attempt: Attempt, rows: NDArray[np.intp], *, keep_parts: bool = False
) -> ScoreTable:
    """Run PreScore and Score on the feasible rows; raises what :class:`NodeSelection` raises."""
    recorder = attempt.state.recorder
    requested: Rows = ALL_ROWS if len(rows) == nodes.size else rows
    scoring = Scoring(attempt.state, attempt.info, nodes, requested)
    recorder.enter(_PRE_SCORE)
    run_pre_scores(attempt.instance, scoring)
    recorder.leave(_PRE_SCORE, Code.SUCCESS)
    recorder.enter(_SCORE)
    table = run_scores(attempt.instance, scoring, keep_parts=keep_parts)
    recorder.leave(_SCORE, Code.SUCCESS)
    return table


# -- a percentage of the nodes ----------------------------------------------------------------------------------------

MIN_FEASIBLE_NODES = 100
_MIN_PERCENTAGE = 5
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
_OLD_ZONE_LABEL = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION_LABEL = "failure-domain.beta.kubernetes.io/region"


@dataclass(slots=True, eq=False)
class NodeOrder:
    """Rows with alternating zones; recomputed after nodes changed.

    Attributes:
        next_start: Position at which the next search begins.
    """

    _nodes: NodeColumns
    next_start: int = 0
    _version: int = -1
    _rows: NDArray[np.intp] = field(default_factory=lambda: _NO_ROWS)

    def rows(self) -> NDArray[np.intp]:
        """Return the rows of all nodes, intp[count]."""
        if self._version != self._nodes.version:
            self._rows = self._interleave()
            self._version = self._nodes.version
        return self._rows

    def _interleave(self) -> NDArray[np.intp]:
        zones: dict[tuple[str, str], list[int]] = {}
        for row, node in enumerate(self._nodes.nodes):
            if node is None:
                continue
            labels = node.metadata.labels
            region = labels.get(REGION_LABEL) or labels.get(_OLD_REGION_LABEL, "")
            zone = labels.get(ZONE_LABEL) or labels.get(_OLD_ZONE_LABEL, "")
            zones.setdefault((region, zone), []).append(row)
        order: list[int] = []
        turn = 0
        waiting = list(zones.values())
        while waiting:
            order += [rows[turn] for rows in waiting]
            turn += 1
            waiting = [rows for rows in waiting if len(rows) > turn]
        return np.array(order, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class PartialSearch:
    """Limits of searches, and the position of the next one.

    Args:
        default_percentage: Percentage of profiles that set none; None evaluates all nodes.
    """

    nodes: NodeColumns
    order: NodeOrder
    default_percentage: int | None

    def percentage_of(self, instance: FrameworkInstance) -> int:
        """Return the percentage of nodes that a search must find feasible; 0 for kube-scheduler's adaptive formula."""
        for percentage in (instance.config.percentage_of_nodes_to_score, self.default_percentage):
            if percentage is not None:
                return percentage
        return 100

    def limit(self, instance: FrameworkInstance, candidates: int) -> int | None:
        """Return the number of feasible nodes after which a search ends; None to evaluate all nodes."""
        percentage = self.percentage_of(instance)
        if percentage >= 100:
            return None
        if not instance.scores and not instance.extenders_evaluate_nodes:
            return 1
        if candidates < MIN_FEASIBLE_NODES:
            return None
        if percentage == 0:
            percentage = max(_MIN_PERCENTAGE, 50 - candidates // 125)
        return max(MIN_FEASIBLE_NODES, candidates * percentage // 100)

    def first_feasible(self, diagnosis: Diagnosis, rows: Rows, limit: int) -> NDArray[np.intp]:
        """Return the first feasible rows from the end of the last search, intp[k] ascending; others are ignored."""
        nodes = self.nodes
        order = self.order.rows() if isinstance(rows, slice) else rows
        if not len(order):
            return order
        start = self.order.next_start
        first = start % len(order)
        order = np.concatenate((order[first:], order[:first]))
        fits = diagnosis.verdicts[order] == 0
        enough = np.flatnonzero(np.cumsum(fits) == limit)
        looked_at = len(order) if not len(enough) else int(enough[0]) + 1
        self.order.next_start = (start + looked_at) % max(1, nodes.count)
        # All rows were filtered at once, but kube-scheduler does not evaluate nodes after the last one that it needs.
        evaluated = np.zeros(len(diagnosis.verdicts), dtype=np.bool_)
        evaluated[order[:looked_at]] = True
        diagnosis.evaluated = evaluated | (diagnosis.verdicts == NARROWED) & nodes.alive
        return np.sort(order[:looked_at][fits[:looked_at]])
