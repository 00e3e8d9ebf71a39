"""Which node a pod gets: filter, score, choose.

Owns the search. It changes nothing that outlives it but where the next partial search begins. Follows kube-scheduler
v1.36.3 (``schedulePod``, ``findNodesThatFitPod``); on purpose different: every feasible node is scored unless a
percentage is set, and ties are settled by seeded bits over node names, so that the order in which nodes came does not
change a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.nominated import judge_with_nominated_pods
from scheduler_core.cycle.reservation import Reservation
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cycle_times import ENDS, Point
from scheduler_core.framework.diagnosis import Diagnosis, Verdicts
from scheduler_core.framework.extension_points import Scores
from scheduler_core.framework.status import Code, Status, unresolvable
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.gang_entries import GANG_SCHEDULING
from scheduler_core.runtime.extenders import EXTENDER
from scheduler_core.runtime.filtering import (
    NARROWED,
    decode_verdict,
    narrowed_status,
    run_filters,
    run_pre_filters,
)
from scheduler_core.runtime.scoring import ScoreTable, Scoring, run_pre_scores, run_scores
from scheduler_core.snapshot.node_columns import ALL_ROWS, Rows
from scheduler_core.snapshot.pod_info import NO_ROW

MIN_FEASIBLE_NODES = 100
_MIN_PERCENTAGE = 5
_PRE_FILTER, _FILTERED = ENDS[Point.PRE_FILTER], ENDS[Point.FILTER][Code.SUCCESS]
_PRE_SCORED, _SCORED = ENDS[Point.PRE_SCORE][Code.SUCCESS], ENDS[Point.SCORE][Code.SUCCESS]
_NO_ROWS: NDArray[np.intp] = np.empty(0, dtype=np.intp)
_FIRST_TOLD = NARROWED - 1
"""The verdict of the first status that extenders gave; further ones go down from here."""
_FREED_BY = "NodeResourcesFit"
"""Whose hints tell when a reservation leaves more room."""
_MIXER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class NoNodesError(SchedulerCoreError):
    """There are no nodes at all."""

    def __str__(self) -> str:
        """The reference's words."""
        return "no nodes available to schedule pods"


class Feasible(Struct):
    """Where a pod fits.

    Attributes:
        rows: intp[k], ascending; empty if nowhere.
        diagnosis: Why not elsewhere.
        nominated_only: Whether only the pod's nominated node was looked at.
        node_names: The only nodes that PreFilter left; None for all.
    """

    rows: NDArray[np.intp]
    diagnosis: Diagnosis
    nominated_only: bool = False
    node_names: frozenset[str] | None = None


def find_feasible(context: CycleContext, attempt: Attempt, *, everywhere: bool = False) -> Feasible:
    """Run PreFilter and Filter; extenders are not asked.

    Args:
        context: The shared parts.
        attempt: The pod, its profile and its cycle state.
        everywhere: Whether all nodes are looked at whatever percentage is set, as an explanation wants it; where the
            next partial search begins then stays as it is.

    Raises:
        NoNodesError: There are no nodes.
        PluginError: A plugin raised, or answered what its point does not allow.
    """
    search = Search(context, attempt)
    if search.is_rejected:
        return search.ended(_NO_ROWS)
    nominated = search.nominated()
    if len(nominated):
        return search.ended(nominated, nominated_only=True)
    return search.ended(search.rows(everywhere=everywhere))


