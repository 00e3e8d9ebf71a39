"""Which node a pod gets: filter, score, choose.

Owns the search. It changes nothing that outlives it but where the next partial search begins. Follows kube-scheduler
v1.36.3 (``schedulePod``, ``findNodesThatFitPod``); on purpose different: every feasible node is scored unless a
percentage is set, and ties are settled by seeded bits over node names, so that the order in which nodes came does not
change a decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.nominated import judge_with_nominated_pods
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.diagnosis import Diagnosis, Verdicts
from scheduler_core.framework.extension_points import Scores
from scheduler_core.framework.status import Status
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
_MIXER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class NoNodesError(SchedulerCoreError):
    """There are no nodes at all."""

    def __str__(self) -> str:
        """The reference's words."""
        return "no nodes available to schedule pods"


@dataclass(slots=True)
class Feasible:
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
    """Run PreFilter and Filter.

    Args:
        context: The shared parts.
        attempt: The pod, its profile and its cycle state.
        everywhere: Whether all nodes are looked at whatever percentage is set, as an explanation wants it; where the
            next partial search begins then stays as it is.

    Raises:
        NoNodesError: There are no nodes.
        PluginError: A plugin raised, or answered what its point does not allow.
    """
    nodes, state, info = context.cache.columns, attempt.state, attempt.info
    if nodes.count == 0:
        raise NoNodesError
    pre_filter = run_pre_filters(attempt.instance, state, info, nodes)
    narrowed = narrowed_status(pre_filter.narrowing)

    def decode(verdict: int) -> Status:
        return narrowed if verdict == NARROWED else decode_verdict(attempt.instance, state, info, verdict)

    diagnosis = Diagnosis(nodes.count, np.zeros(nodes.size, dtype=np.int32), nodes.alive, decode)
    diagnosis.rejected_by.update(pre_filter.narrowing)
    if not pre_filter.status.is_success:
        diagnosis.pre_filter = pre_filter.status
        _note_rejection(diagnosis, pre_filter.status)
        return Feasible(np.empty(0, dtype=np.intp), diagnosis)
    promised = judge_with_nominated_pods(attempt.instance, state, info, nodes, context.queue.nominator)
    own_row = nodes.row_of(info.pod.status.nominated_node_name) if info.pod.status.nominated_node_name else NO_ROW
    own_verdict = 0
    if own_row != NO_ROW:
        own = np.array([own_row], dtype=np.intp)
        own_verdict = int(_merge(run_filters(attempt.instance, state, info, nodes, own), own, promised)[0])
        if not own_verdict:
            return Feasible(own, diagnosis, nominated_only=True, node_names=pre_filter.node_names)
    rows: Rows = ALL_ROWS
    if pre_filter.node_names is not None:
        named = sorted(row for name in pre_filter.node_names if (row := nodes.row_of(name)) != NO_ROW)
        rows = np.array(named, dtype=np.intp)
        diagnosis.verdicts[:] = NARROWED
    verdicts = _merge(run_filters(attempt.instance, state, info, nodes, rows), rows, promised)
    diagnosis.verdicts[rows] = verdicts
    feasible = np.flatnonzero((diagnosis.verdicts == 0) & nodes.alive)
    limit = None if everywhere else _limit(context, attempt, nodes.count if isinstance(rows, slice) else len(rows))
    if limit is not None:
        feasible = _first_in_order(context, diagnosis, rows, limit)
    if not len(feasible):
        if own_verdict and pre_filter.node_names is not None:
            # The nominated node was looked at first: it keeps its own reason, and the plugin that rejected it is named
            # beside those that narrowed the search, as the reference's diagnosis has it.
            diagnosis.verdicts[own_row] = own_verdict
            narrowed = narrowed_status(tuple({*pre_filter.narrowing, decode(own_verdict).plugin}))
        for status, _ in diagnosis.counted():
            _note_rejection(diagnosis, status)
    return Feasible(feasible, diagnosis, node_names=pre_filter.node_names)


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
    percentage = attempt.instance.config.percentage_of_nodes_to_score
    if percentage is None:
        percentage = context.percentage_of_nodes_to_score
    if percentage is None or percentage >= 100:
        return None
    if not attempt.instance.scores:
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
    nodes = context.cache.columns
    asked: Rows = ALL_ROWS if len(rows) == nodes.size else rows
    run_pre_scores(attempt.instance, attempt.state, attempt.info, nodes, asked)
    scoring = Scoring(attempt.state, attempt.info, nodes, asked)
    return run_scores(attempt.instance, scoring, keep_parts=keep_parts)


def select_node(context: CycleContext, attempt: Attempt, feasible: Feasible) -> str:
    """Choose among feasible nodes, of which there is at least one.

    Raises:
        PluginError: A plugin raised, or answered what its point does not allow.
    """
    rows = feasible.rows
    row = int(rows[0])
    if len(rows) > 1:
        row = _best(context, attempt, rows, score_feasible(context, attempt, rows).totals)
    return context.cache.columns.node_name(row)


def _best(context: CycleContext, attempt: Attempt, rows: NDArray[np.intp], totals: Scores) -> int:
    tied = rows[np.flatnonzero(totals == totals.max())]
    if len(tied) == 1:
        return int(tied[0])
    text = f"{context.seed}/{attempt.info.key}/{attempt.queued.attempts}"
    bits = np.uint64(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little"))
    mixed = (context.cache.columns.name_hashes[tied] ^ bits) * _MIXER
    mixed ^= mixed >> _SHIFT
    mixed *= _MIXER
    return int(tied[int(mixed.argmax())])
