"""The choice by a ranking: a pod goes to the best row, with what plugins prepared for one that is like it.

Owns what such an attempt carries on with, and the questions to those plugins that have to be asked about every pod. It
must not know why the ranking serves the pod.
"""

from __future__ import annotations

import numpy as np

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.node_selection import row_of_ties
from scheduler_core.cycle.pod_kinds import PodKind
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import ENDS, UNTIMED, Point
from scheduler_core.framework.extension_points import Scores
from scheduler_core.framework.status import Code
from scheduler_core.runtime.asked_again import AskedAgain
from scheduler_core.runtime.filtering import run_filters, run_pre_filters
from scheduler_core.runtime.ranking import Ranking
from scheduler_core.runtime.scoring import Scoring, add_scores, run_pre_scores
from scheduler_core.snapshot.node_columns import ALL_ROWS, Rows
from scheduler_core.snapshot.pod_info import NO_ROW

_PRE_FILTERED, _FILTERED, _PRE_SCORED, _SCORED = (
    ENDS[point][Code.SUCCESS] for point in (Point.PRE_FILTER, Point.FILTER, Point.PRE_SCORE, Point.SCORE)
)


def choose_among(context: CycleContext, attempt: Attempt, kind: PodKind, ranking: Ranking) -> str:
    """The node of the best row; the attempt has its own copy of what was prepared from then on.

    Returns:
        "" where the whole way has to say, and to tell why: one row is left, or none, or a plugin answers a pod of this
        kind otherwise than the one before; the attempt is then as it was.

    Raises:
        PluginError: A plugin raised, or answered what its point does not allow; the attempt is as it was.
    """
    if ranking.fitting < 2 or kind.prepared is None or kind.repetition is None:
        return ""
    again, times = kind.repetition.again, attempt.state.times
    state, row = kind.prepared.clone(), NO_ROW
    ended = len(times.ends)
    try:
        if again.names or ranking.relative.scores:
            row = _best_asked(context, attempt, (state, again, ranking))
        else:
            for end in (_PRE_FILTERED, _FILTERED, _PRE_SCORED, _SCORED):
                times.end(end)
            attempt.feasible_count = ranking.fitting
            row = row_of_ties(context, attempt, np.flatnonzero(ranking.keys == ranking.keys.max()))
    finally:
        if row == NO_ROW:
            times.take_back(ended)
    if row == NO_ROW:
        return ""
    state.times = times
    attempt.state = state
    return context.cache.columns.node_name(row)


def _best_asked(context: CycleContext, attempt: Attempt, by: tuple[CycleState, AskedAgain, Ranking]) -> int:
    """The best row when those plugins are asked that have to be; NO_ROW where the whole way has to say."""
    (state, again, ranking), times = by, attempt.state.times
    instance, info, nodes = attempt.instance, attempt.info, context.cache.columns
    state.times = UNTIMED
    outcome = run_pre_filters(instance, state, info, nodes, among=again.pre_filter)
    times.end(_PRE_FILTERED)
    if not outcome.status.is_success or outcome.node_names is not None:
        return NO_ROW
    fits = ranking.keys >= 0
    if again.filters:
        before = ranking.rejected_before
        fits &= run_filters(instance, state, info, nodes, ALL_ROWS, among=again.filters, rejected_before=before) == 0
    count = int(np.count_nonzero(fits))
    times.end(_FILTERED)
    if count < 2:
        return NO_ROW
    rows = None if count == nodes.size else np.flatnonzero(fits)
    asked: Rows = ALL_ROWS if rows is None else rows
    scoring = Scoring(state, info, nodes, asked)
    run_pre_scores(instance, scoring, among=again.pre_score)
    times.end(_PRE_SCORED)
    wanted = [each for each in again.scores if each[0].name not in state.skip_score]
    known: dict[str, Scores] = {}
    if ranking.relative.scores:
        wanted += ranking.relative.scores
        known = {name: raw[asked] for name, raw in ranking.relative.raw.items()}
    totals = ranking.keys[asked]
    if wanted:
        totals = totals + add_scores(instance, scoring, wanted, known).totals
    attempt.feasible_count = count
    tied = np.flatnonzero(totals == totals.max())
    row = row_of_ties(context, attempt, tied if rows is None else rows[tied])
    times.end(_SCORED)
    return row