class Search:
    """One pod's way to its feasible nodes, step by step, so that extenders can be asked between the steps.

    Attributes:
        diagnosis: Why not elsewhere; whole when the search has :meth:`ended`.
        is_rejected: Whether PreFilter rejected the pod as a whole, so that no node is to be looked at.
    """

    def __init__(self, context: CycleContext, attempt: Attempt) -> None:
        """Run PreFilter.

        Raises:
            NoNodesError: There are no nodes.
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        nodes, state, info = context.cache.columns, attempt.state, attempt.info
        if nodes.count == 0:
            raise NoNodesError
        self._context, self._attempt = context, attempt
        self._pre_filter = outcome = run_pre_filters(attempt.instance, state, info, nodes)
        state.times.end(_PRE_FILTER[outcome.status.code])
        self._narrowed = narrowed_status(outcome.narrowing)
        self._told: list[Status] = []
        self._own_row, self._own_verdict = NO_ROW, 0
        self._promised: dict[int, int] = {}
        self._reserved: dict[GroupKey, Reservation] = {}
        self.diagnosis = Diagnosis(nodes.count, np.zeros(nodes.size, dtype=np.int32), nodes.alive, self._decode)
        self.diagnosis.rejected_by.update(outcome.narrowing)
        self.is_rejected = not outcome.status.is_success
        if self.is_rejected:
            self.diagnosis.pre_filter = outcome.status
            _note_rejection(self.diagnosis, outcome.status)
        else:
            self._promised = judge_with_nominated_pods(
                attempt.instance, state, info, nodes, context.queue.nominator, find_placed=context.cache.get
            )

    def _decode(self, verdict: int) -> Status:
        if verdict == NARROWED:
            return self._narrowed
        if verdict <= _FIRST_TOLD:
            return self._told[_FIRST_TOLD - verdict]
        return decode_verdict(self._attempt.instance, self._attempt.state, self._attempt.info, verdict)

    def _judge(self, rows: Rows) -> Verdicts:
        attempt, nodes = self._attempt, self._context.cache.columns
        return _merge(run_filters(attempt.instance, attempt.state, attempt.info, nodes, rows), rows, self._promised)

    def _withhold(self, rows: Rows) -> None:
        """Let nodes that are reserved for a gang stand as beyond preemption's help, where the pod would take its room.

        A node that is beyond help anyway keeps its own reason.
        """
        if not self._context.reservations:
            return
        verdicts = self.diagnosis.verdicts
        asked = None if isinstance(rows, slice) else rows
        attempt = self._attempt
        for reservation, refused in self._context.reservations.kept_from(attempt.queued.group, attempt.info):
            kept = refused if asked is None else np.intersect1d(refused, asked)
            told = self._verdict(unresolvable(f"node(s) were reserved for gang {reservation.key}").of(GANG_SCHEDULING))
            for verdict in np.unique(verdicts[kept]).tolist():
                if not verdict or self._decode(verdict).code is Code.UNSCHEDULABLE:
                    verdicts[kept[verdicts[kept] == verdict]] = told
                    self._reserved[reservation.key] = reservation

    def nominated(self) -> NDArray[np.intp]:
        """The row of the pod's nominated node, if it has one that fits; else no row.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        name = self._attempt.info.pod.status.nominated_node_name
        self._own_row = self._context.cache.columns.row_of(name) if name else NO_ROW
        if self._own_row == NO_ROW:
            return _NO_ROWS
        among = self._attempt.among
        if among is not None and not among[self._own_row]:
            return _NO_ROWS
        own = np.array([self._own_row], dtype=np.intp)
        self.diagnosis.verdicts[own] = self._judge(own)
        self._withhold(own)
        self._own_verdict = int(self.diagnosis.verdicts[self._own_row])
        self._attempt.state.times.end(_FILTERED)
        return _NO_ROWS if self._own_verdict else own

    def rows(self, *, everywhere: bool = False) -> NDArray[np.intp]:
        """Rows of nodes that fit, ascending; with ``everywhere``, whatever percentage is set.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        nodes, diagnosis, names = self._context.cache.columns, self.diagnosis, self._pre_filter.node_names
        rows: Rows = ALL_ROWS
        if names is not None:
            named = sorted(row for name in names if (row := nodes.row_of(name)) != NO_ROW)
            rows = np.array(named, dtype=np.intp)
            diagnosis.verdicts[:] = NARROWED
        among = self._attempt.among
        if among is not None:
            rows = np.flatnonzero(among & nodes.alive) if isinstance(rows, slice) else rows[among[rows]]
            diagnosis.verdicts[~among] = self._verdict(unresolvable(self._attempt.among_reason).of(GANG_SCHEDULING))
        diagnosis.verdicts[rows] = self._judge(rows)
        self._withhold(rows)
        candidates = nodes.count if isinstance(rows, slice) else len(rows)
        limit = None if everywhere else _limit(self._context, self._attempt, candidates)
        if limit is not None:
            fitting = _first_in_order(self._context, diagnosis, rows, limit)
        else:
            fitting = np.flatnonzero((diagnosis.verdicts == 0) & nodes.alive)
        self._attempt.state.times.end(_FILTERED)
        return fitting

    def ended(self, rows: NDArray[np.intp], *, nominated_only: bool = False) -> Feasible:
        """What was found, with a whole diagnosis if it is nothing."""
        diagnosis, narrowing = self.diagnosis, self._pre_filter.narrowing
        self._attempt.feasible_count = len(rows)
        if not len(rows) and not self.is_rejected:
            if self._own_verdict and self._pre_filter.node_names is not None:
                # The nominated node was looked at first: it keeps its own reason, and the plugin that rejected it is
                # named beside those that narrowed the search, as the reference's diagnosis has it.
                diagnosis.verdicts[self._own_row] = self._own_verdict
                own = self._decode(self._own_verdict)
                self._narrowed = narrowed_status(tuple({*narrowing, own.plugin}))
            for status, _ in diagnosis.counted():
                _note_rejection(diagnosis, status)
            self._note_reserved()
        return Feasible(rows, diagnosis, nominated_only, self._pre_filter.node_names)

    def _note_reserved(self) -> None:
        """Have the pod tried again when a reservation that kept it off ends, or leaves it more room."""
        if self._reserved:
            self._context.reservations.turned_away(self._attempt.info.uid, self._reserved.values())
            self.diagnosis.rejected_by.add(_FREED_BY)

    def turned_away(self, rejections: Mapping[str, Status]) -> Feasible:
        """What was found when extenders have left none of the nodes that fit.

        A node that nobody said anything of, not looked at or left out without a word, is beyond preemption's help.

        Args:
            rejections: What extenders said, by node name, also of nodes that they were not asked about.
        """
        found, nodes, diagnosis = self.ended(_NO_ROWS), self._context.cache.columns, self.diagnosis
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
        """A verdict below those of plugins that stands for a status."""
        if status not in self._told:
            self._told.append(status)
        return _FIRST_TOLD - self._told.index(status)


def _note_rejection(diagnosis: Diagnosis, status: Status) -> None:
    if status.plugin:
        diagnosis.rejected_by.add(status.plugin)
        if status.code_name == "Pending":
            diagnosis.pending_on.add(status.plugin)


def _merge(verdicts: Verdicts, rows: Rows, promised: dict[int, int]) -> Verdicts:
    """Let the verdict with nominated pods stand where it is a rejection."""
    if not promised:
        return verdicts
    if isinstance(rows, slice):
        for row, verdict in promised.items():
            if verdict:
                verdicts[row] = verdict
        return verdicts
    for position, row in enumerate(rows.tolist()):
        if promised.get(row):
            verdicts[position] = promised[row]
    return verdicts


def _limit(context: CycleContext, attempt: Attempt, candidates: int) -> int | None:
    """After how many feasible nodes the search ends; None if it does not."""
    percentage = context.percentage_of(attempt.instance)
    if percentage >= 100:
        return None
    if not attempt.instance.scores and not attempt.instance.extenders_judge_nodes:
        return 1
    if candidates < MIN_FEASIBLE_NODES:
        return None
    if percentage == 0:
        percentage = max(_MIN_PERCENTAGE, 50 - candidates // 125)
    return max(MIN_FEASIBLE_NODES, candidates * percentage // 100)


def _first_in_order(context: CycleContext, diagnosis: Diagnosis, rows: Rows, limit: int) -> NDArray[np.intp]:
    """The first ``limit`` feasible rows from where the last search ended; the rest counts as not looked at."""
    order = context.node_order.rows() if isinstance(rows, slice) else rows
    if not len(order):
        return order
    start = context.next_start
    first = start % len(order)
    order = np.concatenate((order[first:], order[:first]))
    fits = diagnosis.verdicts[order] == 0
    enough = np.flatnonzero(np.cumsum(fits) == limit)
    looked_at = len(order) if not len(enough) else int(enough[0]) + 1
    context.next_start = (start + looked_at) % max(1, context.cache.columns.count)
    evaluated = np.zeros(len(diagnosis.verdicts), dtype=np.bool_)
    evaluated[order[:looked_at]] = True
    diagnosis.evaluated = evaluated | (diagnosis.verdicts == NARROWED) & context.cache.columns.alive
    return np.sort(order[:looked_at][fits[:looked_at]])


def score_feasible(
    context: CycleContext, attempt: Attempt, rows: NDArray[np.intp], *, keep_parts: bool = False
) -> ScoreTable:
    """Run PreScore and Score on the feasible rows.

    Raises:
        PluginError: A plugin raised, or answered what its point does not allow.
    """
    nodes, times = context.cache.columns, attempt.state.times
    asked: Rows = ALL_ROWS if len(rows) == nodes.size else rows
    scoring = Scoring(attempt.state, attempt.info, nodes, asked)
    run_pre_scores(attempt.instance, scoring)
    times.end(_PRE_SCORED)
    table = run_scores(attempt.instance, scoring, keep_parts=keep_parts)
    times.end(_SCORED)
    return table


def select_node(context: CycleContext, attempt: Attempt, feasible: Feasible) -> str:
    """Choose among feasible nodes, of which there is at least one.

    Raises:
        PluginError: A plugin raised, or answered what its point does not allow.
    """
    rows = feasible.rows
    row = int(rows[0])
    if len(rows) > 1:
        row = best_row(context, attempt, rows, score_feasible(context, attempt, rows).totals)
    return context.cache.columns.node_name(row)


def best_row(context: CycleContext, attempt: Attempt, rows: NDArray[np.intp], totals: Scores) -> int:
    """The row of the highest total, int64 per row; ties are settled by the seed."""
    return row_of_ties(context, attempt, rows[np.flatnonzero(totals == totals.max())])


def row_of_ties(context: CycleContext, attempt: Attempt, tied: NDArray[np.intp]) -> int:
    """One of some rows, of which there is at least one, by the seed, the pod and the names of the nodes."""
    if len(tied) == 1:
        return int(tied[0])
    number = attempt.queued.attempts if attempt.number is None else attempt.number
    text = f"{context.seed}/{attempt.info.key}/{number}"
    bits = np.uint64(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little"))
    mixed = (context.cache.columns.name_hashes[tied] ^ bits) * _MIXER
    mixed ^= mixed >> _SHIFT
    mixed *= _MIXER
    return int(tied[int(mixed.argmax())])
