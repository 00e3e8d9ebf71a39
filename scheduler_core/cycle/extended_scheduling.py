"""The scheduling cycle of a profile whose extenders are called: the same steps, awaiting their answers.

Owns where in the cycle extenders come in. Must not repeat a step: each is a function of the cycle that does not
await. While it waits the cycle is suspended, so that all steps see the cluster as the first one saw it.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/schedule_one.go`` (``findNodesThatFitPod``, ``evaluateNominatedNode``,
``prioritizeNodes``).
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.decision_log import subject_of
from scheduler_core.cycle.failure import Failure, no_fit
from scheduler_core.cycle.node_selection import Feasible, Search, best_row, score_feasible
from scheduler_core.cycle.scheduling import begin, conclude, failure_of, hold, release
from scheduler_core.errors import ExtenderError
from scheduler_core.framework.cycle_times import ENDS, Point
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code, Status
from scheduler_core.runtime.extenders import PreemptionConsultation, run_extender_filters, run_extender_scores
from scheduler_core.runtime.post_filtering import run_post_filters_with

log = logging.getLogger(__name__)


async def schedule_with_extenders(context: CycleContext, queued: QueuedPod) -> Attempt | None:
    """Run one scheduling cycle, suspended while extenders answer.

    Args:
        context: The shared parts; what is reported meanwhile is in them when this returns.
        queued: The popped pod, whose profile has extenders.

    Returns:
        The attempt, whose pod is assumed on a node and is to be bound; None if it failed or was not to be made. If the
        cycle is cancelled, the pod holds nothing and is back in the queue.
    """
    attempt = begin(context, queued)
    if attempt is None:
        return None
    with context.suspension.of_cycle():
        try:
            failure = await _decide(context, attempt)
        except Exception as error:
            failure = failure_of(attempt, error)
        except BaseException:
            release(context, attempt)
            context.queue.failed(queued)
            attempt.instance.end()
            raise
        return conclude(context, attempt, failure)


async def choose_with_extenders(context: CycleContext, attempt: Attempt) -> tuple[str, Failure | None]:
    """Find a node for a pod, without holding it and without preemption.

    Returns:
        The node's name; or "" and why there is none.

    Raises:
        SchedulerCoreError: A plugin or an extender failed.
    """
    feasible = await _find_feasible(context, attempt)
    if not len(feasible.rows):
        return "", no_fit(feasible.diagnosis, None)
    return await _select_node(context, attempt, feasible.rows), None


async def _decide(context: CycleContext, attempt: Attempt) -> Failure | None:
    feasible = await _find_feasible(context, attempt)
    if not len(feasible.rows):
        return no_fit(feasible.diagnosis, await _run_post_filters(context, attempt, feasible.diagnosis))
    return hold(context, attempt, await _select_node(context, attempt, feasible.rows))


async def _find_feasible(context: CycleContext, attempt: Attempt) -> Feasible:
    search = Search(context, attempt)
    if search.is_rejected:
        return search.ended(_NO_ROWS)
    rejections: dict[str, Status] = {}
    try:
        nominated = await _left_by_extenders(context, attempt, search.nominated(), rejections)
    except ExtenderError as error:
        # The whole search will tell whether it lasts.
        text = "whether pod %s fits its nominated node is not known: %s"
        log.warning(text, attempt.info.key, error, extra=subject_of(attempt))
        nominated = _NO_ROWS
    if len(nominated):
        return search.ended(nominated, nominated_only=True)
    rows = search.rows()
    left = await _left_by_extenders(context, attempt, rows, rejections)
    return search.turned_away(rejections) if len(rows) and not len(left) else search.ended(left)


async def _left_by_extenders(
    context: CycleContext, attempt: Attempt, rows: NDArray[np.intp], rejections: dict[str, Status]
) -> NDArray[np.intp]:
    if not len(rows):
        return rows
    nodes = context.cache.columns
    names = [nodes.node_name(row) for row in rows.tolist()]
    left = await run_extender_filters(attempt.instance.extenders, attempt.info, names, rejections)
    _extenders_ended(attempt)
    return rows if left is names else np.array(sorted({nodes.row_of(name) for name in left}), dtype=np.intp)


async def _run_post_filters(context: CycleContext, attempt: Attempt, diagnosis: Diagnosis) -> str | None:
    consultation = PreemptionConsultation(attempt.instance.extenders, context.cache.columns)
    outcome = await run_post_filters_with(attempt.instance, attempt.state, attempt.info, diagnosis, consultation)
    attempt.state.times.end(ENDS[Point.POST_FILTER][outcome.status.code])
    diagnosis.post_filter_message = outcome.status.message
    return outcome.nominated_node


async def _select_node(context: CycleContext, attempt: Attempt, rows: NDArray[np.intp]) -> str:
    nodes, row = context.cache.columns, int(rows[0])
    if len(rows) > 1:
        totals = score_feasible(context, attempt, rows).totals
        names = [nodes.node_name(each) for each in rows.tolist()]
        totals = totals + await run_extender_scores(attempt.instance.extenders, attempt.info, names)
        _extenders_ended(attempt)
        row = best_row(context, attempt, rows, totals)
    return nodes.node_name(row)


def _extenders_ended(attempt: Attempt) -> None:
    attempt.state.times.end(ENDS[Point.EXTENDERS][Code.SUCCESS])


_NO_ROWS: NDArray[np.intp] = np.empty(0, dtype=np.intp)
